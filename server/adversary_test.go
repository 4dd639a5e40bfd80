package server_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
)

// An end that JSON cannot write is refused, and the last that it can is not.
func TestEndOfTheCalendar(t *testing.T) {
	o, _ := newOperator(t)
	o.want(422, "POST", "/v1/bans", `{"network":"192.0.2.1","until":"9999-12-31T23:59:59-14:00"}`, "year 9999")
	o.want(201, "POST", "/v1/bans", `{"network":"192.0.2.1","until":"9999-12-31T23:59:59Z"}`)
	o.want(200, "GET", "/v1/bans", "")
}

// What no rule gives is no key, and what others have put into the store spoils no
// answer.
func TestKeysOfNoRule(t *testing.T) {
	store := &stint.Memory{}
	o, _ := newOperator(t, over(store))
	for _, path := range []string{"keys/show", "keys/reset", "bans", "bans/lift"} {
		o.want(400, "POST", "/v1/"+path, `{"rule":"api","key":"\u0000"}`, "NUL")
		o.want(400, "POST", "/v1/"+path, `{"rule":"api","key":"42\u0000x\u0000"}`, "as a list")
	}
	p, err := stint.NewPenalty(stint.PenaltySpec{Name: "theirs", BanAfter: 1, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a\x00b", "\xff", strings.Repeat("\xff", stint.MaxKey), "fine"} {
		if d, err := stint.NewLimiter(store).Violate(t.Context(), key, p); err != nil || d.BanLeft == 0 {
			t.Fatalf("%v, %v", d, err)
		}
	}
	o.want(200, "GET", "/v1/bans", "", `"key":"\"a\\x00b\""`, `"key":"\"\\xff\""`, `"key":"fine"`)
}

// A path is taken as it is sent: no redirect, which some callers follow, and whose
// page is none of ours.
func TestPathsAreNotRedirected(t *testing.T) {
	o, _ := newOperator(t)
	for _, path := range []string{"//v1/bans", "/v1//bans", "/v1/x/../bans", "/v1/./bans", "//example.com/../v1/bans"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			if code, answer := o.call(method, path, ""); code != 404 || !json.Valid([]byte(answer)) {
				t.Errorf("%s %s: %d %s", method, path, code, answer)
			}
		}
	}
}

// Rules that a document cannot hold are the caller's fault, not the store's.
func TestPushTooMuch(t *testing.T) {
	f := newFleet(t)
	o, _ := f.join(adminRules)
	text := adminRules + "# " + strings.Repeat("<", 1<<20) // 6 bytes each in JSON
	body, err := json.Marshal(map[string]any{"text": text, "after": 0})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer := o.call("PUT", "/v1/rules", string(body)); code != 422 || !strings.Contains(answer, "at most 4194304") {
		t.Errorf("%d %s", code, answer)
	}
	o.want(400, "PUT", "/v1/rules", push("rules: []", math.MaxInt64), "after")
	o.want(400, "POST", "/v1/rules/rollback", `{"to":1,"after":9223372036854775807}`, "after")
}

// What may have been changed leaves a line, too.
func TestAuditOfFailures(t *testing.T) {
	var log logged
	f := newFleet(t)
	o, _ := f.join(adminRules, logTo(&log))
	f.shelf.set(func(s *shelf) { s.lost = errors.New("no answer") })
	o.want(503, "PUT", "/v1/rules", push(adminRules+"# pushed", 0), "it is unknown whether the rules were pushed")
	if text := log.taken(); !strings.Contains(text, `msg="audit: perhaps changed" who=local from=127.0.0.1:5000 action="push rules" `) {
		t.Errorf("nothing about the push in\n%s", text)
	}
}

// Whoever lifted a ban takes it for lifted once: not again when the fleet tells of
// other changes, and forgets what came to be meanwhile.
func TestLiftedOnce(t *testing.T) {
	f := newFleet(t)
	var down atomic.Bool
	a, one := f.join(adminRules, over(&limittest.Faulty{Store: f.store, Fault: func(int) (fault limittest.Fault) {
		if down.Load() {
			fault.Err = limittest.ErrFault
		}
		return fault
	}}))
	b, _ := f.join(adminRules)
	a.want(404, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1"}`)
	down.Store(true)
	expect(t, outcomes(t, one, login, 6), "allowed allowed limited limited banned banned")
	b.want(201, "POST", "/v1/bans", `{"network":"198.51.100.1"}`)
	a.want(200, "PATCH", "/v1/switches", `{"enabled":true}`) // sees it
	expect(t, outcome(t, one, login), "banned")
}
