package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
)

func (o operator) preview(rules string) adminapi.Preview {
	o.Helper()
	var p adminapi.Preview
	if err := json.Unmarshal([]byte(o.want(200, "POST", "/v1/rules/preview", checkText(rules))), &p); err != nil {
		o.Fatal(err)
	}
	return p
}

func checkText(rules string) string {
	body, err := json.Marshal(adminapi.PreviewRequest{Text: rules})
	if err != nil {
		panic(err)
	}
	return string(body)
}

const previewedRules = `
rules:
  - {name: login, match: operation == "login", key: client.ip, limits: [5 per 1m fixed_window], penalty: {ban_after: 3, ban_for: 1m}}
  - {name: user, match: has(attrs.user), key: attrs.user, limits: [20 per 1m sliding_log]}
`

const stricterRules = `
rules:
  - {name: login, match: operation == "login", key: client.ip, limits: [3 per 1m sliding_log], penalty: {ban_after: 9, ban_for: 2m}}
  - {name: user, match: has(attrs.user), key: attrs.user, limits: [90 per 10m burst 20]}
  - {name: everyone, key: '"all"', limits: [10 per 1s leaky_bucket burst 9]}
`

// A preview says what a simulation of the same requests says, under both sets of rules.
func TestPreviewIsASimulation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operator{t, nil}
		s := newServer(t, previewedRules)
		o.h = s.Admin()
		if p := o.preview(stricterRules); p.Requests != 0 || p.Share != 1 || time.Since(p.From) != 0 || len(p.Sample)+len(p.Rules)+len(p.Missing) != 0 {
			t.Errorf("of nothing: %+v", p)
		}
		random := rand.New(rand.NewPCG(5, 6))
		var events bytes.Buffer
		n := 3000
		if testing.Short() {
			n = 800
		}
		for i := range n {
			time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
			if i == 20 {
				time.Sleep(6 * time.Minute) // what was before is forgotten
				events.Reset()
			}
			check := fmt.Sprintf(`"client":"192.0.2.%d","operation":%q,"cost":%d`, random.IntN(9), []string{"login", "", "read"}[random.IntN(3)], random.IntN(3))
			if random.IntN(2) == 0 {
				check += fmt.Sprintf(`,"attrs":{"user":"u%d"}`, random.IntN(20))
			}
			outcome(t, s, "{"+check+"}")
			fmt.Fprintf(&events, "{%s,\"t_us\":%d}\n", check, time.Now().UnixMicro())
		}
		count := func(file string) (n adminapi.PreviewCounts, by map[string]int64) {
			out, err := simulated(t, file, strings.NewReader(events.String()), new(stint.Memory))
			if err != nil {
				t.Fatal(err)
			}
			by = map[string]int64{}
			for line := range strings.Lines(out) {
				var e struct{ Outcome, Rule string }
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				if e.Outcome == "allowed" || e.Outcome == "unmatched" {
					n.Allowed++
				} else {
					n.Refused++
					by[e.Rule]++
				}
			}
			return n, by
		}
		p := o.preview(stricterRules)
		now, nowBy := count(previewedRules)
		then, thenBy := count(stricterRules)
		if p.Requests != int64(n)-20 || p.Share != 1 || p.Partial || p.Now != now || p.Then != then || now.Refused == 0 || then.Refused <= now.Refused {
			t.Errorf("%+v\nnow %+v, then %+v", p, now, then)
		}
		if len(p.Rules) != 3 {
			t.Errorf("%+v", p.Rules)
		}
		for _, r := range p.Rules {
			if r.Now != nowBy[r.Name] || r.Then != thenBy[r.Name] {
				t.Errorf("%+v, want %d and %d", r, nowBy[r.Name], thenBy[r.Name])
			}
		}
		if len(p.Sample) != 20 {
			t.Errorf("%d cases", len(p.Sample))
		}
		for _, c := range p.Sample {
			if c.Now == "allowed" == (c.Then == "allowed") || c.Rule == "" || !strings.HasPrefix(c.Client, "192.0.2.") {
				t.Errorf("%+v", c)
			}
		}
		same := o.preview(previewedRules)
		if same.Now != same.Then || same.Now != now || len(same.Sample) != 0 {
			t.Errorf("the same rules: %+v", same)
		}
	})
}

// A preview says that it does not know what requests hold, if rules of either set do.
func TestPreviewOfHolds(t *testing.T) {
	const plain, holds = `rules: [{name: a, key: '"all"', limits: [9 per 1h]}]`, `rules: [{name: a, key: '"all"', limits: [1 in_flight]}]`
	for _, c := range []struct{ now, then, want string }{{plain, plain, "[]"}, {plain, holds, "[holds]"}, {holds, plain, "[holds]"}, {holds, holds, "[holds]"}} {
		s := newServer(t, c.now)
		for range 3 {
			callCheck(s, "/v1/check", `{"hold":"60s"}`)
		}
		if p := (operator{t, s.Admin()}).preview(c.then); fmt.Sprint(p.Missing) != c.want || p.Requests != 3 {
			t.Errorf("%s, %s: %v missing of %d requests, want %s", c.now, c.then, p.Missing, p.Requests, c.want)
		}
	}
}

