package stint_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stintdev/stint"
)

// Limits without a name that share a count by mistake are told of once: under one key, and not where
// each user has one of them.
func TestUnnamedLimitsOfOneKey(t *testing.T) {
	few, many, named := stint.MustLimit("10 per 1m"), stint.MustLimit("100 per 1m"), stint.MustLimit("api: 100 per 1m")
	hour := stint.MustLimit("100 per 1h")
	type ask struct {
		key   string
		limit *stint.Limit
	}
	for name, c := range map[string]struct {
		asks  []ask
		warns bool
	}{
		"one limit":              {[]ask{{"k", few}, {"k", few}, {"k", stint.MustLimit("10 per 1m")}}, false},
		"two numbers":            {[]ask{{"k", few}, {"k", many}, {"k", few}}, true},
		"one has a name":         {[]ask{{"k", few}, {"k", named}}, false},
		"another period":         {[]ask{{"k", few}, {"k", hour}}, false},
		"each of another user":   {[]ask{{"a", few}, {"b", many}}, false},
		"after others":           {[]ask{{"a", few}, {"b", many}, {"c", hour}, {"b", few}}, true},
		"a mistake, a key later": {[]ask{{"a", few}, {"a", many}, {"b", few}, {"b", many}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			t.Cleanup(func() { slog.SetDefault(before) })
			for way, allow := range map[string]func(*stint.Limiter, ask) error{
				"Allow":  func(l *stint.Limiter, a ask) error { _, err := l.Allow(t.Context(), a.key, a.limit); return err },
				"AllowN": func(l *stint.Limiter, a ask) error { _, err := l.AllowN(t.Context(), a.key, a.limit, 2); return err },
				"Take": func(l *stint.Limiter, a ask) error {
					_, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: a.key, Limit: a.limit, Cost: 1}}}, nil)
					return err
				},
			} {
				log.Reset()
				var l stint.Limiter
				for _, a := range c.asks {
					if err := allow(&l, a); err != nil {
						t.Fatal(err)
					}
				}
				if n := strings.Count(log.String(), "share one count"); (n == 1) != c.warns || n > 1 {
					t.Errorf("%s: the log: %q", way, &log)
				}
			}
		})
	}
}
