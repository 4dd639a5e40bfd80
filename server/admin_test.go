package server_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/internal/openapitest"
)

// adminContract is docs/admin-api.yaml.
var adminContract = sync.OnceValues(func() (*openapitest.Document, error) { return openapitest.Load("../docs/admin-api.yaml") })

// operator calls an admin API. Every answer, and every call that is not refused as
// malformed, must be as the contract says.
type operator struct {
	testing.TB
	h http.Handler
}

func (o operator) call(method, path, body string, headers ...string) (int, string) {
	o.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8090"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:5000"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	o.h.ServeHTTP(w, r)
	o.holdsTo(r, body, w)
	return w.Code, strings.TrimSuffix(w.Body.String(), "\n")
}

// holdsTo reports where an answer, or a request that was taken, breaks the contract.
func (o operator) holdsTo(r *http.Request, body string, w *httptest.ResponseRecorder) {
	o.Helper()
	doc, err := adminContract()
	if err != nil {
		o.Fatal(err)
	}
	if err := doc.Check(&openapitest.Exchange{Request: r, Body: []byte(body), Status: w.Code, Header: w.Header(), Answer: w.Body.Bytes()}); err != nil {
		o.Error(err)
	}
}

// want makes a call and looks for texts in the answer. It returns the answer.
func (o operator) want(status int, method, path, body string, texts ...string) string {
	o.Helper()
	code, answer := o.call(method, path, body)
	if code != status {
		o.Fatalf("%s %s %s: %d %s; want %d", method, path, body, code, answer, status)
	}
	for _, text := range texts {
		if !strings.Contains(answer, text) {
			o.Fatalf("%s %s %s: %s\nlacks %s", method, path, body, answer, text)
		}
	}
	return answer
}

// id is that of the entry that an answer tells of.
func (o operator) id(answer string) string {
	o.Helper()
	var entry struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &entry); err != nil || entry.ID == "" {
		o.Fatalf("no id in %s", answer)
	}
	return entry.ID
}

const adminRules = `
tiers: {gold: attrs.plan == "gold"}
rules:
  - name: login
    match: operation == "login"
    key: client.ip
    limits: [2 per 1m fixed_window]
    penalty: {ban_after: 3, ban_for: 30m}
  - name: api
    match: operation == "api"
    key: '[attrs.user, "x"]'
    limits: [10 per 1m]
    tiers: {gold: {times: 10}}
`

func newOperator(t testing.TB, changes ...func(*server.Config)) (operator, *server.Server) {
	s := newServer(t, adminRules, changes...)
	return operator{t, s.Admin()}, s
}

const login = `{"operation":"login","client":"192.0.2.1"}`

func outcome(t testing.TB, s *server.Server, body string) string {
	t.Helper()
	var answer struct{ Outcome string }
	if w := check(s, body); json.Unmarshal(w.Body.Bytes(), &answer) != nil {
		t.Fatalf("%s: %s", body, w.Body)
	}
	return answer.Outcome
}

func outcomes(t testing.TB, s *server.Server, body string, n int) string {
	t.Helper()
	var all []string
	for range n {
		all = append(all, outcome(t, s, body))
	}
	return strings.Join(all, " ")
}

func expect(t testing.TB, have, want string) {
	t.Helper()
	if have != want {
		t.Fatalf("have %s\nwant %s", have, want)
	}
}

func TestSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s := newOperator(t)
		expect(t, outcomes(t, s, login, 3), "allowed allowed limited")
		o.want(200, "GET", "/v1/switches", "", `"enabled":{"file":true,"set":null,"now":true}`, `{"name":"login","file":"enforce","set":null,"now":"enforce"}`)
		o.want(200, "PATCH", "/v1/switches", `{"rules":{"login":"shadow"},"reason":"too strict"}`, `{"name":"login","file":"enforce","set":"shadow","now":"shadow"}`)
		expect(t, outcomes(t, s, login, 2), "allowed allowed")
		o.want(200, "PATCH", "/v1/switches", `{"rules":{"login":"off"}}`, `"now":"off"`)
		o.want(200, "PATCH", "/v1/switches", `{"enabled":false,"rules":{"login":null}}`, `"enabled":{"file":true,"set":false,"now":false}`, `{"name":"login","file":"enforce","set":null,"now":"enforce"}`)
		expect(t, outcome(t, s, login), "allowed")
		o.want(200, "PATCH", "/v1/switches", `{"enabled":null}`, `"set":null,"now":true`)
		expect(t, outcome(t, s, login), "banned") // the violations in shadow mode were counted, too
		o.want(422, "PATCH", "/v1/switches", `{"rules":{"logon":"off"},"enabled":false}`, "logon", "login")
		o.want(200, "GET", "/v1/switches", "", `"enabled":{"file":true,"set":null,"now":true}`) // not half of it
		o.want(400, "PATCH", "/v1/switches", `{"rules":{"login":"of"}}`, "must be one of enforce, shadow, off")
		o.want(400, "PATCH", "/v1/switches", `{"rules":{"login":"off","login":null}}`, "twice")
		o.want(400, "PATCH", "/v1/switches", `{"enabled":true,"enabled":false}`, "twice")
		o.want(400, "PATCH", "/v1/switches", `{"enable":true}`, "did you mean enabled")
		o.want(400, "PATCH", "/v1/switches", `{}`, "Nothing is to be switched")
	})
}

func TestOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s := newOperator(t)
		const user, other = `{"operation":"api","attrs":{"user":"42"},"cost":8}`, `{"operation":"api","attrs":{"user":"43"},"cost":8}`
		expect(t, outcomes(t, s, user, 2), "allowed limited")
		first := o.want(201, "POST", "/v1/overrides", `{"rule":"api","key":["42","x"],"times":2,"for":"1h","reason":"launch"}`, `"key":["42","x"]`, `"author":"local"`)
		expect(t, outcomes(t, s, user, 2), "allowed limited") // 8 of 20 were used
		expect(t, outcomes(t, s, other, 2), "allowed limited")
		o.want(201, "POST", "/v1/overrides", `{"rule":"api","key":["42","x"],"times":4,"for":"1h"}`, `"replaced":[{"id":"`+o.id(first)+`"`, `"times":2`)
		o.want(404, "DELETE", "/v1/overrides/"+o.id(first), "", "it may have ended") // replaced
		expect(t, outcomes(t, s, user, 4), "allowed allowed allowed limited")
		o.want(201, "POST", "/v1/overrides", `{"rule":"api","tier":"gold","limits":["1000 per 1m"]}`)
		expect(t, outcomes(t, s, `{"operation":"api","attrs":{"user":"44","plan":"gold"},"cost":1000}`, 2), "allowed limited")
		time.Sleep(time.Hour + time.Second)
		expect(t, outcomes(t, s, user, 2), "allowed limited")
		answer := o.want(200, "GET", "/v1/overrides", "", `"tier":"gold"`)
		if strings.Contains(answer, `"42"`) {
			t.Errorf("an override that has ended is listed: %s", answer)
		}
		o.want(422, "POST", "/v1/overrides", `{"rule":"apo","key":"42","times":2}`, "api")
		o.want(422, "POST", "/v1/overrides", `{"rule":"api","key":["42","x"]}`)
		o.want(422, "POST", "/v1/overrides", `{"rule":"api","tier":"silver","times":2}`, "silver")
		o.want(422, "POST", "/v1/overrides", `{"rule":"api","key":["42","x"],"limits":["10 per 1 minute"]}`)
		o.want(422, "POST", "/v1/overrides", `{"rule":"api","key":["42","x"],"times":2,"for":"1h","until":"2100-01-01T00:00:00Z"}`, "cannot both")
		o.want(422, "POST", "/v1/overrides", `{"rule":"api","key":["42","x"],"times":2,"until":"1999-01-01T00:00:00Z"}`, "past")
		o.want(400, "POST", "/v1/overrides", `{"rule":"api","key":"42","tims":2}`, "did you mean times")
	})
}

func TestBansByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s := newOperator(t)
		ban := o.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1","for":"10m","reason":"abuse"}`)
		expect(t, outcome(t, s, login), "banned")
		expect(t, outcome(t, s, `{"operation":"login","client":"192.0.2.2"}`), "allowed")
		o.want(200, "GET", "/v1/bans?rule=login", "", `"by_hand":[{"id":"`+o.id(ban), `"reason":"abuse"`, `"by_penalty":[]`)
		o.want(200, "DELETE", "/v1/bans/"+o.id(ban), "")
		expect(t, outcome(t, s, login), "allowed")
		o.want(404, "DELETE", "/v1/bans/"+o.id(ban), "")

		o.want(201, "POST", "/v1/bans", `{"network":"192.0.2.7/24","for":"10m"}`, `"network":"192.0.2.0/24"`)
		expect(t, outcome(t, s, login), "banned")
		expect(t, outcome(t, s, `{"operation":"other","client":"192.0.2.99"}`), "banned")
		time.Sleep(10*time.Minute + time.Second)
		expect(t, outcome(t, s, login), "allowed")
		o.want(201, "POST", "/v1/bans", `{"network":"192.0.2.1"}`, `"network":"192.0.2.1"`) // for good
		w := check(s, login)
		if !strings.Contains(w.Body.String(), `"retry_after_us":-1`) || !strings.Contains(w.Body.String(), `"ban_left_us":-1`) || w.Header().Get("Retry-After") != "" {
			t.Errorf("a ban for good: %v %s", w.Header(), w.Body)
		}
		o.want(200, "GET", "/v1/status", "", `"code":"ST008"`)
		all := o.want(201, "POST", "/v1/bans", `{"network":"::/0","for":"1m"}`)
		o.want(200, "GET", "/v1/status", "", `"code":"ST009","text":"`+o.id(all))
		o.want(200, "DELETE", "/v1/bans/"+o.id(all), "")
		o.want(200, "POST", "/v1/bans/lift", `{"network":"192.0.2.1/32"}`, `"network":"192.0.2.1"`)
		o.want(404, "POST", "/v1/bans/lift", `{"network":"192.0.2.1"}`)
		expect(t, outcome(t, s, login), "allowed")
		for _, body := range []string{`{"rule":"login"}`, `{"key":"x"}`, `{"rule":"login","key":"x","network":"::1"}`, `{"network":"nonsense"}`, `{}`, `{"rule":"nope","key":"x"}`, `{"rule":"login","key":""}`, `{"rule":"login","key":"x"}`} {
			o.want(422, "POST", "/v1/bans", body)
		}
	})
}

