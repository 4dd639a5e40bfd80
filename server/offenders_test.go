package server_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
)

const offending = `
blocklist: ['client.ip in cidr("203.0.113.0/24")']
rules:
  - {name: login, match: 'request.path.is("/login")', key: client.ip, limits: [2 per 1h, 9 per 24h], penalty: {ban_after: 2, ban_for: 30m}}
  - {name: watch, key: client.ip, penalty: {on_status: [401], ban_after: 9, ban_for: 1h}}
  - {name: user, key: '[request.headers["x-user"], client.ip]', cost: '3', limits: [7 per 1h]}
  - {name: trial, mode: shadow, key: client.ip, limits: [1 per 1h]}
`

// visit sends a request to a gateway and returns the status.
func visit(s *server.Server, client, path, user string) int {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = client
	if user != "" {
		r.Header.Set("X-User", user)
	}
	w := httptest.NewRecorder()
	s.Gateway().ServeHTTP(final{w}, r)
	return w.Code
}

// offenders are those that the admin API lists, as words.
func offenders(o operator, query string) string {
	o.Helper()
	var j adminapi.Offenders
	if err := json.Unmarshal([]byte(o.want(200, "GET", "/v1/offenders?"+query, "")), &j); err != nil {
		o.Fatal(err)
	}
	all := []string{fmt.Sprint(j.Total, ":")}
	for _, f := range j.Offenders {
		name := f.Name
		if f.Key != "" {
			name = f.Rule + " " + f.Key.String()
		}
		if f.Hashed {
			name = "a hash"
		}
		all = append(all, fmt.Sprintf("%s=%d", name, f.Count))
	}
	return strings.Join(all, " ")
}

