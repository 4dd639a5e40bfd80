package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

func busyView() *topView {
	v := newTopView("stint.example:8090")
	v.now = &adminapi.Live{
		At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Outcomes: adminapi.Rates{"allowed": 1200, "limited": 34.6},
		Decide: adminapi.Quantiles{P50: 12, P99: 2300}, Store: adminapi.Quantiles{P50: 400, P99: 1_200_000},
		Calls: 800, Failures: 1.5, Fallback: 2, Decides: "on_store_error", Breaker: "open", Instances: 2, Bans: 3, Firing: 1, Holds: 12, HoldsLost: 0.5, CostsUnknown: 2, Version: "v1",
		Rules: []adminapi.LiveRule{{Name: "login", Applied: 100, Decided: 80, Refused: 30}, {Name: "all", Applied: 1134.5, Decided: 1134.5, Refused: 4.5}, {Name: "trial\x1b[2J", Refused: 7}},
	}
	v.series = &adminapi.Series{Step: 5, Outcomes: map[string][]float64{"allowed": {9, 9, 9}, "limited": {0, 1, 2}, "banned": {0, 0, 2}}}
	v.instances = []adminapi.Instance{{ID: "a", Host: "one", Outcomes: adminapi.Rates{"allowed": 600}, Version: "v1", Decides: "store"}, {ID: "b", Host: "two\u202e", Version: "v2", Decides: "on_store_error"}}
	v.offenders = &adminapi.Offenders{Offenders: []adminapi.Offender{{Rule: "login", Key: rules.Key("192.0.2.1"), Count: 100, Error: 3}, {Rule: "login", Key: "a\x00\x1b", Count: 9}}}
	return v
}

// A view shows all that it has, in the order that the keys choose, and nothing that a terminal
// obeys.
func TestTopView(t *testing.T) {
	v := busyView()
	order := func() (names []string) {
		for _, line := range v.lines(0, 0) {
			if name, _, _ := strings.Cut(line, " "); name == "login" || name == "all" || strings.HasPrefix(name, `"trial`) {
				names = append(names, name)
			}
		}
		return names
	}
	for key, want := range map[byte][]string{
		'd': {"all", "login", `"trial\x1b[2J"`}, 'r': {"login", `"trial\x1b[2J"`, "all"}, 'n': {"all", "login", `"trial\x1b[2J"`},
	} {
		if v.press(key) {
			t.Errorf("%c quits", key)
		}
		if got := order(); !slices.Equal(got, want) {
			t.Errorf("%c: %q, want %q", key, got, want)
		}
	}
	text := strings.Join(v.lines(0, 0), "\n")
	for _, want := range []string{
		"2 instances", "1235/s, allowed 1200, limited 34.6", "p50 12µs, p99 2.3ms", "1.5 failed/s", "12 requests in flight, 0.5 LOST/s, 2.0 of unknown cost/s", "p99 1.20s", "EACH RULE'S on_store_error, 2.0 decisions/s",
		"breaker open", "1 FIRING", "▁▃█  the last 15s", "30.0%", "shadow", "HOST", "two", "192.0.2.1", "97",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	if said := strings.ReplaceAll(text, "\n", ""); strings.ContainsFunc(said, controlCharacter) || strings.ContainsRune(said, 0x202e) {
		t.Errorf("it says what a terminal obeys: %q", said)
	}
	v.press('o')
	if v.offenders != nil || v.wants() != (topWants{"rules", "refusals"}) {
		t.Errorf("%+v", v.wants())
	}
	for _, n := range []int{3, 3} {
		for range n {
			v.press('b')
		}
		if v.wants().by != "refusals" {
			t.Errorf("%+v", v.wants())
		}
	}
	if err := (around{series: v.series, asked: topWants{"keys", "refusals"}, offenders: new(adminapi.Offenders)}).into(v); err != nil || v.offenders != nil {
		t.Error("offenders of keys are shown as rules")
	}
	for _, key := range []byte{'q', 3} {
		if !v.press(key) {
			t.Errorf("%q does not quit", key)
		}
	}
}

// A view fits into its terminal, however small, and its last line says what is wrong.
func TestTopFits(t *testing.T) {
	v := busyView()
	for width := 1; width < 100; width += 7 {
		for height := 1; height < 40; height++ {
			lines := v.lines(width, height)
			if len(lines) != height {
				t.Fatalf("%d lines of %d", len(lines), height)
			}
			for _, line := range lines {
				if utf8.RuneCountInString(line) > width {
					t.Fatalf("%d wide: %q", width, line)
				}
			}
		}
	}
	last := func() string { all := v.lines(80, 24); return all[len(all)-1] }
	if !strings.HasPrefix(last(), "q quit") {
		t.Error(last())
	}
	v.press(' ')
	if !strings.Contains(last(), "paused") {
		t.Error(last())
	}
	v.trouble = "no answer\x1b"
	if last() != `NOT CURRENT: no answer\x1b` {
		t.Error(last())
	}
	v.now = nil
	if got := v.lines(80, 24)[0]; got != "waiting for stint.example:8090" {
		t.Error(got)
	}
}

func TestPerSecond(t *testing.T) {
	for rate, want := range map[float64]string{0: "0", 0.5: "0.5", 99.94: "99.9", 100: "100", 99_999: "99999", 100_000: "100k", 12_345_678: "12M"} {
		if got := perSecond(rate); got != want {
			t.Errorf("%v: %s, want %s", rate, got, want)
		}
	}
}

// A stream that is lost is opened again, and the reason is told. One that is refused is not.
func TestLostStream(t *testing.T) {
	t.Parallel()
	calls := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch calls++; calls {
		case 1, 2:
			fmt.Fprintf(w, "retry: 2000\ndata: {\"at\":\"2026-03-01T12:00:0%dZ\",\"rule\":{\"name\":\"login\",\"outcomes\":{\"allowed\":%d}}}\n\n", calls, calls)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"status":404,"detail":"There is no rule \"login\" in force."}`)
		}
	}))
	defer s.Close()
	code, out, errs := call("", "watch", "login", "--admin", s.URL)
	if code != 1 || calls != 3 || !strings.Contains(out, "12:00:01       1.0") || !strings.Contains(out, "12:00:02       2.0") {
		t.Errorf("exit %d, %d calls: %s", code, calls, out)
	}
	if strings.Count(errs, "the stream of the admin API ended; trying again") != 2 || !strings.Contains(errs, `There is no rule "login" in force`) {
		t.Error(errs)
	}
}

// A server that sends nothing does not hold up watch for longer than --timeout.
func TestSilentStream(t *testing.T) {
	gone := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer s.Close()
	want(t, calling(s.URL), 1, []string{"none within 50ms", "--timeout"}, "top", "--timeout", "50ms")
	<-gone
}