// Others than rules may count in the same store: what they ban is listed, too, and a
// key that no rule gives keeps nothing else from being.
func TestBansOfOthers(t *testing.T) {
	store := &stint.Memory{}
	o, s := newOperator(t, over(store))
	penalty, err := stint.NewPenalty(stint.PenaltySpec{Name: "other", BanAfter: 1, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a\x00b", "\xff"} {
		if _, err := stint.NewLimiter(store).Violate(t.Context(), key, penalty); err != nil {
			t.Fatal(err)
		}
	}
	outcomes(t, s, login, 5)
	o.want(200, "GET", "/v1/bans", "", `"rule":"other","key":"\"a\\x00b\""`, `"rule":"other","key":"\"\\xff\""`, `"rule":"login","key":"192.0.2.1"`)
}

// A penalty's ban is listed, explained and lifted.
func TestBansByPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s := newOperator(t)
		expect(t, outcomes(t, s, login, 6), "allowed allowed limited limited banned banned")
		o.want(200, "GET", "/v1/bans", "", `"by_penalty":[{"rule":"login","key":"192.0.2.1","hashed":false,"left_us":1800000000,"bans":1,"for_us":1800000000}]`)
		o.want(200, "POST", "/v1/explain", login, `"outcome":"banned"`, "banned for another 30m0s")
		o.want(200, "POST", "/v1/keys/show", `{"rule":"login","key":"192.0.2.1"}`, `"penalty":{"violations":0,"bans":1,"ban_left_us":1800000000}`)
		o.want(200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1","reason":"a customer"}`, `"by_penalty":[{"rule":"login","key":"192.0.2.1"`)
		expect(t, outcome(t, s, login), "limited")
		// Lifted at its second violation, it has them forgotten, and no ban; then there is nothing.
		o.want(200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1"}`, `{"by_hand":[],"by_penalty":[]}`)
		o.want(200, "POST", "/v1/keys/show", `{"rule":"login","key":"192.0.2.1"}`, `"penalty":{"violations":0,"bans":0,"ban_left_us":0}`)
		o.want(404, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1"}`, "neither a ban nor a violation")
	})
}

func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s := newOperator(t)
		outcomes(t, s, `{"operation":"api","attrs":{"user":"42"},"cost":8}`, 1)
		o.want(200, "POST", "/v1/keys/show", `{"rule":"api","key":["42","x"]}`, `"limits":[{"limit":"10 per 1m","capacity":10,"used":8,"remaining":2,"reset_after_us":48000000,"charged_ago_us":0,"expires_in_us":48000000}]`)
		o.want(200, "POST", "/v1/keys/show", `{"rule":"api","key":["42","x"],"tier":"gold"}`, `"capacity":100,"used":0,"remaining":100`)
		// Tiers count apart; all are found, and reset.
		outcomes(t, s, `{"operation":"api","attrs":{"user":"42","plan":"gold"},"cost":30}`, 1)
		o.want(200, "POST", "/v1/keys/show", `{"rule":"api","key":["42","x"]}`, `"limits":[{"limit":"10 per 1m","capacity":10,"used":8,"remaining":2,"reset_after_us":48000000,"charged_ago_us":0,"expires_in_us":48000000},{"tier":"gold","limit":"100 per 1m","capacity":100,"used":30,"remaining":70,"reset_after_us":18000000,"charged_ago_us":0,"expires_in_us":18000000}]`)
		o.want(200, "POST", "/v1/keys/refund", `{"rule":"api","key":["42","x"],"tier":"gold","cost":10}`, `"tier":"gold","limits":[{"limit":"100 per 1m","capacity":100,"used":20,"remaining":80,"reset_after_us":12000000,"charged_ago_us":0,"expires_in_us":12000000}]`)
		o.want(200, "POST", "/v1/keys/refund", `{"rule":"api","key":["42","x"],"cost":3}`, `"used":5,"remaining":5`)
		o.want(200, "POST", "/v1/keys/reset", `{"rule":"api","key":["42","x"]}`, `"limits":[{"limit":"10 per 1m","capacity":10,"used":0,"remaining":10,"reset_after_us":0}]`)
		o.want(200, "POST", "/v1/keys/show", `{"rule":"api","key":["42","x"],"tier":"gold"}`, `"capacity":100,"used":0,"remaining":100`)
		outcomes(t, s, `{"operation":"api","attrs":{"user":"slow"},"cost":8}`, 1)
		time.Sleep(6 * time.Second)
		outcomes(t, s, `{"operation":"api","attrs":{"user":"slow"},"cost":8}`, 1) // which is refused
		o.want(200, "POST", "/v1/keys/show", `{"rule":"api","key":["slow","x"]}`, `"used":7,"remaining":3,"reset_after_us":42000000,"charged_ago_us":6000000,"expires_in_us":42000000}]`)
		o.want(422, "POST", "/v1/keys/refund", `{"rule":"api","key":["42","x"],"cost":0}`)
		o.want(422, "POST", "/v1/keys/show", `{"rule":"ap","key":"42"}`, "did you mean api")
		o.want(422, "POST", "/v1/keys/show", `{"rule":"api","key":["42","x"],"tier":"glod"}`, "did you mean gold")
		o.want(400, "POST", "/v1/keys/show", `{"rule":"api"}`)
		for path, rest := range map[string]string{"keys/show": "", "keys/reset": "", "keys/refund": `,"cost":1`, "bans": "", "bans/lift": "", "overrides": `,"times":2`} {
			for _, key := range []string{`"42"`, `["42"]`, `["42","x","y"]`} {
				o.want(422, "POST", "/v1/"+path, `{"rule":"api","key":`+key+rest+`}`, "the rule counts by a list of 2")
			}
		}
	})
}

