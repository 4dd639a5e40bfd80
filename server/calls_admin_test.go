package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

const shopCalls = `
domain: shop
descriptors:
  - key: user
    penalty: {ban_after: 3, ban_for: 10m}
    rate_limit: {unit: minute, requests_per_unit: 3}
    descriptors:
      - {key: path, value: /cart, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 100}}
`

// What decides all calls of the service beside the server decides those of the check API and in
// explanations, too.
func TestCallsAsTheServiceDecides(t *testing.T) {
	const files = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 3}}
`
	both, b := callOf(entry("a", ""), entry("b", "")), callOf(entry("b", ""))
	for _, c := range []struct {
		calls server.Calls
		want  string // of two calls about a and b, and of one about b
	}{
		{server.Calls{}, "allowed limited allowed, 1 of b left"},
		{server.Calls{Each: true}, "allowed limited allowed, 0 of b left"},
		{server.Calls{Quota: true}, "allowed allowed allowed, 0 of b left"},
		{server.Calls{Each: true, Quota: true}, "allowed allowed allowed, 0 of b left"},
	} {
		s := newCalls(t, files, "rules: []", func(to *server.Config) { to.Calls = c.calls })
		o := operator{t, s.Admin()}
		var outcomes []string
		var left int64
		for _, body := range []string{both, both, b} {
			var explained adminapi.Explanation
			if err := json.Unmarshal([]byte(o.want(200, "POST", "/v1/explain", body)), &explained); err != nil {
				t.Fatal(err)
			}
			decided := readAnswer[struct {
				Outcome   string
				Remaining int64
			}](t, callCheck(s, "/v1/check", body))
			if explained.Outcome != decided.Outcome {
				t.Errorf("%+v: %s is explained as %s: %s", c.calls, body, explained.Outcome, decided.Outcome)
			}
			outcomes, left = append(outcomes, decided.Outcome), decided.Remaining
		}
		if got := fmt.Sprintf("%s, %d of b left", strings.Join(outcomes, " "), left); got != c.want {
			t.Errorf("%+v: %s, want %s", c.calls, got, c.want)
		}
	}
}

// shopCall is the body of a check about a call. A descriptor is "key=value,key=value".
func shopCall(more string, descriptors ...string) string {
	var list []map[string]any
	for _, text := range descriptors {
		var entries []map[string]string
		for e := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(e, "=")
			entries = append(entries, map[string]string{"key": key, "value": value})
		}
		list = append(list, map[string]any{"entries": entries})
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{%s"domain":"shop","descriptors":%s}`, more, text)
}

// checked is the status and the body of the answer to a check.
func checked(s *server.Server, body string) (int, string) {
	w := check(s, body)
	return w.Code, w.Body.String()
}

