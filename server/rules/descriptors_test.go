package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// envoy parses one file of Envoy's form.
func envoy(t testing.TB, text string) *rules.Set {
	t.Helper()
	s, err := rules.ParseFiles([]rules.File{{Name: "config.yaml", Data: []byte(text), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call is a call with one descriptor for each text, such as "user=ann path=/x".
func call(domain string, texts ...string) *rules.Input {
	d := &rules.Descriptors{Domain: domain}
	for _, text := range texts {
		one := rules.Descriptor{Cost: 1}
		for entry := range strings.FieldsSeq(text) {
			key, value, _ := strings.Cut(entry, "=")
			one.Entries = append(one.Entries, rules.Entry{Key: key, Value: value})
		}
		d.List = append(d.List, one)
	}
	return &rules.Input{Cost: 1, Descriptors: d}
}

// callAsks is what a call asks, as "rule key cost terms; …".
func callAsks(t testing.TB, s *rules.Set, in *rules.Input) string {
	t.Helper()
	var m rules.Plan
	if err := s.Asks(in, &m); err != nil {
		t.Fatal(err)
	}
	return shownAsks(&m)
}

func shownAsks(m *rules.Plan) string {
	var all []string
	for i, a := range m.Asks {
		all = append(all, fmt.Sprintf("%s %s %d %q", m.Rules[i].Name, rules.Key(a.Key), a.Cost, a.Limit.Terms()))
	}
	for _, a := range m.GiveBack {
		all = append(all, fmt.Sprintf("back %s %d %q", rules.Key(a.Key), a.Cost, a.Limit.Terms()))
	}
	return strings.Join(all, "; ")
}

const shop = `
domain: shop
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: remote_address
    value: 192.0.2.1
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: path
    value: /api/*
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 100}
  - key: all
    value: "yes"
    rate_limit: {unit: day, requests_per_unit: 5}
`

func TestDescriptorsFindRules(t *testing.T) {
	s := envoy(t, shop)
	for _, test := range []struct{ call, want string }{
		{"remote_address=192.0.2.7", `shop/remote_address 192.0.2.7 1 "10 per 1m fixed_window"`},
		{"remote_address=192.0.2.1", `shop/remote_address:192.0.2.1 all 1 "2 per 1s fixed_window"`},
		{"path=/api/x user=ann", `shop/path:/api/-/user::000000000000 ["/api/x","ann"] 1 "100 per 1h fixed_window"`},
		{"path=/api/x", ""},
		{"path=/api/x user=ann more=1", ""},
		{"remote_address=192.0.2.7 user=ann", ""},
		{"all=yes", `shop/all:yes all 1 "5 per 24h fixed_window"`},
		{"all=no", ""},
		{"other=1", ""},
	} {
		got := callAsks(t, s, call("shop", test.call))
		if i := strings.Index(got, "::"); i > 0 {
			test.want = test.want[:strings.Index(test.want, "::")] + got[i:i+14] + test.want[strings.Index(test.want, "::")+14:]
		}
		if got != test.want {
			t.Errorf("%s asks\n\t%s, want\n\t%s", test.call, got, test.want)
		}
	}
	if got := callAsks(t, s, call("elsewhere", "remote_address=192.0.2.7")); got != "" || s.HasDomain("elsewhere") || !s.HasDomain("shop") {
		t.Errorf("an unknown domain asks %q", got)
	}
}

func TestOverrideWithoutUnit(t *testing.T) {
	in := call("shop", "anything=1")
	in.Descriptors.List[0].Override = &rules.DescriptorLimit{Amount: 5}
	var m rules.Plan
	if err := envoy(t, shop).Asks(in, &m); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("a limit without a unit: %v", err)
	}
	in.Descriptors.List[0].Override.Unit = rules.Minute
	if got, want := callAsks(t, envoy(t, shop), in), `shop::overrides ["anything","1"] 1 "5 per 1m fixed_window"`; got != want {
		t.Errorf("asks %s, want %s", got, want)
	}
}

const kinds = `
domain: d
descriptors:
  - key: zero
    rate_limit: {unit: minute, requests_per_unit: 0}
  - key: free
    rate_limit: {unlimited: true, name: free, replaces: [{name: narrow}]}
  - key: wide
    rate_limit: {unit: minute, requests_per_unit: 9, name: wide, replaces: [{name: narrow}, {name: free}]}
  - key: narrow
    rate_limit: {unit: minute, requests_per_unit: 3, name: narrow}
  - key: try
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: files
    value: /a/*
    share_threshold: true
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 5}
`

// What calls ask, and what is told of their descriptors.
func TestAsksOfDescriptors(t *testing.T) {
	s := envoy(t, kinds)
	with := func(in *rules.Input, i int, change func(*rules.Descriptor)) *rules.Input {
		change(&in.Descriptors.List[i])
		return in
	}
	cost := func(n int64) func(*rules.Descriptor) { return func(d *rules.Descriptor) { d.Cost = n } }
	back := func(n int64) func(*rules.Descriptor) {
		return func(d *rules.Descriptor) { d.Cost, d.GiveBack = n, true }
	}
	limit := func(amount int64, unit rules.Unit) func(*rules.Descriptor) {
		return func(d *rules.Descriptor) { d.Override = &rules.DescriptorLimit{Amount: amount, Unit: unit} }
	}
	const narrow, zero = `"3 per 1m fixed_window"`, `"1 per 1m fixed_window"`
	for _, test := range []struct {
		what, want string
		in         *rules.Input
	}{
		{"two descriptors of one count ask for the sum", `d/narrow ann 3 ` + narrow, with(call("d", "narrow=ann", "narrow=ann"), 1, cost(2))},
		{"a peek and a cost of one count", `d/narrow ann 1 ` + narrow, with(call("d", "narrow=ann", "narrow=ann"), 0, cost(0))},
		{"a peek asks for nothing", `d/narrow ann 0 ` + narrow, with(call("d", "narrow=ann"), 0, cost(0))},
		{"two counts", `d/narrow ann 1 ` + narrow + `; d/narrow bob 1 ` + narrow, call("d", "narrow=ann", "narrow=bob")},
		{"0 allows nothing: more than fits is asked for", `d/zero x 2 ` + zero, call("d", "zero=x")},
		{"but it can be looked at", `d/zero x 0 ` + zero, with(call("d", "zero=x"), 0, cost(0))},
		{"unlimited asks for nothing", ``, call("d", "free=x")},
		{"what is replaced asks for nothing", `d/wide x 1 "9 per 1m fixed_window"`, call("d", "narrow=ann", "wide=x")},
		{"what is unlimited replaces, and is not replaced", `d/wide x 1 "9 per 1m fixed_window"`, call("d", "narrow=ann", "free=x", "wide=x")},
		{"units are given back beside others", `d/narrow ann 1 ` + narrow + `; back ann 2 ` + narrow, with(call("d", "narrow=ann", "narrow=ann"), 1, back(2))},
		{"nothing is given back", ``, with(call("d", "narrow=ann"), 0, back(0))},
		{"shadow mode asks", `d/try x 1 ` + narrow, call("d", "try=x")},
		{"share_threshold counts the pattern", `d/files:/a/-/user::x ann 2 "5 per 1h fixed_window"`, call("d", "files=/a/1 user=ann", "files=/a/2 user=ann")},
		{"the limit of the call", `d::overrides ["narrow","ann"] 1 "7 per 1h fixed_window"`, with(call("d", "narrow=ann"), 0, limit(7, rules.Hour))},
		{"two limits of calls for one count: the smaller", `d::overrides ["narrow","ann"] 2 "5 per 1h fixed_window"`,
			with(with(call("d", "narrow=ann", "narrow=ann"), 0, limit(7, rules.Hour)), 1, limit(5, rules.Hour))},
		{"two limits of calls with two units", `d::overrides ["narrow","ann"] 1 "7 per 1h fixed_window"; d::overrides ["narrow","ann"] 1 "5 per 1s fixed_window"`,
			with(with(call("d", "narrow=ann", "narrow=ann"), 0, limit(7, rules.Hour)), 1, limit(5, rules.Second))},
		{"a limit of 0", `d::overrides ["k","v"] 2 ` + zero, with(call("d", "k=v"), 0, limit(0, rules.Minute))},
		{"a limit of a call of an unknown domain", ``, with(call("e", "k=v"), 0, limit(5, 7))},
	} {
		got := callAsks(t, s, test.in)
		if i := strings.Index(got, "user::"); i >= 0 {
			got = got[:i+6] + "x" + got[i+18:]
		}
		if got != test.want {
			t.Errorf("%s: asks\n\t%s, want\n\t%s", test.what, got, test.want)
		}
	}
}

// Descriptors that are written alike, if keys and values are joined by underscores, are different. In
// envoyproxy/ratelimit a client that chooses the value "agent" escapes the limit of users.
func TestUnderscores(t *testing.T) {
	s := envoy(t, `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: user_agent, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: a, value: b_*, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: a, value: c, rate_limit: {unit: minute, requests_per_unit: 3}}
  - key: x
    descriptors: [{key: y, rate_limit: {unit: minute, requests_per_unit: 4}}]
`)
	for _, test := range []struct{ call, want string }{
		{"user=agent", `d/user agent 1 "1 per 1m fixed_window"`},
		{"user_agent=curl", `d/user_agent curl 1 "1000 per 1m fixed_window"`},
		{"a_b=c", ""},
		{"a_c=", ""},
		{"a=c", `d/a:c all 1 "3 per 1m fixed_window"`},
		{"x=1_y_2 y=3", `d/x/y ["1_y_2","3"] 1 "4 per 1m fixed_window"`},
		{"x=1 y=2_y_3", `d/x/y ["1","2_y_3"] 1 "4 per 1m fixed_window"`},
	} {
		if got := callAsks(t, s, call("d", test.call)); got != test.want {
			t.Errorf("%s asks %s, want %s", test.call, got, test.want)
		}
	}
}

// No value of a request makes it an error: a proxy would let that request pass.
func TestOddValues(t *testing.T) {
	s := envoy(t, `
domain: d
descriptors:
  - key: one
    rate_limit: {unit: minute, requests_per_unit: 1}
    descriptors: [{key: two, rate_limit: {unit: minute, requests_per_unit: 1}}]
`)
	long := strings.Repeat("x", stint.MaxKey+1)
	values := []string{"", "a", "a\x00", "\x00", "\xff", "\ufffd", long, long + "x", "sha256:" + strings.Repeat("0", 64), `["a"]`}
	counts := map[string]string{}
	ask := func(entries ...rules.Entry) {
		var m rules.Plan
		if err := s.Asks(&rules.Input{Descriptors: &rules.Descriptors{Domain: "d", List: []rules.Descriptor{{Entries: entries, Cost: 1}}}}, &m); err != nil {
			t.Fatalf("%.30q: %v", entries, err)
		}
		if _, err := new(stint.Limiter).Take(t.Context(), &stint.Request{Asks: m.Asks}, nil); err != nil {
			t.Fatalf("%.30q: %v", entries, err)
		}
		key := rules.Key(m.Asks[0].Key)
		if _, err := key.MarshalJSON(); err != nil {
			t.Errorf("%.30q: %v", entries, err)
		}
		if _, err := s.AsCounted(m.Rules[0], key); err != nil {
			t.Errorf("%.30q: %v", entries, err)
		}
		count, this := m.Rules[0].Name+" "+m.Asks[0].Key, fmt.Sprintf("%q", entries)
		if other, ok := counts[count]; ok {
			t.Errorf("%.60s and %.60s have one count", this, other)
		}
		counts[count] = this
	}
	for _, one := range values {
		ask(rules.Entry{Key: "one", Value: one})
		for _, two := range values {
			ask(rules.Entry{Key: "one", Value: one}, rules.Entry{Key: "two", Value: two})
		}
	}
}

// Bans, modes and overrides by hand are in force for descriptors as for all rules.
func TestControlsOfDescriptors(t *testing.T) {
	s := envoy(t, kinds)
	note := func(id string) rules.Note { return rules.Note{ID: id} }
	pair, _ := rules.JoinKey("narrow", "ann")
	controls := &rules.Controls{
		Bans:  []rules.Ban{{Note: note("ban"), Rule: "d/wide", Key: "eve"}, {Note: note("ban2"), Rule: "d::overrides", Key: pair}},
		Modes: map[string]rules.Mode{"d/zero": rules.Off},
		Overrides: []rules.Override{
			{Note: note("times"), Rule: "d/narrow", Key: "ann", Times: 10},
			{Note: note("limits"), Rule: "d/narrow", Key: "bob", Limits: []string{"5 per 10m fixed_window", "1 per 1s"}},
		},
	}
	with, problems := s.With(controls)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, test := range []struct{ call, want, told string }{
		{"narrow=ann", `d/narrow ann 1 "30 per 1m fixed_window"`, "30 per 1×60 s"},
		{"narrow=bob", `d/narrow bob 1 "5 per 10m fixed_window"; d/narrow bob 1 "1 per 1s"`, "5 per 10×60 s"},
		{"narrow=carl", `d/narrow carl 1 "3 per 1m fixed_window"`, "3 per 1×60 s"},
		{"zero=x", "", ""},
	} {
		in := call("d", test.call)
		if got := callAsks(t, with, in); got != test.want {
			t.Errorf("%s asks %s, want %s", test.call, got, test.want)
		}
		var m rules.Plan
		if err := with.Asks(in, &m); err != nil {
			t.Fatal(err)
		}
		told := ""
		if l := m.Descriptors[0].Limit; l != nil {
			told = fmt.Sprintf("%d per %d×%d s", l.Amount, l.Times, l.Unit)
		}
		if told != test.told {
			t.Errorf("%s: %s is told, want %s", test.call, told, test.told)
		}
	}
	var m rules.Plan
	override := call("d", "narrow=ann")
	override.Descriptors.List[0].Override = &rules.DescriptorLimit{Amount: 5, Unit: rules.Minute}
	for _, in := range []*rules.Input{call("d", "narrow=ann", "wide=eve"), override} {
		if err := with.Asks(in, &m); err != nil || m.Ban == nil || len(m.Asks)+len(m.Descriptors)+len(m.GiveBack) > 0 {
			t.Errorf("a ban: %v, %+v", err, m)
		}
	}

	_, problems = s.With(&rules.Controls{
		Bans: []rules.Ban{
			{Note: note("1"), Rule: "d/narrow", Key: pair},
		},
		Overrides: []rules.Override{
			{Note: note("2"), Rule: "d/free", Key: "x", Times: 2},
			{Note: note("3"), Rule: "d::overrides", Key: pair, Times: 2},
			{Note: note("4"), Rule: "d/zero", Key: "x", Times: 2},
		},
	})
	var got []string
	for _, p := range problems {
		got = append(got, p.ID+": "+p.Text)
	}
	want := `2: the rule has no limits to override: it is unlimited
3: the rule has no limits to override: each call says its own
4: the rule allows nothing (requests_per_unit is 0), and times multiplies that: give limits
1: key ["narrow","ann"]: the rule counts by narrow, which is not a list`
	if strings.Join(got, "\n") != want {
		t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// A tier's override changes the limits of a descriptor for calls of that tier.
func TestTiersOfDescriptors(t *testing.T) {
	s, err := rules.ParseFiles([]rules.File{
		{Name: "r.yaml", Data: []byte("tiers: {gold: 'attrs.plan == \"gold\"'}\nrules: []\n")},
		{Name: "e.yaml", Data: []byte(kinds), Envoy: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	with, problems := s.With(&rules.Controls{Overrides: []rules.Override{{Note: rules.Note{ID: "1"}, Rule: "d/narrow", Tier: "gold", Times: 100}}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for text, want := range map[string]string{
		"narrow=ann":           `d/narrow ann 1 "3 per 1m fixed_window"`,
		"narrow=ann plan=gold": "",
	} {
		if got := callAsks(t, with, call("d", text)); got != want {
			t.Errorf("%s asks %s, want %s", text, got, want)
		}
	}
	if got, want := callAsks(t, with, call("d", "narrow=ann", "plan=gold")), `d/narrow ann 1 "300 per 1m fixed_window"`; got != want {
		t.Errorf("gold asks %s, want %s", got, want)
	}
}

// Explain lists the rules that a call finds, and none of the others.
func TestExplainDescriptors(t *testing.T) {
	s, problems := envoy(t, kinds).With(&rules.Controls{Modes: map[string]rules.Mode{"d/zero": rules.Off}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	x, err := s.Explain(t.Context(), call("d", "narrow=ann", "free=x", "try=y", "zero=z", "other=1", "try=y"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range x.Rules {
		got = append(got, fmt.Sprintf("%s %t %s %d: %s", r.Rule.Name, r.Applies, r.Key, len(r.Asks), r.Why))
	}
	want := `d/narrow false ann 0: descriptor 1 finds it: narrow=ann; another limit of the call replaces narrow
d/free false x 0: descriptor 2 finds it: free=x; it is unlimited
d/try true y 1: descriptor 3 finds it: try=y; mode shadow, so it refuses nothing
d/zero false "" 0: mode off, set at run time (the file says enforce)`
	if strings.Join(got, "\n") != want {
		t.Errorf("explains\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// Names of rules are those of their paths, so that counts survive changes of other descriptors.
func TestDescriptorNames(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{
		"{key: a, value: b}", "{key: 'a:b'}", "{key: a/b}", "{key: 'a::b'}", "{key: a, value: 'b::c'}", "{key: 'a*'}", "{key: 'a?'}",
		"{key: " + strings.Repeat("a", 70) + "}", "{key: " + strings.Repeat("a", 71) + "}", "{key: 'ä'}", "{key: 'ö'}", "{key: overrides}",
	} {
		s := envoy(t, "domain: d\ndescriptors: ["+strings.TrimSuffix(text, "}")+", rate_limit: {unit: minute, requests_per_unit: 1}}]\n")
		name := s.Rules[0].Name
		if !rules.IsName(name) {
			t.Errorf("%s: the name %q", text, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s are both named %s", text, other, name)
		}
		seen[name] = text
	}
	for domain, want := range map[string]string{"d": "d::overrides", strings.Repeat("d", 60): strings.Repeat("d", 50) + "::", "d::overrides": "d::overrides::"} {
		s := envoy(t, "domain: '"+domain+"'\n")
		if name := s.Rules[0].Name; !strings.HasPrefix(name, want) || !rules.IsName(name) {
			t.Errorf("overrides of %s: the name %s, want %s…", domain, name, want)
		}
	}
}

// Callers that send ever new limits do not make the set grow without bound.
func TestOverridesAreBounded(t *testing.T) {
	s := envoy(t, shop)
	r := s.Rules[len(s.Rules)-1]
	in, most := call("shop", "k=v"), 0
	for i := range int64(2500) {
		in.Descriptors.List[0].Override = &rules.DescriptorLimit{Amount: 5, Unit: rules.Second, Times: i + 1}
		if got, want := callAsks(t, s, in), fmt.Sprintf(`shop::overrides ["k","v"] 1 "5 per %s fixed_window"`, limitPeriod(i+1)); got != want {
			t.Fatalf("asks %s, want %s", got, want)
		}
		most = max(most, len(r.AllLimits("")))
	}
	if most != 1000 {
		t.Errorf("%d limits are kept, want 1000", most)
	}
}

// limitPeriod is how a limit writes a period.
func limitPeriod(seconds int64) string {
	_, text, _ := strings.Cut(stint.MustLimit(fmt.Sprintf("5 per %ds fixed_window", seconds)).Terms(), " per ")
	period, _, _ := strings.Cut(text, " ")
	return period
}

// Calls with limits of their own, and operators who look at those, may come at once.
func TestOverridesConcurrently(t *testing.T) {
	s := envoy(t, shop)
	var all sync.WaitGroup
	for g := range int64(8) {
		all.Go(func() {
			var m rules.Plan
			in := call("shop", "k=v", "remote_address=192.0.2.1")
			for i := range int64(300) {
				in.Descriptors.List[0].Override = &rules.DescriptorLimit{Amount: i % 7, Unit: rules.Minute, Times: 1 + (i*g)%400}
				if err := s.Asks(in, &m); err != nil || len(m.Asks) != 2 {
					t.Errorf("%v, %d asks", err, len(m.Asks))
					return
				}
				s.Rules[len(s.Rules)-1].AllLimits("")
			}
		})
	}
	all.Wait()
}
