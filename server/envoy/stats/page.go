package stats

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Page answers with all statistics since the start, a line each, by name. With ?filter=REGEXP it
// answers with those whose names match.
func (s *Stats) Page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		filter, err := regexp.Compile(r.FormValue("filter"))
		if err != nil {
			http.Error(w, "filter: "+err.Error(), http.StatusBadRequest)
			return
		}
		var lines []string
		add := func(name, format string, args ...any) {
			if filter.MatchString(name) {
				lines = append(lines, name+": "+fmt.Sprintf(format, args...)+"\n")
			}
		}
		for _, g := range s.gauges() {
			add(g.name, "%d", g.value)
		}
		for _, g := range s.groups() {
			for i, kind := range g.kinds {
				add(g.name+"."+kind, "%d", g.n[i].Load())
			}
		}
		for _, m := range s.methodsNow() {
			if n, sum, at := m.times.quantiles(0.5, 0.9, 0.99, 1); n > 0 {
				add(m.name, "mean %s, P50 %s, P90 %s, P99 %s, P100 %s (ms)", ms(sum/n), ms(at[0]), ms(at[1]), ms(at[2]), ms(at[3]))
			}
		}
		slices.Sort(lines)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(strings.Join(lines, "")))
	})
}

// ms is a time in µs, in ms.
func ms(µs uint64) string { return fmt.Sprintf("%.3g", float64(µs)/1000) }
