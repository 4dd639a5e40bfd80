package rules_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// with is s with the controls of a JSON document, which have no problems.
func with(t testing.TB, s *rules.Set, document string) *rules.Set {
	t.Helper()
	var c rules.Controls
	if err := json.Unmarshal([]byte(document), &c); err != nil {
		t.Fatal(err)
	}
	w, problems := s.With(&c)
	if len(problems) > 0 {
		t.Fatalf("%s: %+v", document, problems)
	}
	return w
}

const controlled = `
safelist: [attrs.vip == true]
blocklist: [attrs.evil == true]
tiers:
  gold: attrs.plan == "gold"
  silver: attrs.plan == "silver"
  odd: int(attrs.seats) % 2 == 1
rules:
  - {name: api, key: attrs.user, limits: [10 per 1m], tiers: {gold: {times: 2}}}
  - {name: ip, match: operation != "quiet", key: client.ip, limits: [7 per 1m], mode: shadow}
  - {name: pair, match: operation == "pair", key: '[attrs.user, operation]', limits: [3 per 1m], cost: 'int(attrs.cost)'}
`

func TestWith(t *testing.T) {
	s := parse(t, controlled)
	const plain = "api: 10 per 1m; ip: 7 per 1m"
	for _, c := range []struct {
		what, controls string
		in             *rules.Input
		want           string
	}{
		{"nothing", `{}`, user("get"), plain},
		{"the kill switch", `{"enabled":false}`, user("get"), ""},
		{"modes", `{"modes":{"api":"off","ip":"enforce"}}`, user("get"), "ip: 7 per 1m"},

		{"a network on the safelist", `{"safelist":[{"id":"a","network":"203.0.113.0/24"}]}`, user("get"), "safe"},
		{"an address", `{"safelist":[{"id":"a","network":"::ffff:203.0.113.1"}]}`, user("get"), "safe"},
		{"another network", `{"safelist":[{"id":"a","network":"203.0.112.0/24"}]}`, user("get"), plain},
		{"a condition", `{"blocklist":[{"id":"a","match":"operation == \"x\""}]}`, user("x"), "blocked"},
		{"it reads a value that is missing; test for it with has()", `{"blocklist":[{"id":"a","match":"attrs.x == 1"}]}`, user("x"), plain},
		{"one that fails", `{"blocklist":[{"id":"a","match":"int(attrs.user) == 1"}]}`, user("get"),
			`rules: bad request: blocklist entry "a": type conversion error from 'string' to 'int'`},
		{"an added safelist entry goes before the file's blocklist", `{"safelist":[{"id":"a","match":"true"}]}`, user("get", "evil", true), "safe"},
		{"the file's safelist before an added block", `{"blocklist":[{"id":"a","match":"true"}]}`, user("get", "vip", true), "safe"},

		{"a ban of a network", `{"bans":[{"id":"a","network":"203.0.113.0/24"}]}`, user("get"), "ban a by network for 2562047h47m16.854775807s, 0 asks"},
		{"the safelist goes before it", `{"bans":[{"id":"a","network":"203.0.113.0/24"}]}`, user("get", "vip", true), "safe"},
		{"and the blocklist", `{"bans":[{"id":"a","network":"203.0.113.0/24"}]}`, user("get", "evil", true), "blocked"},
		{"of two networks the longer ban", `{"bans":[{"id":"a","network":"203.0.113.1","until":"2000-01-01T01:00:00Z"},{"id":"b","network":"203.0.0.0/16","until":"2000-01-01T02:00:00Z"}]}`,
			user("get"), "ban b by network for 2h0m0s, 0 asks"},
		{"and of two of one network", `{"bans":[{"id":"a","network":"203.0.113.1","until":"2000-01-01T03:00:00Z"},{"id":"b","network":"203.0.113.1/32","until":"2000-01-01T02:00:00Z"}]}`,
			user("get"), "ban a by network for 3h0m0s, 0 asks"},
		{"a network decides before any rule is looked at", `{"bans":[{"id":"a","network":"0.0.0.0/0","until":"2000-01-01T01:00:00Z"},{"id":"b","rule":"api","key":"u"}]}`,
			user("pair", "cost", "x"), "ban a by network for 1h0m0s, 0 asks"},

		{"a ban of a key", `{"bans":[{"id":"a","rule":"api","key":"u","until":"2000-01-01T01:00:00Z"}]}`, user("get"), "ban a by api for 1h0m0s, 0 asks"},
		{"of another key", `{"bans":[{"id":"a","rule":"api","key":"v"}]}`, user("get"), plain},
		{"of a list", `{"bans":[{"id":"a","rule":"pair","key":["u","pair"],"until":"2000-01-01T01:00:00Z"}]}`, user("pair"), "ban a by pair for 1h0m0s, 0 asks"},
		{"of a list that begins as it does", `{"bans":[{"id":"a","rule":"pair","key":["u","other"]}]}`, user("pair", "cost", int64(2)), plain + "; pair: 3 per 1m"},
		{"under a rule in shadow it refuses nothing", `{"bans":[{"id":"a","rule":"ip","key":"203.0.113.1"}]}`, user("get"), plain},
		{"under a rule that is off neither", `{"modes":{"api":"off"},"bans":[{"id":"a","rule":"api","key":"u"}]}`, user("get"), "ip: 7 per 1m"},
		{"under one that was in shadow", `{"modes":{"ip":"enforce"},"bans":[{"id":"a","rule":"ip","key":"203.0.113.1"}]}`, user("get"), "ban a by ip for 2562047h47m16.854775807s, 0 asks"},
		{"of the bans of several rules the longest", `{"modes":{"ip":"enforce"},"bans":[{"id":"a","rule":"api","key":"u","until":"2000-01-01T01:00:00Z"},{"id":"b","rule":"ip","key":"203.0.113.1","until":"2000-01-01T02:00:00Z"}]}`,
			user("get"), "ban b by ip for 2h0m0s, 0 asks"},
		{"of a key's two bans the longer", `{"bans":[{"id":"a","rule":"api","key":"u","until":"2000-01-01T02:00:00Z"},{"id":"b","rule":"api","key":"u","until":"2000-01-01T01:00:00Z"}]}`,
			user("get"), "ban a by api for 2h0m0s, 0 asks"},

		{"more for one key", `{"overrides":[{"id":"a","rule":"api","key":"u","times":3}]}`, user("quiet"), "api: 30 per 1m"},
		{"times what its tier gives", `{"overrides":[{"id":"a","rule":"api","key":"u","times":3}]}`, user("quiet", "plan", "gold"), "api: 60 per 1m"},
		{"or other limits", `{"overrides":[{"id":"a","rule":"api","key":"u","limits":["1 per 1h","2 per 1d"]}]}`, user("quiet", "plan", "gold"), "api: 1 per 1h; api: 2 per 24h"},
		{"for a tier", `{"overrides":[{"id":"a","rule":"api","tier":"gold","times":3}]}`, user("quiet", "plan", "gold"), "api: 60 per 1m"},
		{"and not for others", `{"overrides":[{"id":"a","rule":"api","tier":"gold","times":3}]}`, user("quiet"), "api: 10 per 1m"},
		{"for a tier that the rule does not name", `{"overrides":[{"id":"a","rule":"api","tier":"silver","times":3}]}`, user("quiet", "plan", "silver"), "api: 30 per 1m"},
		{"which comes after those it names", `{"overrides":[{"id":"a","rule":"api","tier":"odd","times":3}]}`, user("quiet", "plan", "gold", "seats", int64(3)), "api: 20 per 1m"},
		{"and whose condition may fail", `{"overrides":[{"id":"a","rule":"api","tier":"odd","times":3}]}`, user("quiet", "seats", "x"),
			`rules: bad request: tier "odd": type conversion error from 'string' to 'int'`},
		{"for two such tiers, in the file's order", `{"overrides":[{"id":"a","rule":"api","tier":"odd","times":3},{"id":"b","rule":"api","tier":"silver","times":4}]}`,
			user("quiet", "plan", "silver", "seats", int64(3)), "api: 40 per 1m"},
		{"the one for the key counts", `{"overrides":[{"id":"a","rule":"api","key":"u","times":3},{"id":"b","rule":"api","tier":"gold","times":4}]}`, user("quiet", "plan", "gold"), "api: 60 per 1m"},
		{"and for two keys alike", `{"overrides":[{"id":"a","rule":"api","key":"v","times":3},{"id":"b","rule":"api","key":"u","times":3}]}`, user("quiet"), "api: 30 per 1m"},
		{"or with the same limits", `{"overrides":[{"id":"a","rule":"api","key":"v","limits":["1 per 1h"]},{"id":"b","rule":"api","key":"u","limits":["1 per 1h"]}]}`, user("quiet", "plan", "gold"), "api: 1 per 1h"},
		{"of two for a key the later", `{"overrides":[{"id":"a","rule":"api","key":"u","times":3},{"id":"b","rule":"api","key":"u","times":4}]}`, user("quiet"), "api: 40 per 1m"},
		{"of two for a tier the later", `{"overrides":[{"id":"a","rule":"api","tier":"silver","times":3},{"id":"b","rule":"api","tier":"silver","times":4}]}`, user("quiet", "plan", "silver"), "api: 40 per 1m"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // it is 2000-01-01, midnight
				if got := limited(with(t, s, c.controls), c.in); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			})
		})
	}
	if got := limited(s, user("get")); got != plain {
		t.Errorf("the set itself was changed: %s", got)
	}
}

