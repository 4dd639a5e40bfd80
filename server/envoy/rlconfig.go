package envoy

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/stintdev/stint/server/rules"
)

// serveConfig answers /rlconfig: a sorted line for each rule in force from files of Envoy's form.
func (s *Service) serveConfig(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, describe(s.decider.Rules()))
}

func describe(set *rules.Set) string {
	var lines []string
	for _, r := range set.Rules {
		d := r.Descriptor
		if d == nil || len(d.Path) == 0 {
			continue
		}
		name := d.Domain
		for _, e := range d.Path {
			name += "." + e.Key
			if e.Value != "" {
				name += "_" + e.Value
			}
		}
		unit := "UNKNOWN"
		if !d.Unlimited {
			unit = unitOf(d.Unit).String()
		}
		lines = append(lines, fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n",
			name, unit, d.Amount, r.Mode == rules.Shadow, d.Quota))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
