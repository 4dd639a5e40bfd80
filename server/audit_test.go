package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/reports"
)

// reporting is a shelf that also has the reports of a fleet.
type reporting struct {
	*shelf
	reports.Memory
	away atomic.Bool
}

func (r *reporting) Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error {
	if r.away.Load() {
		return errors.New("the reports are away")
	}
	return r.Memory.Report(ctx, name, part, text, keep)
}

func (r *reporting) Reported(ctx context.Context, name string) (map[string][]byte, error) {
	if r.away.Load() {
		return nil, errors.New("the reports are away")
	}
	return r.Memory.Reported(ctx, name)
}

func (o operator) audit(query string) []adminapi.AuditEntry {
	o.Helper()
	var log adminapi.AuditLog
	if err := json.Unmarshal([]byte(o.want(200, "GET", "/v1/audit"+query, "")), &log); err != nil {
		o.Fatal(err)
	}
	return log.Entries
}

func actions(all []adminapi.AuditEntry) string {
	var names []string
	for _, e := range all {
		names = append(names, e.Action)
	}
	return strings.Join(names, ", ")
}

// Every instance shows the changes that were made at any of them, the newest first; those that
// it made while the store was away, at once.
func TestAuditOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		shared := &reporting{shelf: f.shelf}
		var log logged
		with := func(c *server.Config) { c.Documents = shared }
		a, _ := f.join(adminRules, with, logTo(&log))
		b, two := f.join(adminRules, with)
		if got := a.audit(""); len(got) != 0 {
			t.Errorf("before any change: %v", got)
		}
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1","reason":"why"}`)
		time.Sleep(time.Second)
		b.want(200, "PATCH", "/v1/switches", `{"enabled":false}`)
		b.want(404, "DELETE", "/v1/bans/none", "") // changes nothing
		time.Sleep(time.Second)
		for _, o := range []operator{a, b} {
			all := o.audit("")
			expect(t, actions(all), "switch, ban")
			if e := all[1]; e.ID == "" || e.Who != "local" || e.From != "127.0.0.1:5000" || e.Reason != "why" || e.Before != "" || !strings.Contains(e.After, `"key":"192.0.2.1"`) || e.Host == "" || e.Pending != "" || time.Since(e.At) != 2*time.Second {
				t.Errorf("%+v", e)
			}
			expect(t, actions(o.audit("?limit=1")), "switch")
		}
		a.want(400, "GET", "/v1/audit?limit=1001", "")

		shared.away.Store(true)
		a.want(200, "PATCH", "/v1/switches", `{"enabled":true}`)
		time.Sleep(time.Minute)
		a.want(503, "GET", "/v1/audit", "")
		if text := log.taken(); !strings.Contains(text, "changes cannot be written for GET /v1/audit") {
			t.Errorf("the log does not say so:\n%s", text)
		}
		b.want(200, "PATCH", "/v1/switches", `{"rules":{"login":"off"}}`)
		synctest.Wait()
		shared.away.Store(false)
		two.Close() // it makes a last attempt
		expect(t, actions(a.audit("")), "switch, switch, switch, ban")
		expect(t, actions(b.audit("")), "switch, switch, ban") // not yet
		time.Sleep(5 * time.Second)
		synctest.Wait()
		expect(t, actions(b.audit("")), "switch, switch, switch, ban")
	})
}

// A change is kept for 14 days.
func TestAuditEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operator{t, newServer(t, adminRules).Admin()}
		o.want(200, "PATCH", "/v1/switches", `{"enabled":false}`)
		time.Sleep(14*24*time.Hour - time.Second)
		expect(t, actions(o.audit("")), "switch")
		time.Sleep(time.Second)
		expect(t, actions(o.audit("")), "")
	})
}

// The audit keeps the newest 1,000 changes, and of long states their length.
func TestAuditIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		shared := &reporting{shelf: f.shelf}
		o, _ := f.join(adminRules, func(c *server.Config) { c.Documents = shared })
		shared.away.Store(true)
		for i := range 1002 {
			o.want(200, "PATCH", "/v1/switches", `{"enabled":`+[]string{"true", "false"}[i%2]+`}`)
			time.Sleep(time.Millisecond)
		}
		key := strings.Repeat("k", 4092)
		o.want(201, "POST", "/v1/overrides", `{"rule":"api","key":["`+key+`","x"],"times":2}`)
		shared.away.Store(false)
		time.Sleep(10 * time.Second)
		all := o.audit("?limit=1000")
		if len(all) != 1000 || len(o.audit("")) != 50 || all[0].Action != "add override" || !strings.HasSuffix(all[0].After, ` bytes, which only the log has"`) || !json.Valid([]byte(all[0].After)) {
			t.Errorf("%d: %+v", len(all), all[0])
		}
		if parts, _ := shared.Reported(t.Context(), "audit"); len(parts) != 1000 || len(parts[all[0].ID]) > 1<<10 {
			t.Errorf("%d parts", len(parts))
		}
	})
}

