package stint_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stintdev/stint"
)

func TestParseLimit(t *testing.T) {
	for _, c := range []struct {
		text string
		want stint.Spec
		back string // what String gives; "": the same text
	}{
		{"100 per 1m", stint.Spec{Amount: 100, Period: time.Minute}, ""},
		{"5 per 10s sliding_log", stint.Spec{Algorithm: stint.SlidingLog, Amount: 5, Period: 10 * time.Second}, ""},
		{"100 per 1h token_bucket burst 20", stint.Spec{Amount: 100, Period: time.Hour, Burst: 20}, ""},
		{"100 per 1h burst 20", stint.Spec{Amount: 100, Period: time.Hour, Burst: 20}, "100 per 1h token_bucket burst 20"},
		{"10 per 1s leaky_bucket", stint.Spec{Algorithm: stint.LeakyBucket, Amount: 10, Period: time.Second}, ""},
		{"500 per 24h sliding_window buckets 12", stint.Spec{Algorithm: stint.SlidingWindow, Amount: 500, Period: 24 * time.Hour, Buckets: 12}, ""},
		{" 7\tper  7d fixed_window\n", stint.Spec{Algorithm: stint.FixedWindow, Amount: 7, Period: 168 * time.Hour}, "7 per 168h fixed_window"},
		{"1 per 1h30m", stint.Spec{Amount: 1, Period: 90 * time.Minute}, ""},
		{"1 per 90s", stint.Spec{Amount: 1, Period: 90 * time.Second}, "1 per 1m30s"},
		{"1000 per 1s lease 5%", stint.Spec{Amount: 1000, Period: time.Second, Lease: 5}, ""},
		{"1000 per 1s token_bucket burst 50 lease 50%", stint.Spec{Amount: 1000, Period: time.Second, Burst: 50, Lease: 50}, ""},
		{"1000 per 1s fixed_window lease 1%", stint.Spec{Algorithm: stint.FixedWindow, Amount: 1000, Period: time.Second, Lease: 1}, ""},
		{"login: 5 per 1m", stint.Spec{Name: "login", Amount: 5, Period: time.Minute}, ""},
		{"\t log in :5 per 1m", stint.Spec{Name: "log in", Amount: 5, Period: time.Minute}, "log in: 5 per 1m"},
		{"tenant:7: api: 5 per 1m fixed_window", stint.Spec{Name: "tenant:7: api", Algorithm: stint.FixedWindow, Amount: 5, Period: time.Minute}, ""},
		{"5 per 1m: 7 per 1h", stint.Spec{Name: "5 per 1m", Amount: 7, Period: time.Hour}, ""},
		{"1 per 1.5ms", stint.Spec{Amount: 1, Period: 1500 * time.Microsecond}, ""},
	} {
		l, err := stint.ParseLimit(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if l.Spec() != c.want {
			t.Errorf("%q: %+v, want %+v", c.text, l.Spec(), c.want)
		}
		if c.back == "" {
			c.back = c.text
		}
		if l.String() != c.back {
			t.Errorf("%q prints %q, want %q", c.text, l, c.back)
		}
	}
}

func TestParseLimitRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "want AMOUNT per PERIOD",
		"100":                                    "want AMOUNT per PERIOD",
		": 5 per 1m":                             `a name must come before ":", such as "login: 5 per 1m"`,
		"login:":                                 "want AMOUNT per PERIOD",
		"a\x00b: 5 per 1m":                       "must be printable text",
		"api: 1 per 1m burst 2 token_bucket":     `write "1 per 1m token_bucket burst 2"`,
		strings.Repeat("x", 193) + ": 5 per 1m":  "name of 193 bytes",
		"100/1m":                                 "want AMOUNT per PERIOD",
		"100 in 1m":                              "want AMOUNT per PERIOD",
		"x per 1m":                               `amount "x"`,
		"1.5 per 1m":                             `amount "1.5"`,
		"99999999999999999999 per 1m":            `amount "99999999999999999999"`,
		"-1 per 1m":                              "amount -1: must be at least 1",
		"1 per 1":                                `period "1": must be a duration`,
		"1 per 0s":                               "period 0s: must be at least 1ms",
		"1 per 999999999d":                       `period "999999999d"`,
		"1 per -7d":                              `period "-7d"`,
		"1 per -200000d":                         `period "-200000d"`,
		"1 per 1m gcra":                          `unknown algorithm "gcra": one of token_bucket`,
		"1 per 1m burst":                         `"burst": a number must follow`,
		"4 in_flight hold 0s":                    `hold "0s"`,
		"1 per 1m fixed_window debt 50%":         `debt "50%": must be a whole number of units`,
		"4 in_flight burst 2":                    "burst 2: only token_bucket",
		"1 per 1m burst 0":                       `burst "0": must be a whole number of at least 1`,
		"1 per 1m burst 2 burst 3":               "only once",
		"1 per 1m burst 2 token_bucket":          `"token_bucket" must come right after the period: write "1 per 1m token_bucket burst 2"`,
		"1 per 1m burst 20 sliding_log":          `"sliding_log" must come right after the period, and then: burst 20: only token_bucket and leaky_bucket have a burst`,
		"fixed_window 1 per 1m":                  `"fixed_window" must come right after the period: write "1 per 1m fixed_window"`,
		"1 fixed_window per 1m":                  `write "1 per 1m fixed_window"`,
		"1 per 1m lease 5% fixed_window":         `write "1 per 1m fixed_window lease 5%"`,
		"x per 1m burst 2 token_bucket":          `"token_bucket" must come right after the period, and then: amount "x"`,
		"1 per 1m fixed_window token_bucket":     `"fixed_window" and "token_bucket": only one algorithm`,
		"1 per 1m burst=20":                      `"burst=20": write "burst 20"`,
		"fixed_window":                           `want AMOUNT per PERIOD`,
		"1 per 1m size 2":                        `unknown algorithm "size"`,
		"1 per 1m token_bucket size 2":           `"size": only in, starts, burst, buckets, lease, hold, retry, debt may follow`,
		"1 per 1m sliding_log burst 2":           "only token_bucket and leaky_bucket have a burst",
		"1 per 1m lease 0%":                      `lease "0%": must be a share from 1% to 50%, such as 5%`,
		"1 per 1m lease 51%":                     `lease "51%": must be a share`,
		"1 per 1m lease 5":                       `lease "5": must be a share`,
		"1 per 1m lease 5% lease 5%":             `"lease": only once`,
		"1 per 1m leaky_bucket lease 5%":         "lease 5%: only the store knows when a request may leave a leaky_bucket",
		"1 per 1m sliding_log lease 5%":          "lease 5%: a sliding_log frees a unit one period after it was charged",
		"1 per 1m sliding_window lease 5%":       "lease 5%: a sliding_window frees a unit",
		"1 per 1s sliding_window buckets 7":      "do not divide the period",
		"1 per 1s sliding_window buckets 123456": "from 1 to 1000",
		strings.Repeat("9", 1<<20) + " per 1m":   "amount",
	} {
		_, err := stint.ParseLimit(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %q", text, err, want)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%.40q: an error of %d bytes", text, len(err.Error()))
		}
	}
}

