package rules_test

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/server/rules"
)

// limitExamples are texts of limits, at least one for each algorithm, and what they mean. The page also
// says how many requests pass at once and when the next one does, which is measured.
var limitExamples = []struct {
	text string
	of   stint.Algorithm
	says string
}{
	{"100 per 1m", stint.TokenBucket, "A burst of 100, then one in 600 ms. token_bucket is the default."},
	{"100 per 1h token_bucket burst 20", stint.TokenBucket, "A burst of 20, then one in 36 s, or 100 an hour."},
	{"10 per 1s leaky_bucket burst 21", stint.LeakyBucket, "A queue of 20, one leaving every 100 ms; `shape: true` makes them wait."},
	{"1000 per 1h fixed_window", stint.FixedWindow, "1,000 in each clock hour in UTC; around the full hour, up to twice as many."},
	{"1000 per day in America/New_York", stint.FixedWindow, "1,000 a day in New York."},
	{"5000000 per month in Europe/Berlin starts 15", stint.FixedWindow, "5,000,000 units a month, from the 15th, in Berlin."},
	{"5 per 1m sliding_log", stint.SlidingLog, "Never more than 5 in any minute."},
	{"600 per 1m sliding_window buckets 12", stint.SlidingWindow, "About 600 in any minute, by 12 counts of 5 s."},
	{"4 in_flight", stint.InFlight, "4 requests at once."},
	{"200000 per 1m fixed_window hold 45s retry 5s debt 5000", stint.FixedWindow, "A budget: a request holds its estimate, for 45 s without renewal, and is charged at its end, up to 5,000 above the budget. While others hold it all, retry-after is 5 s."},
	{"60000 per 1m lease 5%", stint.TokenBucket, "Instances may charge 3,000 ahead; the burst is smaller by that."},
	{"0 per 1m", stint.TokenBucket, "Nothing passes."},
	{"unlimited", stint.TokenBucket, "Everything passes, and nothing is counted."},
}

// limitOptions are the words that may follow, and the algorithms that may have them; calendar stands for
// limits per day, week, month and year.
var limitOptions = []struct {
	name, value, form string
	of                []string
	says              string
}{
	{"burst", "number", "burst 20", []string{"token_bucket", "leaky_bucket"}, "Units that pass at once. Default: the amount."},
	{"buckets", "number", "buckets 12", []string{"sliding_window"}, "Number of sub-windows. Default: 10."},
	{"lease", "share", "lease 5%", []string{"token_bucket", "fixed_window", calendar}, "The [share that instances charge ahead](leases.md), 1% to 50%."},
	{"hold", "[ duration ]", "hold 45s", []string{"token_bucket", "fixed_window", "sliding_log", "sliding_window", "in_flight", calendar}, "The limit [is held](holds.md) while a request runs, for that time without renewal. `hold` alone: 30s."},
	{"retry", "duration", "retry 5s", []string{"token_bucket", "fixed_window", "sliding_log", "sliding_window", "in_flight", calendar}, "With `hold`: the retry-after hint while others hold the limit. Default: 1s."},
	{"debt", "number", "debt 5000", []string{"token_bucket", "fixed_window", "sliding_log", "sliding_window", calendar}, "With `hold`: units that charges may exceed the limit by."},
	{"in", "zone", "in Europe/Berlin", []string{calendar}, "The time zone. Default: UTC."},
	{"starts", "day", "starts 15", []string{calendar}, "The first day of a window: of a week such as `sunday`, of a month 1 to 31, of a year such as `04-06`. Not for days."},
}

const (
	calendar = "calendar"
	// nonsense is a word that no text takes.
	nonsense = "zzqx"
)

var listed = regexp.MustCompile(`(?:one of|only|, or) ([a-z_]+(?:(?:, | or )[a-z_]+)+)`)

// parsersList is what the parser of limits lists because a text is wrong.
func parsersList(t *testing.T, wrong string) []string {
	_, err := stint.ParseLimit(wrong)
	if err == nil {
		t.Fatalf("%s is right", wrong)
	}
	m := listed.FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("%v: it lists nothing", err)
	}
	return regexp.MustCompile(", | or ").Split(m[1], -1)
}

func writeLimits(t *testing.T, w io.Writer) {
	algorithms := parsersList(t, "1 per 1m "+nonsense)
	timed := slices.DeleteFunc(slices.Clone(algorithms), func(a string) bool { return a == stint.InFlight.String() })
	var options []string
	for _, o := range limitOptions {
		options = append(options, strconv.Quote(o.name)+" "+o.value)
	}
	fmt.Fprintf(w, `
## The text of a limit

`+"```text"+`
limit     = amount "per" period [ algorithm ] { option }
          | amount "per" unit [ "fixed_window" ] { option }
          | amount "in_flight" { option }
          | "unlimited" .
amount    = digit { digit } .
period    = a duration of at least 1ms, such as 500ms, 1m30s, 24h or 7d .
unit      = "day" | "week" | "month" | "year" .
algorithm = "%s" .
option    = %s .
`+"```"+`

Words may be in any case, and options in any order. "At once": how many requests pass together after a pause. "The next": when one more does. Both at the start of a window.

| Text | Algorithm | At once | The next | What it means |
| --- | --- | --- | --- | --- |
`, strings.Join(timed, `" | "`), strings.Join(options, " | "))
	for _, e := range limitExamples {
		l := stint.MustLimit(e.text)
		atOnce, next := measured(t, l)
		fmt.Fprintf(w, "| `%s` | `%s` | %s | %s | %s |\n", e.text, l.Spec().Algorithm, atOnce, next, e.says)
	}
	fmt.Fprint(w, "\n| Option | May be of | What it does |\n| --- | --- | --- |\n")
	for _, o := range limitOptions {
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", o.form, strings.Join(o.of, ", "), o.says)
	}
	fmt.Fprint(w, "\ncalendar: a limit per `day`, `week`, `month` or `year`.\n")
}