// Through the gateway: headers that rules read are there, others are missing and named. Changes
// made at run time apply to both sides, and nothing that a preview does is in force.
func TestPreviewThroughTheGateway(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(empty))
	defer up.Close()
	to, _ := url.Parse(up.URL)
	const file = `
rules:
  - {name: agents, key: 'request.headers["user-agent"]', limits: [1000 per 1h]}
`
	s := newServer(t, file, everythingTo(to))
	o, gateway := operator{t, s.Admin()}, s.Gateway()
	o.want(201, "POST", "/v1/bans", `{"network":"192.0.2.9"}`)
	send := func(client, agent string) int {
		r := httptest.NewRequest("GET", "/search?q=shoes", nil)
		r.RemoteAddr = client + ":1"
		r.Header.Set("User-Agent", agent)
		r.Header.Set("X-User", "ann")
		w := httptest.NewRecorder()
		gateway.ServeHTTP(w, r)
		return w.Code
	}
	for range 10 {
		if code := send("192.0.2.1", "curl"); code != 200 {
			t.Fatal(code)
		}
	}
	send("192.0.2.9", "curl")
	p := o.preview(`
rules:
  - {name: agents, key: 'request.headers["user-agent"]', limits: [4 per 1h]}
  - {name: users, key: 'request.headers["x-user"]', limits: [1 per 1h]}
  - {name: watched, match: 'request.path == "/search" && request.query["q"] == "shoes"', key: client.ip, limits: [2 per 1h], mode: shadow}
`)
	if !reflect.DeepEqual(p.Missing, []string{`request.headers["x-user"]`}) || p.Requests != 11 || p.Now != (adminapi.PreviewCounts{Allowed: 10, Refused: 1}) || p.Then != (adminapi.PreviewCounts{Allowed: 4, Refused: 7}) {
		t.Errorf("%+v", p)
	}
	if !reflect.DeepEqual(p.Rules, []adminapi.PreviewRule{{Name: "agents", Then: 6}, {Name: "watched", Then: 8, ShadowThen: true}}) {
		t.Errorf("%+v", p.Rules)
	}
	if len(p.Sample) != 3 || p.Sample[0].Path != "/search" || p.Sample[0].Method != "GET" || p.Sample[0].Now != "allowed" || p.Sample[0].Then != "limited" {
		t.Errorf("%+v", p.Sample)
	}
	if code := send("192.0.2.1", "curl"); code != 200 {
		t.Errorf("after the preview: %d", code)
	}
	if again := o.preview(file); again.Requests != 12 || again.Now != again.Then {
		t.Errorf("the preview was recorded: %+v", again)
	}
}

func TestPreviewRefuses(t *testing.T) {
	o, _ := newOperator(t)
	o.want(422, "POST", "/v1/rules/preview", checkText("rules: [{name: x}]"), `"where":"1:9"`)
	o.want(422, "POST", "/v1/rules/preview", checkText("server: {}\nrules: []"), "section server")
	o.want(400, "POST", "/v1/rules/preview", `{"text":"","after":1}`)
	off, s := newOperator(t, func(c *server.Config) { c.Settings.RecentRequests = 0 })
	outcome(t, s, login)
	off.want(409, "POST", "/v1/rules/preview", checkText(adminRules), "recent_requests is off")
}

// A preview of more keys than it counts ends early, and says so.
func TestPreviewIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `rules: [{name: one, key: attrs.user, limits: [1 per 1h fixed_window]}]`)
		for i := range 12_000 {
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
			outcome(t, s, fmt.Sprintf(`{"client":"192.0.2.1","attrs":{"user":"u%d"}}`, i))
		}
		p := operator{t, s.Admin()}.preview(`rules: [{name: one, key: attrs.user, limits: [2 per 1h fixed_window]}]`)
		if !p.Partial || p.Requests < 9_500 || p.Requests > 10_500 || p.Now.Refused != 0 {
			t.Errorf("%+v", p)
		}
	})
}

// Recording allocates nothing.
func BenchmarkDecideRecorded(b *testing.B) {
	for name, bytes := range map[string]int64{"off": 0, "on": 4 << 20} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, benchRules, func(c *server.Config) { c.Settings.RecentRequests = bytes })
			b.ReportAllocs()
			in := from("192.0.2.1")
			for b.Loop() {
				if v, err := s.Decide(context.Background(), in, time.Time{}); err != nil || !v.Allowed {
					b.Fatal(v, err)
				}
			}
		})
	}
}
