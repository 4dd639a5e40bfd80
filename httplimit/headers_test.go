package httplimit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

func TestParseDialect(t *testing.T) {
	for _, c := range []struct {
		names, want string
		d           httplimit.Dialect
	}{
		{"", "x-ratelimit", 0},
		{"x-ratelimit", "x-ratelimit", httplimit.XRateLimit},
		{"x-ratelimit-epoch", "x-ratelimit-epoch", httplimit.XRateLimitEpoch},
		{"draft-11 x-ratelimit", "x-ratelimit,draft-11", httplimit.XRateLimit | httplimit.Draft11},
		{"none", "none", httplimit.NoHeaders},
		{"draft-11 draft-11", "draft-11", httplimit.Draft11},
	} {
		d, err := httplimit.ParseDialect(strings.Fields(c.names)...)
		if err != nil || d != c.d || d.String() != c.want {
			t.Errorf("%q: got %s, %v; want %s", c.names, d, err, c.want)
		}
	}
	for names, want := range map[string]string{
		"draft-8":                       `unknown header dialect "draft-8": use any of x-ratelimit, x-ratelimit-epoch, draft-11, none, openai, anthropic`,
		"none draft-11":                 "header dialects draft-11,none: none cannot be combined with others",
		"x-ratelimit x-ratelimit-epoch": "header dialects x-ratelimit,x-ratelimit-epoch: use only one of x-ratelimit and x-ratelimit-epoch, they set the same headers",
	} {
		if _, err := httplimit.ParseDialect(strings.Fields(names)...); err == nil || err.Error() != want {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// shown is what of limits is in h, on one line.
func shown(h http.Header) string {
	var b strings.Builder
	for _, n := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit-Policy", "Ratelimit", "Retry-After"} {
		if v := h.Values(n); len(v) > 0 {
			fmt.Fprintf(&b, " %s=%s", strings.NewReplacer("X-Ratelimit-", "", "Ratelimit-", "", "Ratelimit", "State").Replace(n), strings.Join(v, " AND "))
		}
	}
	return strings.TrimSpace(b.String())
}

// A story for each kind of limit: at an instant, one request, and what its
// headers say.
func TestHeadersOfOneLimit(t *testing.T) {
	type step struct {
		at   time.Duration
		want string
	}
	for _, c := range []struct {
		limit   string
		dialect httplimit.Dialect
		steps   []step
	}{
		{"3 per 1m", httplimit.XRateLimit, []step{
			{0, "Limit=3 Remaining=2 Reset=20"},
			{0, "Limit=3 Remaining=1 Reset=40"},
			{0, "Limit=3 Remaining=0 Reset=60"},
			{0, "Limit=3 Remaining=0 Reset=60 Retry-After=20"},
			{500 * time.Millisecond, "Limit=3 Remaining=0 Reset=60 Retry-After=20"},
			{19500 * time.Millisecond, "Limit=3 Remaining=0 Reset=41 Retry-After=1"},
			{20 * time.Second, "Limit=3 Remaining=0 Reset=60"},
		}},
		{"3 per 1m leaky_bucket burst 1", httplimit.XRateLimit, []step{
			{0, "Limit=1 Remaining=0 Reset=20"},
			{time.Second, "Limit=1 Remaining=0 Reset=19 Retry-After=19"},
		}},
		{"2 per 1m fixed_window", httplimit.XRateLimit, []step{
			{10 * time.Second, "Limit=2 Remaining=1 Reset=50"},
			{20 * time.Second, "Limit=2 Remaining=0 Reset=40"},
			{59*time.Second + 999*time.Millisecond, "Limit=2 Remaining=0 Reset=1 Retry-After=1"},
			{60 * time.Second, "Limit=2 Remaining=1 Reset=60"},
		}},
		{"2 per 1m sliding_log", httplimit.XRateLimit, []step{
			{0, "Limit=2 Remaining=1 Reset=60"},
			{30 * time.Second, "Limit=2 Remaining=0 Reset=60"},
			{40 * time.Second, "Limit=2 Remaining=0 Reset=50 Retry-After=20"},
		}},
		// The clock of this test begins at a whole second, 946684800.
		{"3 per 1m", httplimit.XRateLimitEpoch, []step{
			{0, "Limit=3 Remaining=2 Reset=946684820"},
			{0, "Limit=3 Remaining=1 Reset=946684840"},
			{0, "Limit=3 Remaining=0 Reset=946684860"},
			{0, "Limit=3 Remaining=0 Reset=946684860 Retry-After=20"},
			// The wait is 19.1 s from …0.9, so until …20.0.
			{900 * time.Millisecond, "Limit=3 Remaining=0 Reset=946684860 Retry-After=20"},
		}},
		{"10 per 1m sliding_log", httplimit.XRateLimitEpoch, []step{
			{900 * time.Millisecond, "Limit=10 Remaining=9 Reset=946684861"}, // …60.9, rounded up
		}},
		{"3 per 1m", httplimit.Draft11, []step{
			{0, `Policy="3 per 1m";q=3;w=60 State="3 per 1m";r=2;t=20`},
			{0, `Policy="3 per 1m";q=3;w=60 State="3 per 1m";r=1;t=40`},
			{0, `Policy="3 per 1m";q=3;w=60 State="3 per 1m";r=0;t=20`},
			{0, `Policy="3 per 1m";q=3;w=60 State="3 per 1m";r=0;t=20 Retry-After=20`},
		}},
		// In the long run it is 100 an hour, and never more than 20 at once.
		{"100 per 1h token_bucket burst 20", httplimit.Draft11, []step{
			{0, `Policy="100 per 1h token_bucket burst 20";q=100;w=3600;stint-burst=20 State="100 per 1h token_bucket burst 20";r=19;t=36`},
		}},
		{"5 per 1500ms", httplimit.Draft11, []step{
			{0, `Policy="5 per 1.5s";q=5 State="5 per 1.5s";r=4;t=1`},
		}},
		{"4503599627370495 per 1ms fixed_window", httplimit.Draft11, []step{ // no structured field holds that many
			{0, `Policy="4503599627370495 per 1ms fixed_window";q=999999999999999 State="4503599627370495 per 1ms fixed_window";r=999999999999999;t=1`},
		}},
		{"1 per 1m", httplimit.XRateLimit | httplimit.Draft11, []step{
			{0, `Limit=1 Remaining=0 Reset=60 Policy="1 per 1m";q=1;w=60 State="1 per 1m";r=0;t=60`},
		}},
		{"0 per 1m", httplimit.XRateLimit | httplimit.Draft11 | httplimit.OpenAI, []step{
			{0, `Limit=0 Remaining=0 Reset=0 Policy="0 per 1m";q=0;w=60 State="0 per 1m";r=0;t=0`},
		}},
		{"0 per month", httplimit.Draft11, []step{
			{0, `Policy="0 per month";q=0 State="0 per month";r=0;t=0`},
		}},
		{"unlimited", httplimit.XRateLimit | httplimit.Draft11 | httplimit.OpenAI | httplimit.Anthropic, []step{
			{0, ""},
		}},
		{"1 per 1m", httplimit.NoHeaders, []step{
			{0, ""},
			{0, "Retry-After=60"},
		}},
	} {
		t.Run(c.limit+" "+c.dialect.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				decide := httplimit.By(nil, stint.MustLimit(c.limit), everyone)
				for i, s := range c.steps {
					time.Sleep(s.at - time.Since(start))
					a, err := decide(&http.Request{}, -1)
					if err != nil {
						t.Fatal(err)
					}
					h := http.Header{}
					c.dialect.SetHeaders(h, &a)
					if got := shown(h); got != s.want {
						t.Errorf("step %d at %s:\ngot  %s\nwant %s", i, s.at, got, s.want)
					}
				}
			})
		})
	}
}