// What an operator can do about rules and keys works on those of Envoy's files: explain, show a key,
// override its limit, ban it, reset it, and count offenders.
func TestOperatorsOfCalls(t *testing.T) {
	s := newCalls(t, shopCalls, "{rules: [{name: all, match: 'operation == \"shop\"', key: client.ip, limits: [50 per 1m]}]}")
	o := operator{t, s.Admin()}
	ann := shopCall("", "user=ann,path=/cart", "remote_address=192.0.2.1", "nothing=here")
	for range 2 {
		if status, body := checked(s, ann); status != http.StatusOK {
			t.Fatal(status, body)
		}
	}
	status, body := checked(s, ann)
	if status != http.StatusTooManyRequests {
		t.Fatal(status, body)
	}
	var refused struct{ Rule string }
	if err := json.Unmarshal([]byte(body), &refused); err != nil || refused.Rule == "" {
		t.Fatal(err, body)
	}
	explain := func(body string) (e adminapi.Explanation, words string) {
		if err := json.Unmarshal([]byte(o.want(200, "POST", "/v1/explain", body)), &e); err != nil {
			t.Fatal(err)
		}
		return e, strings.Join(e.Words, "\n")
	}
	e, words := explain(ann)
	if e.Outcome != "limited" || e.Rule != refused.Rule {
		t.Errorf("explained as %s by %s, want limited by %s", e.Outcome, e.Rule, refused.Rule)
	}
	for _, want := range []string{"Descriptor 3 finds no rule, so it is not limited.", "2 of 2 used, 0 left; refuses", "2 of 100 used", "Rule all applies"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in\n%s", want, words)
		}
	}
	if e, words = explain(shopCall("", "user=bob")); e.Outcome != "allowed" {
		t.Errorf("%s:\n%s", e.Outcome, words)
	}
	if _, words = explain(strings.Replace(ann, `"shop"`, `"other"`, 1)); !strings.Contains(words, `No file of descriptors has the domain "other"`) {
		t.Error(words)
	}
	key := fmt.Sprintf(`{"rule":%q,"key":"ann"}`, refused.Rule)
	if got := o.want(200, "POST", "/v1/keys/show", key); !strings.Contains(got, `"used":2`) {
		t.Errorf("key show: %s", got)
	}
	if got := o.want(200, "GET", "/v1/offenders?of=keys&by=refusals", ""); !strings.Contains(got, `"key":"ann"`) {
		t.Errorf("offenders: %s", got)
	}
	if got := o.want(200, "GET", "/v1/offenders?of=clients&by=refusals", ""); !strings.Contains(got, `"192.0.2.1"`) {
		t.Errorf("offenders: %s", got)
	}
	o.want(200, "POST", "/v1/keys/reset", key)
	if status, body := checked(s, ann); status != http.StatusOK {
		t.Errorf("after a reset: %d %s", status, body)
	}
	o.want(201, "POST", "/v1/overrides", fmt.Sprintf(`{"rule":%q,"key":"ann","limits":["1 per 1m fixed_window"],"for":"1h"}`, refused.Rule))
	if status, _ := checked(s, ann); status != http.StatusTooManyRequests {
		t.Errorf("with an override: %d", status)
	}
	o.want(201, "POST", "/v1/bans", fmt.Sprintf(`{"rule":%q,"key":"ann","for":"1h"}`, refused.Rule))
	status, body = checked(s, ann)
	if status != http.StatusTooManyRequests || !strings.Contains(body, `"outcome":"banned"`) {
		t.Errorf("after a ban: %d %s", status, body)
	}
	if e, words = explain(ann); e.Outcome != "banned" {
		t.Errorf("%s:\n%s", e.Outcome, words)
	}
	metrics := httptest.NewRecorder()
	checkAPI(s).ServeHTTP(metrics, httptest.NewRequest("GET", "/metrics", nil))
	if want := fmt.Sprintf(`stint_decisions_total{outcome="banned",rule=%q} 1`, refused.Rule); !strings.Contains(metrics.Body.String(), want) {
		t.Errorf("%s is not among the metrics", want)
	}
}

// A rule with quota_mode that refuses alone decides nothing.
func TestExplainQuota(t *testing.T) {
	s := newCalls(t, shopCalls, "{}")
	o := operator{t, s.Admin()}
	for _, tt := range []struct{ check, outcome string }{
		{shopCall("", "a=1"), "allowed"},
		{shopCall("", "b=1"), "limited"},
	} {
		checked(s, tt.check)
		var e adminapi.Explanation
		if err := json.Unmarshal([]byte(o.want(200, "POST", "/v1/explain", shopCall("", "a=1", "b=1"))), &e); err != nil || e.Outcome != tt.outcome {
			t.Errorf("after %s: %v, %s, want %s:\n%s", tt.check, err, e.Outcome, tt.outcome, strings.Join(e.Words, "\n"))
		}
		const alone = "Rule shop/a refuses only if all rules with quota_mode do, and another allows."
		if slices.Contains(e.Words, alone) != (tt.outcome == "allowed") {
			t.Errorf("after %s:\n%s", tt.check, strings.Join(e.Words, "\n"))
		}
	}
}

// Events of a simulation can be calls, holds of the check API can hold them, and a charge charges them.
func TestSimulateCalls(t *testing.T) {
	s := newCalls(t, shopCalls, "{}")
	event := func(at int, more string, descriptors ...string) string {
		return shopCall(fmt.Sprintf(`"t_us":%d,%s`, at, more), descriptors...) + "\n"
	}
	var out bytes.Buffer
	err := s.Simulate(t.Context(), strings.NewReader(
		event(0, "", "user=ann", "user=bob")+
			event(1, `"cost":3,`, "user=ann", "user=bob")+
			event(2, "", "user=ann")+
			event(3, `"charge":true,"cost":2,`, "user=carl")+
			event(4, "", "user=carl")+
			event(60_000_000, "", "user=ann")+
			event(60_000_001, `"cost":-1,`, "user=ann")), &out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var j struct {
			Outcome   string
			Decisions []struct{ Remaining int64 }
		}
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(j.Outcome, j.Decisions))
	}
	want := "allowed[{2} {2}] limited[{0} {0}] limited[{0}] charged[{1}] allowed[{0}] allowed[{2}] malformed[]"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("\n got %s\nwant %s", text, want)
	}
}