// Everything that has an end comes to it without anyone doing anything.
func TestControlsEnd(t *testing.T) {
	s := parse(t, controlled)
	for _, c := range []struct{ what, controls, before, after string }{
		{"listed network", `{"safelist":[{"id":"a","network":"203.0.113.0/24",UNTIL}]}`, "safe", "api: 10 per 1m"},
		{"listed condition", `{"blocklist":[{"id":"a","match":"true",UNTIL}]}`, "blocked", "api: 10 per 1m"},
		{"listed condition that fails", `{"blocklist":[{"id":"a","match":"int(attrs.user) == 1",UNTIL}]}`,
			`rules: bad request: blocklist entry "a": type conversion error from 'string' to 'int'`, "api: 10 per 1m"},
		{"ban of a network", `{"bans":[{"id":"a","network":"203.0.113.0/24",UNTIL}]}`, "ban a by network for 1s, 0 asks", "api: 10 per 1m"},
		{"ban of a key", `{"bans":[{"id":"a","rule":"api","key":"u",UNTIL}]}`, "ban a by api for 1s, 0 asks", "api: 10 per 1m"},
		{"override", `{"overrides":[{"id":"a","rule":"api","key":"u","times":3,UNTIL}]}`, "api: 30 per 1m", "api: 10 per 1m"},
		{"override before another", `{"overrides":[{"id":"b","rule":"api","key":"u","times":2},{"id":"a","rule":"api","key":"u","times":3,UNTIL}]}`, "api: 30 per 1m", "api: 20 per 1m"},
		{"override of a tier", `{"overrides":[{"id":"a","rule":"api","tier":"silver","times":3,UNTIL}]}`, "api: 30 per 1m", "api: 10 per 1m"},
		{"override of a tier before another's", `{"overrides":[{"id":"b","rule":"api","tier":"odd","times":2},{"id":"a","rule":"api","tier":"silver","times":3,UNTIL}]}`, "api: 30 per 1m", "api: 20 per 1m"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				until := `"until":"2000-01-01T01:00:00Z"`
				w := with(t, s, strings.ReplaceAll(c.controls, "UNTIL", until))
				in := user("quiet", "plan", "silver", "seats", int64(1))
				time.Sleep(time.Hour - time.Second)
				if got := limited(w, in); got != c.before {
					t.Errorf("before: got %s, want %s", got, c.before)
				}
				time.Sleep(time.Second)
				if got := limited(w, in); got != c.after {
					t.Errorf("after: got %s, want %s", got, c.after)
				}
			})
		})
	}
}