// Where a rule counts by a list, a string is the list with that one part.
func TestOnePartKeys(t *testing.T) {
	s := newServer(t, "rules:\n  - {name: one, key: '[attrs.user]', limits: [3 per 1m], penalty: {ban_after: 2, ban_for: 1h}}\n  - {name: text, key: operation, limits: [9 per 1m]}\n")
	o := operator{t, s.Admin()}
	const ann = `{"attrs":{"user":"ann"}}`
	expect(t, outcomes(t, s, ann, 3), "allowed allowed allowed")
	for _, key := range []string{`"ann"`, `["ann"]`} {
		call := `{"rule":"one","key":` + key
		o.want(200, "POST", "/v1/keys/show", call+`}`, `"key":["ann"]`, `"used":3`)
		o.want(201, "POST", "/v1/bans", call+`}`, `"key":["ann"]`)
		expect(t, outcome(t, s, ann), "banned")
		o.want(200, "POST", "/v1/bans/lift", call+`}`, `"by_hand":[{"id"`)
		expect(t, outcomes(t, s, ann, 2), "limited banned")
		o.want(200, "POST", "/v1/bans/lift", call+`}`, `"by_penalty":[{"rule":"one","key":["ann"]`)
	}
	for _, key := range []string{`"ann"`, `["ann"]`} {
		o.want(201, "POST", "/v1/overrides", `{"rule":"one","key":`+key+`,"times":2}`, `"key":["ann"]`)
	}
	if answer := o.want(200, "GET", "/v1/overrides", ""); strings.Count(answer, `"id"`) != 1 {
		t.Errorf("the second does not replace the first: %s", answer)
	}
	expect(t, outcome(t, s, ann), "allowed")
	o.want(200, "POST", "/v1/keys/refund", `{"rule":"one","key":"ann","cost":1}`, `"used":3`)
	o.want(200, "POST", "/v1/keys/reset", `{"rule":"one","key":"ann"}`, `"used":0`)
	o.want(200, "POST", "/v1/keys/show", `{"rule":"text","key":"ann"}`, `"key":"ann"`)
	o.want(422, "POST", "/v1/bans", `{"rule":"text","key":["ann"]}`, "which is not a list")
	for _, key := range []string{`"ann\u0000"`, `"a\u0000b"`} {
		o.want(400, "POST", "/v1/keys/show", `{"rule":"one","key":`+key+`}`, "NUL")
	}
}

func TestLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s := newOperator(t)
		blocked := o.want(201, "POST", "/v1/lists/blocklist", `{"match":"operation == \"login\"","reason":"attack"}`)
		expect(t, outcome(t, s, login), "blocked")
		o.want(200, "POST", "/v1/explain", login, `"outcome":"blocked"`)
		o.want(201, "POST", "/v1/lists/safelist", `{"network":"192.0.2.0/24","for":"1h"}`)
		o.want(201, "POST", "/v1/lists/blocklist", `{"network":"192.0.2.0/25","for":"10m"}`, "the safelist comes before the blocklist")
		o.want(200, "GET", "/v1/lists/blocklist", "", "the safelist comes before the blocklist")
		expect(t, outcome(t, s, login), "allowed")
		o.want(200, "GET", "/v1/lists/blocklist", "", `"reason":"attack"`)
		o.want(200, "DELETE", "/v1/lists/blocklist/"+o.id(blocked), "")
		time.Sleep(2 * time.Hour)
		o.want(200, "GET", "/v1/lists/safelist", "", `{"entries":[]}`)
		o.want(422, "POST", "/v1/lists/blocklist", `{"match":"operation = 3"}`)
		o.want(422, "POST", "/v1/lists/blocklist", `{}`)
		o.want(404, "POST", "/v1/lists/greylist", `{"network":"::1"}`)
		o.want(404, "DELETE", "/v1/lists/safelist/none", "")
	})
}

func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s := newOperator(t)
		outcomes(t, s, login, 3)
		before := o.want(200, "POST", "/v1/explain", login, `"outcome":"limited","rule":"login"`,
			"2 of 2 used, 0 left; refuses, would allow in 1m0s", "penalty: 1 violation (banned at 3)", "Rule api does not apply")
		expect(t, o.want(200, "POST", "/v1/explain", login), before) // it takes nothing
		o.want(200, "POST", "/v1/explain", `{"operation":"login","client":"192.0.2.1","cost":3}`, `"retry_after_us":-1`, "more than the limit allows at once")
		o.want(200, "POST", "/v1/explain", `{"operation":"api","attrs":{"user":"42","plan":"gold"}}`, `"outcome":"allowed"`, `"tier":"gold"`, "100 per 1m")
		o.want(400, "POST", "/v1/explain", `{"operations":"api"}`, "did you mean operation")
		expect(t, outcomes(t, s, login, 3), "limited banned banned")
	})
}