// A preview tries new rules on the calls of the last minutes.
func TestPreviewCalls(t *testing.T) {
	s := newCalls(t, shopCalls, "{rules: [{name: all, key: attrs.user, limits: [50 per 1m fixed_window]}]}", func(c *server.Config) { c.Settings.RecentRequests = 1 << 20 })
	for range 3 {
		if status, body := checked(s, shopCall("", "user=ann", "remote_address=192.0.2.1")); status != http.StatusOK {
			t.Fatal(status, body)
		}
	}
	p := operator{t, s.Admin()}.preview("rules: [{name: all, key: attrs.user, match: 'operation == \"shop\"', limits: [1 per 1h fixed_window]}]")
	if p.Requests != 3 || p.Now.Refused != 0 || p.Then.Refused != 2 || len(p.Sample) == 0 || p.Sample[0].Client != "192.0.2.1" {
		t.Errorf("%+v", p)
	}
}

// In a preview, a rule in shadow mode charges what it refuses, as it did.
func TestPreviewShadowCalls(t *testing.T) {
	s := newCalls(t, "domain: d\ndescriptors:\n  - {key: k, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}\n", "{}",
		func(c *server.Config) { c.Settings.RecentRequests = 1 << 20 })
	for _, call := range []*rules.Input{calling("k=1*3"), calling("k=1")} {
		if _, err := s.Decide(t.Context(), call, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	p := operator{t, s.Admin()}.preview("rules: []")
	if len(p.Rules) != 1 || p.Rules[0].Name != "d/k" || p.Rules[0].Now != 2 {
		t.Errorf("%+v", p.Rules)
	}
}

// Of many rules, only those that decided something have series; and they keep them when the rules are
// replaced.
func TestSeriesOfManyRules(t *testing.T) {
	file := strings.Builder{}
	file.WriteString("domain: d\ndescriptors:\n")
	for i := range 3000 {
		fmt.Fprintf(&file, "  - {key: k%d, rate_limit: {unit: hour, requests_per_unit: 5}}\n", i)
	}
	s := newCalls(t, file.String(), "{}")
	series := func() (n int, one bool) {
		w := httptest.NewRecorder()
		checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for line := range strings.Lines(w.Body.String()) {
			if strings.HasPrefix(line, "stint_decisions_total{") && strings.Contains(line, `outcome="allowed"`) && !strings.Contains(line, `rule=""`) {
				n++
				one = one || strings.HasSuffix(line, " 2\n") && strings.Contains(line, "k7")
			}
		}
		return n, one
	}
	if n, _ := series(); n != 0 {
		t.Errorf("%d rules have series before the first decision", n)
	}
	for range 2 {
		if _, err := s.Decide(t.Context(), calling("k7=1"), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	again, err := rules.ParseFiles([]rules.File{{Name: "envoy.yaml", Data: []byte(file.String() + "  - {key: more}\n"), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, one := series(); n != 1 || !one {
			t.Errorf("%d rules have series, and the right one: %v", n, one)
		}
		if taken, err := s.SetRules(again); !taken || err != nil {
			t.Fatal(taken, err)
		}
	}
}

// Each key that a call used is counted among the offenders, and none that it did not.
func TestOffendersOfCalls(t *testing.T) {
	s := newCalls(t, shopCalls, "{}")
	for _, call := range []string{shopCall("", "user=ann", "user=bob"), shopCall("", "a=1", "b=1"), shopCall("", "a=1", "b=2")} {
		if status, body := checked(s, call); status != http.StatusOK {
			t.Fatal(status, body)
		}
	}
	var found struct {
		Offenders []struct {
			Rule, Key string
			Count     int64
		}
	}
	if err := json.Unmarshal([]byte(operator{t, s.Admin()}.want(200, "GET", "/v1/offenders?of=keys&by=use", "")), &found); err != nil {
		t.Fatal(err)
	}
	used := map[string]int64{}
	for _, o := range found.Offenders {
		used[o.Rule+" "+o.Key] = o.Count
	}
	want := map[string]int64{"shop/user ann": 1, "shop/user bob": 1, "shop/a 1": 1, "shop/b 1": 1, "shop/b 2": 1} // a=1 was refused once
	if !maps.Equal(used, want) {
		t.Errorf("%v, want %v", used, want)
	}
}