func everyone(*http.Request) string { return "everyone" }

func named(text, name string) *stint.Limit {
	if name != "" {
		text = name + ": " + text
	}
	return stint.MustLimit(text)
}

func TestHeadersOfAnswers(t *testing.T) {
	login, daily := named("5 per 1m", "login"), named("1000 per 1d", "daily")
	allowed := stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: login, Remaining: 3, ResetAfter: 24 * time.Second}
	refused := stint.Decision{Outcome: stint.Limited, Limit: login, RetryAfter: 11500 * time.Millisecond, ResetAfter: time.Minute}
	wide := stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: daily, Remaining: 900, ResetAfter: 144 * time.Minute}
	both := httplimit.XRateLimit | httplimit.Draft11
	for _, c := range []struct {
		name    string
		dialect httplimit.Dialect
		a       httplimit.Answer
		want    string
	}{
		{"two limits allow", both, httplimit.Answer{Decision: allowed, Each: []stint.Decision{allowed, wide}},
			`Limit=5 Remaining=3 Reset=24 Policy="login";q=5;w=60, "daily";q=1000;w=86400 State="login";r=3;t=24, "daily";r=900;t=8640`},
		{"one of two refuses: nothing keeps the client longer than Retry-After", both, httplimit.Answer{Decision: refused, Each: []stint.Decision{refused, wide}},
			`Limit=5 Remaining=0 Reset=60 Policy="login";q=5;w=60, "daily";q=1000;w=86400 State="login";r=0;t=12, "daily";r=900;t=12 Retry-After=12`},
		{"just banned: longer than its limit says", both,
			httplimit.Answer{Decision: stint.Decision{Outcome: stint.Banned, Limit: login, RetryAfter: time.Hour, BanLeft: time.Hour, ResetAfter: time.Minute}, Each: []stint.Decision{refused}},
			`Limit=5 Remaining=0 Reset=3600 Policy="login";q=5;w=60 State="login";r=0;t=12 Retry-After=3600`},
		{"a running ban: Each is left over from before", both,
			httplimit.Answer{Decision: stint.Decision{Outcome: stint.Banned, RetryAfter: time.Hour, BanLeft: time.Hour}, Each: []stint.Decision{allowed}},
			"Retry-After=3600"},
		{"never", both,
			httplimit.Answer{Decision: stint.Decision{Outcome: stint.Limited, Limit: login, Remaining: 2, RetryAfter: stint.Never, ResetAfter: 36 * time.Second}},
			`Limit=5 Remaining=2 Reset=36 Policy="login";q=5;w=60 State="login";r=2;t=36`},
		{"refused for the blink of an eye", both,
			httplimit.Answer{Decision: stint.Decision{Outcome: stint.Limited, Limit: login, RetryAfter: time.Microsecond}},
			`Limit=5 Remaining=0 Reset=1 Policy="login";q=5;w=60 State="login";r=0;t=1 Retry-After=1`},
		{"members that are empty", both, httplimit.Answer{Decision: allowed, Each: []stint.Decision{{}, allowed, {}}},
			`Limit=5 Remaining=3 Reset=24 Policy="login";q=5;w=60 State="login";r=3;t=24`},
		{"no member at all", both, httplimit.Answer{Decision: allowed, Each: []stint.Decision{{}}}, "Limit=5 Remaining=3 Reset=24"},
		{"refused, no reason given", both, httplimit.Answer{}, "Retry-After=1"},
		{"nothing used", both, httplimit.Answer{Decision: stint.Decision{Allowed: true, Limit: login, Remaining: 5}},
			`Limit=5 Remaining=5 Reset=0 Policy="login";q=5;w=60 State="login";r=5;t=0`},
		{"unlimited", both, httplimit.Answer{Unlimited: true}, ""},
		{"blocked", both, httplimit.Answer{Blocked: true, Decision: refused}, ""},
		{"the zero dialect", 0, httplimit.Answer{Decision: allowed}, "Limit=5 Remaining=3 Reset=24"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			c.dialect.SetHeaders(h, &c.a)
			if got := shown(h); got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestPolicyNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		names []string
		want  []string // as a parser of structured fields reads them
	}{
		{"plain", []string{"login", "per hour: 5/user"}, []string{"login", "per hour: 5/user"}},
		{"quotes and backslashes", []string{`a "b" \c`, `\`, `"`}, []string{`a "b" \c`, `\`, `"`}},
		{"not ASCII", []string{"größe", "速度", "100%"}, []string{"gr%C3%B6%C3%9Fe", "%E9%80%9F%E5%BA%A6", "100%"}},
		{"unnamed", []string{""}, []string{"5 per 1m"}},
		{"equal", []string{"a", "a", "a-2", "a", "b"}, []string{"a", "a-2", "a-2-2", "a-3", "b"}},
		{"equal once encoded", []string{"ö", "%C3%B6"}, []string{"%C3%B6", "%C3%B6-2"}},
		{"unnamed twice", []string{"", ""}, []string{"5 per 1m", "5 per 1m-2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a httplimit.Answer
			for _, n := range c.names {
				a.Each = append(a.Each, stint.Decision{Allowed: true, Limit: named("5 per 1m", n), Remaining: 4, ResetAfter: time.Second})
			}
			a.Decision = a.Each[0]
			h := http.Header{}
			httplimit.Draft11.SetHeaders(h, &a)
			for _, field := range []string{"Ratelimit-Policy", "Ratelimit"} {
				items := parseItems(t, h.Get(field))
				var got []string
				for _, it := range items {
					got = append(got, it.name)
				}
				if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
					t.Errorf("%s: got %q, want %q", field, got, c.want)
				}
			}
		})
	}
}

// item is a member of a structured field's list: a string with parameters that
// are integers, which is all that the draft's fields have here.
type item struct {
	name   string
	params map[string]int64
}

// parseItems reads such a list as strictly as RFC 9651 does.
func parseItems(t *testing.T, field string) []item {
	t.Helper()
	var items []item
	rest := field
	fail := func(why string) { t.Fatalf("%s at the end of %q", why, field[:len(field)-len(rest)]) }
	for {
		if !strings.HasPrefix(rest, `"`) {
			fail("no string")
		}
		it := item{params: map[string]int64{}}
		rest = rest[1:]
		for !strings.HasPrefix(rest, `"`) {
			if rest == "" || rest[0] < ' ' || rest[0] > '~' {
				fail("no printable ASCII")
			}
			if rest[0] == '\\' {
				if rest = rest[1:]; rest == "" || rest[0] != '"' && rest[0] != '\\' {
					fail("bad escape")
				}
			}
			it.name, rest = it.name+rest[:1], rest[1:]
		}
		rest = rest[1:]
		for strings.HasPrefix(rest, ";") {
			key, value, _ := strings.Cut(rest[1:], "=")
			if key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz-_") != "" {
				fail("bad key")
			}
			n := 0
			for n < len(value) && value[n] >= '0' && value[n] <= '9' {
				n++
			}
			v, err := strconv.ParseInt(value[:n], 10, 64)
			if err != nil || n > 15 {
				fail("bad integer")
			}
			it.params[key] = v
			rest = value[n:]
		}
		items = append(items, it)
		if rest == "" {
			return items
		}
		var ok bool
		if rest, ok = strings.CutPrefix(rest, ", "); !ok {
			fail("no comma")
		}
	}
}