// With on a set with controls replaces them.
func TestWithTwice(t *testing.T) {
	s := parse(t, controlled)
	w := with(t, with(t, s, `{"modes":{"api":"off"},"enabled":false}`), `{"modes":{"ip":"off"}}`)
	if got := limited(w, user("get")); got != "api: 10 per 1m" {
		t.Errorf("got %s", got)
	}
	for _, none := range []*rules.Controls{nil, {}} {
		if back, _ := w.With(none); back != s {
			t.Error("without controls it is not the file's set")
		}
		if same, _ := s.With(none); same != s {
			t.Error("no controls made another set")
		}
	}
	var c rules.Controls
	c.Bans = []rules.Ban{{Note: rules.Note{ID: "a"}, Rule: "api", Key: "u"}}
	w, _ = s.With(&c)
	c.Bans[0].ID = "changed"
	if got := limited(w, user("get")); !strings.HasPrefix(got, "ban a ") {
		t.Errorf("the set shares the controls it was given: %s", got)
	}
}

func TestProblems(t *testing.T) {
	s := parse(t, `
tiers: {gold: 'true', silver: 'true'}
rules:
  - {name: login, key: client.ip, limits: [5 per 1m leaky_bucket], shape: true, tiers: {gold: {limits: [4000000000 per 1m leaky_bucket]}}}
  - {name: all, key: '"all"', limits: [5 per 1m]}
  - {name: path, key: request.path, limits: [5 per 1m]}`)
	for _, c := range []struct{ controls, want string }{
		{`{"modes":{"logn":"off","zzz":"off"}}`, `logn: unknown rule "logn": did you mean login?; zzz: unknown rule "zzz": the file has login, all, path`},
		{`{"overrides":[{"id":"1","rule":"nope","key":"k","times":2}]}`, `1: unknown rule "nope": the file has login, all, path`},
		{`{"overrides":[{"id":"1","rule":"login","tier":"glod","times":2}]}`, `1: unknown tier "glod": did you mean gold?`},
		{`{"overrides":[{"id":"1","rule":"login","times":2}]}`, `1: it needs a key or a tier, and not both`},
		{`{"overrides":[{"id":"1","rule":"login","key":"192.0.2.1","tier":"gold","times":2}]}`, `1: it needs a key or a tier, and not both`},
		{`{"overrides":[{"id":"1","rule":"login","key":"192.0.2.1"}]}`, `1: it has neither times nor limits: give one of them`},
		{`{"overrides":[{"id":"1","rule":"login","key":"192.0.2.1","times":2,"limits":["1 per 1s"]}]}`, `1: it has both times and limits: give one of them`},
		{`{"overrides":[{"id":"1","rule":"path","key":"/","times":-2}]}`, `1: times -2: must be from 1 to 1000000`},
		{`{"overrides":[{"id":"1","rule":"path","key":"/","times":1000001}]}`, `1: times 1000001: must be from 1 to 1000000`},
		{`{"overrides":[{"id":"1","rule":"path","key":"/","limits":["5 per 1y"]}]}`, `1: limit "5 per 1y": period "1y": must be a duration such as 500ms, 10s, 1m30s, 24h or 7d, or day, week, month or year`},
		{`{"overrides":[{"id":"1","rule":"path","key":"/","limits":["5 per 1m","6 per 60s"]}]}`, `1: limits "5 per 1m" and "6 per 1m" count the same: they must differ in algorithm, period, calendar or buckets`},
		{`{"overrides":[{"id":"1","rule":"login","key":"192.0.2.1","limits":["5 per 1m"]}]}`, `1: shape needs a leaky_bucket: one of the rule's limits must be one`},
		{`{"overrides":[{"id":"1","rule":"login","key":"192.0.2.1","times":1000000}]}`,
			`1: tier gold: limit "4000000000 per 1m leaky_bucket" times 1000000: amount 4000000000000000 per 1m0s with burst 4000000000000000: too large for exact arithmetic (burst × period / gcd(amount, period) must be below 2^52 microseconds, or whole milliseconds)`},
		{`{"overrides":[{"id":"1","rule":"login","key":"2001:db8::1","times":2}]}`, `1: key 2001:db8::1: the rule counts by client.ip, and counts this client as 2001:db8::/64: give that`},
		{`{"overrides":[{"id":"1","rule":"login","key":"2001:db8::/48","times":2}]}`, `1: key 2001:db8::/48: the rule counts by client.ip, which is never this network: give an address, or ban the network without a rule`},
		{`{"overrides":[{"id":"1","rule":"login","key":"64:ff9b::/64","times":2}]}`, `1: key 64:ff9b::/64: the rule counts by client.ip, which is never this network: give an address, or ban the network without a rule`},
		{`{"overrides":[{"id":"1","rule":"login","key":"2001:db8::/64","times":2}]}`, ``},
		{`{"overrides":[{"id":"1","rule":"login","key":"192.0.2.1","limits":["more: 9 per 1m"]}]}`, `1: limit "more: 9 per 1m": a rule's limits have the rule's name: write "9 per 1m"`},
		{`{"overrides":[{"id":"1","rule":"login","key":"bob","times":2}]}`, `1: key bob: the rule counts by client.ip: want an IP address such as 192.0.2.1`},
		{`{"overrides":[{"id":"1","rule":"login","key":["192.0.2.1"],"times":2}]}`, `1: key ["192.0.2.1"]: the rule counts by client.ip, which is not a list`},
		{`{"overrides":[{"id":"1","rule":"all","key":"bob","times":2}]}`, `1: key bob: the rule counts everyone under all`},
		{`{"safelist":[{"id":"1"}]}`, `1: it has neither a network nor a match: give one of them`},
		{`{"safelist":[{"id":"1","network":"10.0.0.0/8","match":"true"}]}`, `1: it has both a network and a match: make two entries of it`},
		{`{"safelist":[{"id":"1","network":"10.0.0.0/33"}]}`, `1: "10.0.0.0/33": must be a network such as 10.0.0.0/8, or an address`},
		{`{"blocklist":[{"id":"1","match":"request.pth == \"\""}]}`, `1: match, at character 1: unknown variable "request.pth": did you mean request.path? (variables: request.method, request.path, request.host, request.route, request.headers, request.query, request.cookies, request.credential, body, client.ip, operation, attrs, claims, secrets, cost)`},
		{`{"bans":[{"id":"1"}]}`, `1: it has neither a rule nor a network: give a network, or a key and its rule`},
		{`{"bans":[{"id":"1","rule":"path"}]}`, `1: key: it is empty`},
		{`{"bans":[{"id":"1","rule":"path","key":"/","network":"10.0.0.1"}]}`, `1: it has both a network and a rule or key: ban a network, or a key under a rule`},
		{`{"bans":[{"id":"1","network":"ten"}]}`, `1: "ten": must be a network such as 10.0.0.0/8, or an address`},
		{`{"bans":[{"rule":"path","key":"/"}]}`, `: the entry has no id: give it one that no other entry has`},
		{`{"bans":[{"id":"1","network":"10.0.0.1"}],"safelist":[{"id":"1","network":"10.0.0.1"}]}`, `1: an entry before it has the same id: give it another`},
		{`{"bans":[{"id":"1","rule":"gone","key":"/","until":"2001-01-01T00:00:00Z"}]}`, ``},
	} {
		var controls rules.Controls
		if err := json.Unmarshal([]byte(c.controls), &controls); err != nil {
			t.Fatal(err)
		}
		w, problems := s.With(&controls)
		var got []string
		for _, p := range problems {
			got = append(got, p.ID+": "+p.Text)
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.controls, text, c.want)
		}
		in := &rules.Input{Client: addr("192.0.2.1"), Request: get("/")}
		if want, got := limited(s, in), limited(w, in); len(problems) == 1 && got != want && got != "safe" && !strings.HasPrefix(got, "ban") {
			t.Errorf("%s: it has an effect: %s", c.controls, got)
		}
	}
}

