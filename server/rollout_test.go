package server_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// hall is a shelf by which instances hear of each other's rules.
type hall struct {
	*shelf
	*said
}

type said struct {
	mu   sync.Mutex
	when map[string]time.Time
	deaf error
}

func (s *said) Announce(_ context.Context, text string) (all []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf != nil {
		return nil, s.deaf
	}
	s.when[text] = time.Now()
	for t, at := range s.when {
		if time.Since(at) <= 30*time.Second {
			all = append(all, t)
		}
	}
	return all, nil
}

// Two services in one namespace are found after a minute, two versions of one service
// after ten, and neither a roll-out, nor equal rules with other settings, nor what is
// changed at run time.
func TestUnlikeRules(t *testing.T) {
	const (
		shop  = "server: {listen: ':1'}\nrules: [{name: login, key: client.ip, limits: [1 per 1h]}, {name: cart, key: client.ip, limits: [1 per 1h]}]"
		same  = "server: {listen: ':2'}\n# more\nrules: [{name: login, key: client.ip, limits: [1 per 1h]}, {name: cart, key: client.ip, limits: [1 per 1h]}]"
		newer = "rules: [{name: login, key: client.ip, limits: [2 per 1h]}]"
		mail  = "rules: [{name: send, key: client.ip, limits: [1 per 1h]}]"
	)
	for name, c := range map[string]struct {
		first, second string
		// within is when the finding has come, and not before; 0: it does not come.
		before, within time.Duration
		text           string
	}{
		"two services":   {shop, mail, 55 * time.Second, 75 * time.Second, "has no rule in common with this instance (send)"},
		"two versions":   {shop, newer, 9 * time.Minute, 11 * time.Minute, "has been in use for more than 10m"},
		"other settings": {shop, same, time.Hour, 0, ""},
		"no rules yet":   {shop, "rules: []", 9 * time.Minute, 11 * time.Minute, "has been in use"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				h := &hall{f.shelf, &said{when: map[string]time.Time{}}}
				there := func(c *server.Config) { c.Documents, c.Settings.Namespace = h, "stint" }
				var log logged
				a, one := f.join(c.first, there, logTo(&log))
				_, two := f.join(c.second, there)
				a.want(200, "PATCH", "/v1/switches", `{"enabled":true}`)
				found := func(s *server.Server) string {
					for _, f := range s.Findings() {
						if f.Code == rules.CodeUnlikeRules {
							return f.Text
						}
					}
					return ""
				}
				time.Sleep(c.before)
				if text := found(one); text != "" {
					t.Errorf("after %s: %s", c.before, text)
				}
				if c.within == 0 {
					return
				}
				time.Sleep(c.within - c.before)
				if text := found(one); !strings.Contains(text, c.text) || !strings.Contains(text, "namespace stint ") {
					t.Errorf("after %s: %q lacks %q", c.within, text, c.text)
				}
				if found(two) == "" {
					t.Error("the other finds nothing")
				}
				if n := strings.Count(log.taken(), "code=ST011"); n != 1 {
					t.Errorf("the log tells of it %d times", n)
				}
				// It is over when both have the same rules.
				set, err := rules.Parse("rules.yaml", []byte(c.first))
				if err != nil || !taken(two.SetRules(set)) {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if text := found(one) + found(two); text != "" {
					t.Errorf("both have the same: %s", text)
				}
			})
		})
	}
}

// A roll-out that takes its time is no finding.
func TestRollOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		h := &hall{f.shelf, &said{when: map[string]time.Time{}}}
		var all []*server.Server
		file := func(amount string) string {
			return "rules: [{name: login, key: client.ip, limits: [" + amount + " per 1h]}]"
		}
		for range 5 {
			_, s := f.join(file("1"), func(c *server.Config) { c.Documents = h })
			all = append(all, s)
		}
		for _, amount := range []string{"2", "3"} { // an instance a minute
			set, err := rules.Parse("rules.yaml", []byte(file(amount)))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				s.SetRules(set)
				time.Sleep(time.Minute)
				for _, s := range all {
					if slices.ContainsFunc(s.Findings(), func(f rules.Finding) bool { return f.Code == rules.CodeUnlikeRules }) {
						t.Fatal("a roll-out is found")
					}
				}
			}
			time.Sleep(5 * time.Minute)
		}
	})
}

// An instance that hears of a newer format warns once.
func TestNewerFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		h := &hall{f.shelf, &said{when: map[string]time.Time{}}}
		var log logged
		f.join("rules: [{name: a, key: client.ip, limits: [1 per 1h]}]", func(c *server.Config) { c.Documents = h }, logTo(&log))
		time.Sleep(time.Minute)
		const newer = "keeps data in a newer format"
		if text := log.taken(); strings.Contains(text, newer) {
			t.Errorf("of its own: %s", text)
		}
		for range 20 {
			_, _ = h.Announce(t.Context(), `{"format":2,"version":"x","rules":["a"],"count":1}`)
			time.Sleep(10 * time.Second)
		}
		if text := log.taken(); strings.Count(text, newer) != 1 || !strings.Contains(text, "newer=2") {
			t.Errorf("of format 2: %s", text)
		}
	})
}