// Whatever is decided, a client that obeys Retry-After comes back neither before it may nor
// before what Draft11 says must last, no reset is before Retry-After, and no number is negative.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		limits := []*stint.Limit{
			stint.MustLimit("1 per 1ms"), stint.MustLimit("7 per 13s"), stint.MustLimit("1 per 365d burst 1000"), stint.MustLimit("5 per 1h leaky_bucket"),
			stint.MustLimit("100000 per 24h sliding_window"), stint.MustLimit("3 per 1m sliding_log"), stint.MustLimit("60 per 1h fixed_window"),
		}
		random := func() stint.Decision {
			wait := func() time.Duration { return time.Duration(rng.Int64N(int64(time.Second) << rng.IntN(33))) }
			d := stint.Decision{Limit: limits[rng.IntN(len(limits))], Outcome: stint.Limited, RetryAfter: 1 + wait(), ResetAfter: wait()}
			switch rng.IntN(10) {
			case 0:
				d.RetryAfter = stint.Never
			case 1:
				d.ResetAfter = 1<<63 - 1
			case 2, 3, 4, 5:
				d.Allowed, d.Outcome, d.RetryAfter = true, stint.Allowed, 0
			}
			d.Remaining = rng.Int64N(3) % (d.Limit.Capacity() + 1)
			return d
		}
		for range 20_000 {
			time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
			var a httplimit.Answer
			for range 1 + rng.IntN(3) {
				a.Each = append(a.Each, random())
			}
			a.Decision = stint.Strictest(a.Each)
			h := http.Header{}
			(httplimit.XRateLimitEpoch | httplimit.Draft11).SetHeaders(h, &a)

			epoch, _ := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64)
			reset := time.Until(time.Unix(epoch, 0))
			if !a.Allowed && a.RetryAfter != stint.Never {
				seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
				if err != nil || seconds < 1 {
					t.Fatalf("Retry-After %q", h.Get("Retry-After"))
				}
				retry := time.Duration(seconds) * time.Second
				if retry < a.RetryAfter || retry-a.RetryAfter >= 2*time.Second && seconds > 1 {
					t.Fatalf("Retry-After %d for %s", seconds, a.RetryAfter)
				}
				if reset < a.RetryAfter {
					t.Fatalf("reset in %s, but refused for %s", reset, a.RetryAfter)
				}
				for _, it := range parseItems(t, h.Get("Ratelimit")) {
					if it.params["t"] > seconds {
						t.Fatalf("Retry-After %d, but t=%d", seconds, it.params["t"])
					}
				}
			} else if h.Get("Retry-After") != "" {
				t.Fatalf("Retry-After %q", h.Get("Retry-After"))
			}
			parseItems(t, h.Get("Ratelimit-Policy"))
			parseItems(t, h.Get("Ratelimit"))
		}
	})
}