func TestNames(t *testing.T) {
	l, login := stint.MustLimit("100 per 1m"), stint.MustLimit("login: 100 per 1m")
	if login.Spec().Name != "login" || l.Spec().Name != "" || login.ID() == l.ID() {
		t.Errorf("%v %q", login, l.Spec().Name)
	}
	for _, bad := range []string{" a", "a ", "a\x00b", "a\nb", "\xff", strings.Repeat("x", 193)} {
		if _, err := stint.NewLimit(stint.Spec{Name: bad, Amount: 1, Period: time.Second}); err == nil {
			t.Errorf("name %.20q was taken", bad)
		}
	}
}

// What String says is read back as the same limit, whatever the name.
func TestLimitsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := strings.TrimSpace(rapid.StringOfN(rapid.RuneFrom([]rune(`a: 5perm/"ß`)), 0, 40, 192).Draw(t, "name"))
		text := rapid.SampledFrom([]string{"5 per 1m", "7 per 168h sliding_window buckets 12", "100 per 1h token_bucket burst 20 lease 5%"}).Draw(t, "text")
		s := stint.MustLimit(text).Spec()
		s.Name = name
		l, err := stint.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := stint.ParseLimit(l.String())
		if err != nil || again.Spec() != l.Spec() || again.ID() != l.ID() || l.Terms() != text {
			t.Fatalf("%q: %v, %v", l, again, err)
		}
	})
}

// Limits share counts only where a change of the amount or burst is all that lies
// between them.
func TestID(t *testing.T) {
	same := [][2]string{
		{"5 per 1m", "7 per 60s burst 9"},
		{"100 per 1m", "100 per 1m lease 5%"},
		{"5 per 1m sliding_window", "7 per 1m sliding_window buckets 10"},
	}
	for _, c := range same {
		if a, b := stint.MustLimit(c[0]).ID(), stint.MustLimit(c[1]).ID(); a != b {
			t.Errorf("%q has ID %q, %q has %q", c[0], a, c[1], b)
		}
	}
	seen := map[string]string{}
	for _, text := range []string{"5 per 1m", "5 per 1h", "5 per 1m leaky_bucket", "5 per 1m fixed_window", "5 per 1m sliding_log",
		"5 per 1m sliding_window", "5 per 1m sliding_window buckets 1", "5 per 1.5ms", "5 per 1500ms"} {
		id := stint.MustLimit(text).ID()
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %q share ID %q", text, other, id)
		}
		seen[id] = text
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"100 per 1m", "5 per 10s sliding_log", "100 per 1h token_bucket burst 20", "1 per 7d sliding_window buckets 7", "9999999999 per 1ms"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := stint.ParseLimit(text)
		if err != nil {
			return
		}
		again, err := stint.ParseLimit(l.String())
		if err != nil {
			t.Fatalf("%q prints %q, which is refused: %v", text, l, err)
		}
		if again.Spec() != l.Spec() {
			t.Fatalf("%q prints %q, which means %+v instead of %+v", text, l, again.Spec(), l.Spec())
		}
	})
}