func TestAdminRefusals(t *testing.T) {
	o, _ := newOperator(t)
	for _, c := range []struct {
		status       int
		method, path string
		body, kind   string
		text         string
	}{
		{404, "GET", "/v1/nothing", "", "", "There is no such path"},
		{405, "PUT", "/v1/bans", "{}", "application/json", "The methods here are GET, HEAD, POST"},
		{415, "POST", "/v1/bans", "{}", "text/plain", "application/json"},
		{415, "POST", "/v1/bans", "{}", "", "application/json"},
		{400, "POST", "/v1/bans", "", "application/json", "empty"},
		{400, "POST", "/v1/bans", "[]", "application/json", "want an object"},
		{400, "POST", "/v1/bans", "{\"rule\":\"\xff\"}", "application/json", "UTF-8"},
		{400, "POST", "/v1/bans", strings.Repeat("[", 20_000), "application/json", "cannot be read"},
		{400, "POST", "/v1/bans", `{"reason":"` + strings.Repeat("x", 501) + `"}`, "application/json", "one line of at most 500 bytes"},
		{400, "POST", "/v1/bans", `{"reason":"a\nb"}`, "application/json", "one line"},
		{413, "POST", "/v1/bans", `{"reason":"` + strings.Repeat("x", 9<<20) + `"}`, "application/json", "larger"},
		{400, "DELETE", "/v1/bans/x?reason=" + strings.Repeat("x", 501), "", "", "The parameter reason must be one line of at most 500 bytes"},
		{400, "DELETE", "/v1/overrides/x?reason=a%0Ab", "", "", "one line"},
		{400, "DELETE", "/v1/lists/safelist/x?reason=%ff", "", "", "one line"},
		{400, "DELETE", "/v1/bans/x?reason=a&reason=b", "", "", "twice"},
		{400, "DELETE", "/v1/bans/x?reason=%", "", "", "cannot be read"},
		{404, "DELETE", "/v1/bans/x?reason=" + strings.Repeat("x", 500), "", "", "no ban by hand"},
		{400, "GET", "/v1/bans?limit=0", "", "", "from 1 to 10000"},
		{404, "GET", "/v1/rules/versions/x", "", "", "numbers from 1"},
		{409, "PUT", "/v1/rules", `{"text":"rules: []","after":0}`, "application/json", "takes its rules from its file"},
	} {
		status, answer := o.call(c.method, c.path, c.body, "Content-Type", c.kind)
		if status != c.status || !strings.Contains(answer, c.text) {
			t.Errorf("%s %s %.60s: %d %.300s\nwant %d %s", c.method, c.path, c.body, status, answer, c.status, c.text)
		}
	}
}

// Every change leaves a line; what only looks leaves none.
func TestAudit(t *testing.T) {
	var log bytes.Buffer
	o, _ := newOperator(t, func(c *server.Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	ban := o.id(o.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.9","reason":"why"}`))
	over := o.id(o.want(201, "POST", "/v1/overrides", `{"rule":"login","key":"192.0.2.9","times":2}`))
	safe := o.id(o.want(201, "POST", "/v1/lists/safelist", `{"network":"::1"}`))
	o.want(200, "PATCH", "/v1/switches", `{"enabled":false}`)
	o.want(200, "POST", "/v1/keys/reset", `{"rule":"login","key":"192.0.2.9"}`)
	o.want(200, "POST", "/v1/keys/refund", `{"rule":"login","key":"192.0.2.9","cost":1}`)
	o.want(200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.9"}`)
	o.want(200, "DELETE", "/v1/overrides/"+over+"?reason=the+fair+is+over", "")
	o.want(200, "DELETE", "/v1/lists/safelist/"+safe+"?reason=sold", "")
	o.want(404, "DELETE", "/v1/bans/"+ban, "")
	ban = o.id(o.want(201, "POST", "/v1/bans", `{"network":"::1"}`))
	o.want(200, "DELETE", "/v1/bans/"+ban+"?reason=oops", "")
	o.want(404, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.9"}`)
	for _, path := range []string{"/v1/status", "/v1/rules", "/v1/switches", "/v1/overrides", "/v1/bans", "/v1/lists/safelist", "/v1/rules/versions"} {
		o.want(200, "GET", path, "")
	}
	var actions, reasons []string
	for line := range strings.Lines(log.String()) {
		var l struct{ Msg, Who, From, Action, Reason, Before, After string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Msg == "audit" {
			actions, reasons = append(actions, l.Action), append(reasons, l.Reason)
			if l.Who != "local" || l.From != "127.0.0.1:5000" || l.Before+l.After == "" {
				t.Errorf("%s", line)
			}
		}
	}
	expect(t, strings.Join(actions, ", "), "ban, add override, add to safelist, switch, reset key, refund, lift bans, remove override, take off safelist, ban, lift ban")
	expect(t, strings.Join(reasons, ","), "why,,,,,,,the fair is over,sold,,oops")
}