// measured is how many units pass under l at once, and when one more does.
func measured(t *testing.T, l *stint.Limit) (atOnce, next string) {
	if l.IsUnlimited() {
		return "all", "at once"
	}
	begin := time.Date(2026, 3, 1, 5, 0, 0, 0, time.UTC) // midnight in New York
	if l.Spec().Calendar.Unit == stint.Month {
		begin = time.Date(2026, 3, 14, 23, 0, 0, 0, time.UTC) // the 15th in Berlin
	}
	holds := l.Spec().Hold > 0 || l.Spec().Algorithm == stint.InFlight
	var limiter stint.Limiter
	ask := func(cost int64) stint.Decision {
		r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l, Cost: cost}}, At: begin}
		if holds {
			r.Hold = stint.NewHoldID()
		}
		d, err := limiter.Take(t.Context(), &r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	n, cost := int64(0), int64(1)
	d := ask(cost)
	for d.Allowed {
		n, cost = n+cost, max(1, d.Remaining)
		d = ask(cost)
	}
	switch {
	case d.RetryAfter == stint.Never:
		return fmt.Sprint(n), "never"
	case holds:
		return fmt.Sprint(n), "when one ends; hint: " + limittext.Duration(d.RetryAfter)
	}
	return fmt.Sprint(n), "after " + limittext.Duration(rounded(d.RetryAfter))
}

// rounded is d for a reader: to tenths of a second, if it is longer than one.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d
	}
	return d.Round(time.Second / 10)
}

// The options and algorithms of the page are the parser's, and each of these takes the options that the
// page says and no other.
func TestReferenceLimits(t *testing.T) {
	var options, shown []string
	for _, o := range limitOptions {
		options = append(options, o.name)
	}
	for _, e := range limitExamples {
		shown = append(shown, e.of.String())
		if l, err := stint.ParseLimit(e.text); err != nil || l.Spec().Algorithm != e.of {
			t.Errorf("%s: %v, %v", e.text, l, err)
		}
	}
	algorithms := parsersList(t, "1 per 1m "+nonsense)
	for _, c := range []struct {
		what      string
		says, are []string
	}{
		{"options", options, parsersList(t, "1 per 1m token_bucket "+nonsense)},
		{"units", []string{"day", "month", "week", "year"}, parsersList(t, "1 per "+nonsense)},
		{"algorithms", shown, algorithms},
	} {
		says, are := slices.Sorted(slices.Values(c.says)), slices.Sorted(slices.Values(c.are))
		if says = slices.Compact(says); !slices.Equal(says, are) {
			t.Errorf("%s: the page has %q, the parser %q", c.what, says, are)
		}
	}
	for _, of := range append(algorithms, calendar) {
		text := "60 per 1m " + of + " "
		switch of {
		case stint.InFlight.String():
			text = "60 in_flight "
		case calendar:
			text = "60 per month "
		}
		for _, o := range limitOptions {
			with := text + o.form
			if o.name == "retry" || o.name == "debt" {
				with = text + "hold 30s " + o.form
			}
			_, err := stint.ParseLimit(with)
			if says := slices.Contains(o.of, of); says != (err == nil) {
				t.Errorf("%s: the page says that it may be: %t; the parser: %v", with, says, err)
			}
		}
	}
}

// The example of a penalty bans as the page says.
func TestReferencePenalty(t *testing.T) {
	const example = "{ban_after: 10, ban_for: 15m, growth: 2, max_ban: 1d}"
	if !strings.Contains(penaltySays, "`"+example+"`") {
		t.Fatal("the example is another")
	}
	set, err := rules.Parse("f", []byte(`rules: [{name: x, key: client.ip, limits: ["0 per 1m"], penalty: `+example+`}]`))
	if err != nil {
		t.Fatal(err)
	}
	var limiter stint.Limiter
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, want := range []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour, 24 * time.Hour} {
		for violation := 1; violation <= 10; violation++ {
			r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: set.Rules[0].Limits[0], Penalty: set.Rules[0].Penalty}}, At: at}
			d, err := limiter.Take(t.Context(), &r, nil)
			if err != nil || (d.BanLeft > 0) != (violation == 10) || violation == 10 && d.BanLeft != want {
				t.Fatalf("violation %d: %v, banned for %s, %v; want %s", violation, d.Outcome, d.BanLeft, err, want)
			}
			at = at.Add(time.Second + d.BanLeft)
		}
	}
}