// What is above the quotas is told once and ignored.
func TestQuotas(t *testing.T) {
	s := parse(t, controlled)
	var c rules.Controls
	note := func(kind string, i int) rules.Note { return rules.Note{ID: fmt.Sprint(kind, i)} }
	for i := range rules.MaxBans + 2 {
		key := rules.Key(fmt.Sprint("u", i))
		c.Bans = append(c.Bans, rules.Ban{Note: note("b", i), Rule: "api", Key: key})
		c.Overrides = append(c.Overrides, rules.Override{Note: note("o", i), Rule: "api", Key: key, Times: 2})
	}
	for i := range rules.MaxListedNetworks + 1 {
		c.Safelist = append(c.Safelist, rules.Listed{Note: note("s", i), Network: fmt.Sprintf("10.0.%d.%d", i/250, i%250)})
	}
	for i := range rules.MaxListedMatches + 1 {
		c.Blocklist = append(c.Blocklist, rules.Listed{Note: note("m", i), Match: fmt.Sprintf("attrs.x == %d", i)})
	}
	for i := range rules.MaxSilences + 1 {
		c.Silences = append(c.Silences, rules.Silence{Note: note("q", i)})
	}
	c.Lifts = make([]rules.Lift, rules.MaxLifts+1)
	w, problems := s.With(&c)
	want := []rules.Problem{
		{ID: "o10000", Text: "2 entries without effect: at most 10000 overrides are allowed; remove some"},
		{ID: "s1000", Text: "1 entry without effect: at most 1000 networks on the safelist are allowed; remove some"},
		{ID: "m100", Text: "1 entry without effect: at most 100 expressions on the blocklist are allowed; remove some"},
		{ID: "b10000", Text: "2 entries without effect: at most 10000 bans are allowed; remove some"},
		{ID: "q1000", Text: "1 entry without effect: at most 1000 silences are allowed; remove some"},
		{ID: "lifts", Text: "1 lift without effect: at most 1000 are allowed; remove the oldest"},
	}
	if !slices.Equal(problems, want) {
		t.Errorf("got %+v", problems)
	}
	for name, want := range map[string]string{"u9999": "ban b9999 by api for 2562047h47m16.854775807s, 0 asks", "u10000": "api: 10 per 1m"} {
		if got := limited(w, user("quiet", "user", name)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestCloneAndExpire(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ended, runs, ever := rules.Note{ID: "ended", Until: now}, rules.Note{ID: "runs", Until: now.Add(1)}, rules.Note{ID: "ever"}
	yes := true
	c := &rules.Controls{
		Enabled:   &yes,
		Modes:     map[string]rules.Mode{"a": rules.Off},
		Overrides: []rules.Override{{Note: ended}, {Note: runs, Limits: []string{"1 per 1s"}}, {Note: ever}},
		Safelist:  []rules.Listed{{Note: ended}, {Note: runs}, {Note: ever}},
		Blocklist: []rules.Listed{{Note: ever}, {Note: ended}},
		Bans:      []rules.Ban{{Note: runs}, {Note: ended}},
		Silences:  []rules.Silence{{Note: runs}, {Note: ended}},
		Lifts:     []rules.Lift{{At: now.Add(-time.Hour - 1)}, {At: now.Add(-time.Hour)}},
	}
	d := c.Clone()
	if !reflect.DeepEqual(c, d) {
		t.Errorf("the clone is %+v", d)
	}
	c.Expire(now, time.Hour)
	if len(c.Overrides) != 2 || len(c.Safelist) != 2 || len(c.Blocklist) != 1 || len(c.Bans) != 1 || len(c.Silences) != 1 || len(c.Lifts) != 1 {
		t.Errorf("left over: %+v", c)
	}
	*c.Enabled, c.Modes["a"], c.Overrides[0].Limits[0] = false, rules.Shadow, "changed"
	if !*d.Enabled || d.Modes["a"] != rules.Off || d.Overrides[1].Limits[0] != "1 per 1s" || d.Bans[1].ID != "ended" || d.Silences[1].ID != "ended" {
		t.Errorf("the clone shares memory: %+v", d)
	}
	if (*rules.Controls)(nil).Clone() != nil {
		t.Error("a clone of nothing")
	}
}

// The document of a fleet is read back as it was written.
func TestControlsJSON(t *testing.T) {
	const document = `{"enabled":false,"modes":{"api":"shadow"},"overrides":[{"id":"1","reason":"launch","author":"ann","at":"2026-01-01T00:00:00Z","until":"2026-01-02T00:00:00Z","rule":"api","key":["42","/x"],"times":10}],` +
		`"safelist":[{"id":"2","at":"2026-01-01T00:00:00Z","network":"10.0.0.0/8"}],"bans":[{"id":"3","at":"2026-01-01T00:00:00Z","rule":"api","key":"u"}],"lifts":[{"rule":"api","key":"u","at":"2026-01-01T00:00:00Z"}]}`
	var c rules.Controls
	if err := json.Unmarshal([]byte(document), &c); err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(&c); string(got) != document || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`{"modes":{"api":"of"}}`), &c); err == nil || !strings.Contains(err.Error(), `mode "of": must be one of enforce, shadow, off`) {
		t.Errorf("got %v", err)
	}
	if _, err := json.Marshal(rules.Mode(9)); err == nil {
		t.Error("a mode that is none was written")
	}
}

// Bans of networks go by the address as clients are counted.
func TestBanOfMappedAddress(t *testing.T) {
	w := with(t, parse(t, controlled), `{"bans":[{"id":"four","network":"::ffff:192.0.2.0/120"},{"id":"six","network":"2001:db8::7/64"}]}`)
	for client, want := range map[string]string{
		"192.0.2.9": "four", "::ffff:192.0.2.9": "four", "2001:db8::9%eth0": "six", "2001:db8:0:1::9": "", "192.0.3.1": "",
	} {
		var out rules.Plan
		if err := w.Asks(&rules.Input{Client: addr(client)}, &out); err != nil {
			t.Fatal(err)
		}
		id := ""
		if out.Ban != nil {
			id = out.Ban.ID
		}
		if id != want || want != "" && out.BanLeft != stint.Never {
			t.Errorf("%s: ban %q for %s", client, id, out.BanLeft)
		}
	}
}
