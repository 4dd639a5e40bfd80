package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
)

// Where the store does not decide, a check answer says who did, of the whole and of
// each decision; where it does, nothing is said.
func TestCheckDecidedBy(t *testing.T) {
	type reply struct {
		By        string
		Decisions []struct{ Rule, By string }
	}
	for _, c := range []struct {
		operation, want string
		store           stint.Store
	}{
		{"local", "local: local local, local local", failing()},
		{"allow", "policy: allow policy", failing()},
		{"both", "local: local local, local local, allow policy", failing()},
		{"local", "", new(stint.Memory)},
		{"both", "", &limittest.Faulty{Store: new(stint.Memory)}},
	} {
		w := check(newServer(t, mixed, over(c.store)), `{"operation":"`+c.operation+`"}`)
		var r reply
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		var each []string
		for _, d := range r.Decisions {
			each = append(each, d.Rule+" "+d.By)
		}
		got := r.By + ": " + strings.Join(each, ", ")
		if c.want == "" {
			if strings.Contains(w.Body.String(), `"by"`) {
				t.Errorf("%s", w.Body)
			}
		} else if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.operation, got, c.want)
		}
		if w.Header().Get("Stint-Degraded") != "" {
			t.Error("the header is set though nobody asked for it")
		}
	}
}

// With degraded_header, every API tells its clients, also those that are refused,
// and whatever the upstream says.
func TestDegradedHeader(t *testing.T) {
	for _, c := range []struct{ rule, store, first, then string }{
		{"on_store_error: local", "fails", "200 local", "429 local"},
		{"on_store_error: allow", "fails", "200 policy", "200 policy"},
		{"on_store_error: deny", "fails", "503 ", "503 "},
		{"on_store_error: local", "works", "200 ", "429 "},
	} {
		store := &limittest.Faulty{Store: new(stint.Memory)}
		if c.store == "fails" {
			store = failing()
		}
		file := "trusted_proxies: [127.0.0.1]\nrules: [{name: one, key: client.ip, limits: [1 per 1h], " + c.rule + "}]"
		g := start(t, newServer(t, file, over(store), everythingTo(upstream(t, who("up"))), func(c *server.Config) { c.Settings.DegradedHeader = true }))
		for name, ask := range map[string]func() answer{
			"gateway": func() answer { return send(t, g.gateway, "GET", "/") },
			"check": func() answer {
				return send(t, g.check, "POST", "/v1/check", "Host: x", "Content-Type: application/json", "Content-Length: 22\r\n\r\n"+`{"client":"192.0.2.1"}`)
			},
			"authorize": func() answer {
				return send(t, g.check, "GET", "/v1/authorize", "X-Original-URI: /", "X-Original-Method: GET", "X-Forwarded-For: 192.0.2.2")
			},
		} {
			for _, want := range []string{c.first, c.then} {
				got := ask()
				if said := got.Status[:3] + " " + got.Header.Get("Stint-Degraded"); said != want {
					t.Errorf("%s, store %s, %s: got %q, want %q", c.rule, c.store, name, said, want)
				}
			}
		}
	}
}