// What was pending is in the audit twice: as it was made, and as it was merged.
func TestAuditOfMergedChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAway(t)
		o, _ := f.join()
		f.down(true)
		o.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24","reason":"flood"}`)
		f.down(false)
		all := o.audit("")
		expect(t, actions(all), "ban, merged, ban")
		if all[0].Pending != "" || all[0].Reason != "flood" || all[0].Who != "local" || !strings.HasPrefix(all[1].Pending, "in force at this instance only") {
			t.Errorf("%+v", all)
		}
	})
}

// A change can name the decision that it was made for: by the ID that the client and the log got.
func TestAuditOfADecision(t *testing.T) {
	var log logged
	o, s := newOperator(t, logTo(&log))
	in := from("192.0.2.1")
	in.Operation = "login"
	var v server.Verdict
	for range 3 {
		v, _ = s.Decide(t.Context(), in, time.Time{})
	}
	const ban = `{"rule":"login","key":"192.0.2.1","for":"1h"}`
	if code, answer := o.call("POST", "/v1/bans", ban, "Stint-Decision", v.ID); v.ID == "" || code != 201 {
		t.Fatalf("decision %q: %d %s", v.ID, code, answer)
	}
	if all := o.audit(""); len(all) != 1 || all[0].Decision != v.ID {
		t.Errorf("audit: %+v, want decision %s", all, v.ID)
	}
	if text := log.taken(); strings.Count(text, "decision="+v.ID) != 2 {
		t.Errorf("want %s in the lines of the refusal and of the audit: %s", v.ID, text)
	}
	for _, wrong := range []string{"", "84D1FA2196BE03C7", v.ID + "0", "<script>alert(1)", "84d1fa2196be03c "} {
		if code, answer := o.call("POST", "/v1/bans", ban, "Stint-Decision", wrong); code != 400 {
			t.Errorf("decision %q: %d %s", wrong, code, answer)
		}
	}
}

// Each change says what it was about, with keys as they are shown.
func TestAuditSaysWhat(t *testing.T) {
	for _, hash := range []bool{false, true} {
		o, _ := newOperator(t, func(c *server.Config) { c.Settings.HashKeys = hash })
		for _, change := range []struct {
			status                   int
			method, path, body, what string
		}{
			{201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`, "rule login, key KEY"},
			{201, "POST", "/v1/bans", `{"network":"198.51.100.0/24"}`, "network 198.51.100.0/24"},
			{200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1"}`, "rule login, key KEY"},
			{200, "PATCH", "/v1/switches", `{"enabled":false,"rules":{"login":"shadow","api":null}}`, "limiting: off, rule api: as the file says, rule login: shadow"},
			{200, "PATCH", "/v1/switches", `{"enabled":null}`, "limiting: as the file says"},
			{201, "POST", "/v1/overrides", `{"rule":"login","key":"192.0.2.1","times":10}`, "rule login, key KEY: times 10"},
			{201, "POST", "/v1/overrides", `{"rule":"api","tier":"gold","limits":["1 per 1m","2 per 1h"]}`, "rule api, tier gold: 1 per 1m, 2 per 1h"},
			{201, "POST", "/v1/lists/safelist", `{"network":"203.0.113.0/24"}`, "203.0.113.0/24"},
			{201, "POST", "/v1/lists/blocklist", `{"match":"operation == \"x\""}`, `operation == "x"`},
			{200, "POST", "/v1/keys/reset", `{"rule":"login","key":"192.0.2.1"}`, "rule login, key KEY"},
			{201, "POST", "/v1/silences", `{"for":"1h"}`, "all alerts"},
		} {
			o.want(change.status, change.method, change.path, change.body)
			what := o.audit("?limit=1")[0].What
			if !hash {
				expect(t, what, strings.ReplaceAll(change.what, "KEY", "192.0.2.1"))
			} else if shown := regexp.MustCompile("h:[0-9a-f]{16}").ReplaceAllString(what, "KEY"); shown != change.what {
				t.Errorf("with hashes %v: %q, want %q", hash, what, change.what)
			}
		}
	}
}