// What the gateway and the check API decide is counted, by what was refused, charged and
// violated; what is in shadow mode, or not charged, is not.
func TestOffenders(t *testing.T) {
	s := newServer(t, offending, everythingTo(upstream(t, asTold)))
	o := operator{t, s.Admin()}
	const ann, eve, net = "192.0.2.1:1000", "192.0.2.66:1000", "203.0.113.5:1"
	var got []int
	for range 6 {
		got = append(got, visit(s, eve, "/login", ""))
	}
	got = append(got, visit(s, ann, "/a/200", "ann"), visit(s, ann, "/a/200", "ann"), visit(s, ann, "/a/200", "ann"), visit(s, ann, "/401", ""), visit(s, net, "/login", ""))
	if w := check(s, `{"client":"192.0.2.1","request":{"path":"/login"},"cost":2}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if want := "[200 200 429 429 429 429 200 200 429 401 403]"; fmt.Sprint(got) != want {
		t.Fatalf("%v, want %s", got, want)
	}
	for query, want := range map[string]string{
		"":                                    `5: login 192.0.2.66=4 user ["ann","192.0.2.1"]=1`,
		"of=rules":                            "5: login=4 user=1",
		"of=paths":                            "6: /login=5 /a/200=1",
		"of=clients":                          "6: 192.0.2.66=4 192.0.2.1=1 203.0.113.5=1",
		"by=use":                              `10: user ["ann","192.0.2.1"]=6 login 192.0.2.1=2 login 192.0.2.66=2`,
		"by=use&of=rules":                     "10: user=6 login=4",
		"by=use&of=paths":                     "10: /a/200=6 /login=4",
		"by=use&of=clients":                   "10: 192.0.2.1=8 192.0.2.66=2",
		"by=violations":                       "3: login 192.0.2.66=2 watch 192.0.2.1=1",
		"by=violations&of=paths":              "3: /login=2 /401=1",
		"by=violations&of=clients&since=14d":  "3: 192.0.2.66=2 192.0.2.1=1",
		"rule=user&of=keys":                   `5: user ["ann","192.0.2.1"]=1`,
		"rule=watch":                          "5:",
		"of=clients&limit=1&since=30m":        "6: 192.0.2.66=4",
		"contains=.0.2.6":                     "5: login 192.0.2.66=4",
		"contains=ann&rule=user":              `5: user ["ann","192.0.2.1"]=1`,
		"of=paths&contains=/a/&limit=1":       "6: /a/200=1",
		"contains=nobody":                     "5:",
		"by=violations&of=rules&since=1h&x=y": "3: login=2 watch=1",
	} {
		if have := offenders(o, query); have != want {
			t.Errorf("%s: %s, want %s", query, have, want)
		}
	}
	for query, want := range map[string]int{
		"rule=login&key=192.0.2.66":                      4,
		"rule=user&key=" + `["ann","192.0.2.1"]`:         1,
		"of=keys&by=violations&rule=watch&key=192.0.2.1": 1,
		"of=clients&name=192.0.2.66":                     4,
		"of=paths&name=/login":                           5,
		"of=rules":                                       5, // of all together
		"of=rules&by=use&name=user":                      6,
		"of=clients&name=192.0.2.99":                     0,
	} {
		var j adminapi.History
		text := o.want(200, "GET", "/v1/offenders/history?"+strings.NewReplacer(`"`, "%22", "[", "%5B").Replace(query), "")
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, day := range j.Weekdays {
			for _, n := range day {
				sum += n
			}
		}
		if sum != int64(want) || want > 0 && (len(j.Hours) != 1 || j.Hours[0].Count != sum) {
			t.Errorf("%s: %s, want %d", query, text, want)
		}
	}
}

func TestOffendersRefusals(t *testing.T) {
	o := operator{t, newServer(t, offending).Admin()}
	for path, want := range map[string]string{
		"/v1/offenders?of=users":                             "400 The parameter of must be one of keys, rules, paths, clients.",
		"/v1/offenders?by=":                                  "400 The parameter by must be one of",
		"/v1/offenders?by=hits":                              "400 The parameter by must be one of refusals, use, violations.",
		"/v1/offenders?since=15d":                            "400 The parameter since must be",
		"/v1/offenders?since=-1h":                            "400 The parameter since must be",
		"/v1/offenders?since=now":                            "400 The parameter since must be",
		"/v1/offenders?limit=0":                              "400 The parameter limit must be a number",
		"/v1/offenders?contains=" + strings.Repeat("x", 257): "400 The parameter contains must be at most 256 bytes long.",
		"/v1/offenders?rule=login&of=paths":                  "400 The parameter rule is for of=keys.",
		"/v1/offenders?rule=logn":                            "422 did you mean login?",
		"/v1/offenders/history":                              "400 The parameters rule and key must be given",
		"/v1/offenders/history?rule=login":                   "400 The parameters rule and key must be given",
		"/v1/offenders/history?rule=login&key=a&name=b":      "400 The parameters rule and key must be given",
		"/v1/offenders/history?of=paths":                     "400 The parameter name must be given for of=paths",
		"/v1/offenders/history?of=paths&name=/&rule=r":       "400 The parameter name must be given for of=paths",
		"/v1/offenders/history?rule=login&key=" + "%5B1%5D":  "400 The parameter key",
	} {
		code, answer := o.call("GET", path, "")
		if status, text, _ := strings.Cut(want, " "); fmt.Sprint(code) != status || !strings.Contains(answer, text) {
			t.Errorf("%s: %d %s, want %s", path, code, answer, want)
		}
	}
	off := operator{t, newServer(t, offending, func(c *server.Config) { c.Settings.Offenders = 0 }).Admin()}
	off.want(404, "GET", "/v1/offenders", "", "server.offenders is 0")
	off.want(404, "GET", "/v1/offenders/history?of=paths&name=/", "", "server.offenders is 0")
}

// Two instances on a real Redis: what one has counted, the other shows; with privacy, keys and
// clients are hashed alike, and their history is found by the hash and by the key.
func TestOffendersOfAFleet(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t).URL()
	for _, private := range []bool{false, true} {
		instance := func() *server.Server {
			store := openRedis(t, address, fmt.Sprint("private-", private))
			s := newServer(t, offending, over(store), everythingTo(upstream(t, asTold)), func(c *server.Config) {
				c.Documents, c.Settings.HashKeys, c.Settings.Store = store.Documents(), private, address
			})
			s.Follow(t.Context())
			return s
		}
		a, b := instance(), instance()
		for range 4 {
			visit(a, "192.0.2.66:1", "/login", "")
			visit(b, "192.0.2.66:1", "/login", "")
		}
		a.Close() // which reports
		o := operator{t, b.Admin()}
		want := "6: login 192.0.2.66=6"
		if private {
			want = "6: a hash=6"
		}
		if got := offenders(o, ""); got != want {
			t.Errorf("private %v: %s, want %s", private, got, want)
		}
		var j adminapi.Offenders
		if err := json.Unmarshal([]byte(o.want(200, "GET", "/v1/offenders", "", `"instances":2`)), &j); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"192.0.2.66", string(j.Offenders[0].Key)} {
			o.want(200, "GET", "/v1/offenders/history?rule=login&key="+url.QueryEscape(key), "", `"count":6`)
		}
		if got := offenders(o, "of=clients"); private != !strings.Contains(got, "192.0.2.66") {
			t.Errorf("private %v: %s", private, got)
		}
	}
}

// A list of one process does not begin before it, and one that lacks what the fleet has reported says
// so, in place of a claim to be exact.
func TestOffendersTellWhatIsMissing(t *testing.T) {
	began := time.Now()
	alone := newServer(t, offending)
	alone.Follow(t.Context())
	read := func(o operator) (j adminapi.Offenders) {
		t.Helper()
		if err := json.Unmarshal([]byte(o.want(200, "GET", "/v1/offenders?since=1h", "")), &j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	if j := read(operator{t, alone.Admin()}); j.Since.Before(began.Add(-time.Second)) || j.Missing != "" {
		t.Errorf("alone: since %s, %s before it began; missing %q", j.Since, began.Sub(j.Since), j.Missing)
	}
	redis := redistest.Start(t)
	store := openRedis(t, redis.URL())
	shared := newServer(t, offending, over(store), everythingTo(upstream(t, asTold)), func(c *server.Config) {
		c.Documents, c.Settings.Store = store.Documents(), redis.URL()
	})
	shared.Follow(t.Context())
	o := operator{t, shared.Admin()}
	if j := read(o); j.Since.After(began) || j.Missing != "" {
		t.Errorf("of a fleet: since %s, missing %q", j.Since, j.Missing)
	}
	redis.Kill()
	await.Until(t, "the lists of others to be too old", func() bool {
		return strings.Contains(read(o).Missing, "this is what this instance has counted")
	})
}
