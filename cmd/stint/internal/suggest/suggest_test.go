package suggest

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

const monday = 1_790_553_600_000_000 // 2026-09-28 00:00 UTC

// TestByHand has 100 keys. The n-th makes n requests at once at noon, on four days.
func TestByHand(t *testing.T) {
	s := New(Options{Untouched: 0.9})
	for d := range 4 {
		for k := 1; k <= 100; k++ {
			for range k {
				s.Observe(fmt.Sprint("key ", k), monday+int64(d)*perDay+perDay/2, 1)
			}
		}
	}
	got, err := s.Suggest()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range got.Windows {
		if w.Needed != 90 || w.highest() != 100 {
			t.Errorf("%v: %d of %v, want 90 of 100 at most", w.Period, w.Needed, w.Curve)
		}
		last := w.Curve[len(w.Curve)-1]
		if len(w.Curve) > mostPoints || last != (Point{100, 100}) {
			t.Errorf("%v: %d points, the last %v", w.Period, len(w.Curve), last)
		}
		for i, p := range w.Curve {
			if int64(p.Keys) != p.Peak || i > 0 && p.Keys <= w.Curve[i-1].Keys {
				t.Errorf("%v: %d keys have at most %d", w.Period, p.Keys, p.Peak)
			}
		}
	}
	// 90 and 20%, rounded up. No key uses more in a day than in a second.
	if texts := got.Texts(); len(texts) != 1 || texts[0] != "110 per 24h" {
		t.Errorf("limits %q", texts)
	}
	if got.Untouched != 1 || got.Share != 0.9 || got.Keys != 100 || got.Requests != 4*5050 {
		t.Errorf("%v untouched of the wished %v; %d keys, %d requests", got.Untouched, got.Share, got.Keys, got.Requests)
	}
	const why = "90% of 100 keys never used more than 90 in any 24h, and the limit has a margin of 20%, rounded up."
	if got.Why.String() != why {
		t.Errorf("why: %s", got.Why)
	}
	want := []string{
		"The log is shorter than a week, and may miss the busiest days.",
		"No crawler and nobody who attacks was recognized.",
	}
	if fmt.Sprint(got.Notes) != fmt.Sprint(want) {
		t.Errorf("notes %q", got.Notes)
	}
}

// TestSteady has keys that send at an even pace: a bucket that holds little suffices.
func TestSteady(t *testing.T) {
	s := New(Options{Untouched: 0.9})
	for at := int64(0); at < 2*perDay+perDay/8; at += 10 * second {
		for k := range int64(30) {
			s.Observe(nameOf(int(k)), monday+at+k*second/10, 1)
		}
	}
	got, err := s.Suggest()
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Limits) != 1 || got.Limits[0].Algorithm != stint.TokenBucket || got.Limits[0].Burst > 2 {
		t.Errorf("limits %v, want a token bucket with a small burst", got.Limits)
	}
}

// TestCrawler has one key that makes most of the requests. It is named, and does not count.
func TestCrawler(t *testing.T) {
	s := New(Options{Untouched: 0.99})
	for d := range 5 {
		for i := range 3000 {
			at := monday + int64(d)*perDay + int64(i)*25*second
			s.Observe("crawler", at, 1)
			for n := range 1 + i%4 {
				s.Observe(fmt.Sprint("key ", i%1000), at+int64(n)*second, 1)
			}
		}
	}
	got, err := s.Suggest()
	if err != nil {
		t.Fatal(err)
	}
	if got.ApartKeys != 1 || got.Apart[0].Key != "crawler" || got.Apart[0].Units != 15_000 || got.Windows[5].highest() > 20 {
		t.Errorf("%d keys apart %v, highest peak of the others %d", got.ApartKeys, got.Apart, got.Windows[5].highest())
	}
	if !strings.Contains(got.Why.String(), "set apart: 1 key with 28.6% of the units") {
		t.Errorf("why: %s", got.Why)
	}
	if why := got.Apart[0].Why().String(); why != "3,000 in 24h, 400 times the mean of the others" {
		t.Errorf("crawler: %s", why)
	}
}

// TestIncident has keys that make three requests each day at 10:20, and on the third day thirty.
func TestIncident(t *testing.T) {
	s := New(Options{Untouched: 0.95})
	for d := range 6 {
		n := int64(3)
		if d == 2 {
			n = 30
		}
		for k := range 200 {
			s.Observe(nameOf(k), monday+int64(d)*perDay+(10*3600+1200)*second+int64(k)*second, n)
		}
	}
	got, err := s.Suggest()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range got.Windows[:5] {
		if w.Needed != 3 {
			t.Errorf("%v: %d, want 3", w.Period, w.Needed)
		}
	}
	from, to := time.Date(2026, 9, 30, 9, 0, 0, 0, time.UTC), time.Date(2026, 9, 30, 12, 0, 0, 0, time.UTC)
	if !got.ApartFrom.Equal(from) || !got.ApartTo.Equal(to) {
		t.Errorf("apart from %v to %v, want %v to %v", got.ApartFrom, got.ApartTo, from, to)
	}
	if !strings.Contains(got.Why.String(), "set apart: what was from 2026-09-30 09:00 to 2026-09-30 12:00 UTC") {
		t.Errorf("why: %s", got.Why)
	}
}

// TestTooLittle says what a log cannot tell.
func TestTooLittle(t *testing.T) {
	s := New(Options{})
	if _, err := s.Suggest(); err != ErrFewKeys {
		t.Errorf("no request: %v", err)
	}
	for i := range 500 {
		s.Observe(fmt.Sprint(i), monday+int64(i)*4*second, 1)
	}
	got, err := s.Suggest()
	if err != nil {
		t.Fatal(err)
	}
	if got.Share != 0.99 || len(got.Windows) != 4 {
		t.Errorf("share %v, %d windows; want 0.99, and up to 10m", got.Share, len(got.Windows))
	}
	for _, want := range []string{
		"500 keys cannot tell 99.9%, which needs 3,000: the numbers are for 99%.",
		"The log is too short for windows of 1h and longer: they need one twice as long.",
		"The log is shorter than a day, and may miss the busiest hours.",
		"The log has too few days to recognize one with an incident.",
	} {
		if !strings.Contains(fmt.Sprint(got.Notes), want) {
			t.Errorf("no note %q in %q", want, got.Notes)
		}
	}
}

// TestSample has more keys than a study remembers. Shares of the sample are those of all keys, and
// a study of the same requests has the same sample.
func TestSample(t *testing.T) {
	study := func() *Study {
		s := New(Options{})
		s.keys.Most = 2000
		for round := range 10 {
			for i := range 50_000 {
				if i%10 >= round {
					s.Observe(fmt.Sprint("key ", i), monday+int64(round)*second, 1)
				}
			}
		}
		return s
	}
	s := study()
	got, err := s.Suggest()
	if err != nil {
		t.Fatal(err)
	}
	n := float64(len(s.keys.Of))
	if n > 2000 || n < 500 || math.Abs(float64(got.Keys)/50_000-1) > 4/math.Sqrt(n) || !got.Sampled || got.Requests != 275_000 {
		t.Errorf("%v keys are in the sample, %d of 50,000 in all, %d requests", n, got.Keys, got.Requests)
	}
	var peaks [11]float64
	for _, k := range s.states() {
		peaks[int(k.top[1][0])]++
	}
	for p := 1; p <= 10; p++ {
		if math.Abs(peaks[p]/n-0.1) > 4*math.Sqrt(0.1*0.9/n) {
			t.Errorf("%v of the sample have the peak %d, want a tenth", peaks[p]/n, p)
		}
	}
	if again, err := study().Suggest(); err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("%v, then %v: the sample is another", got, again)
	}
}

// TestOddRequests are not in order, cost nothing or too much, or are from before 1970.
func TestOddRequests(t *testing.T) {
	s := New(Options{Margin: -1})
	for i := range 100 {
		name := fmt.Sprint(i)
		s.Observe(name, -5*perDay-1, 0)
		s.Observe(name, -5*perDay-1, math.MaxInt64)
		s.Observe(name, -9*perDay, math.MaxInt64)
		s.Observe(name, 400*perDay, 1)
	}
	got, err := s.Suggest()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range got.Limits {
		if _, err := l.Limit(); err != nil {
			t.Error(err)
		}
	}
}

// highest is the highest peak.
func (w *Window) highest() int64 { return w.Curve[len(w.Curve)-1].Peak }

// TestLimitsAreLimits reads the text of limits back.
func TestLimitsAreLimits(t *testing.T) {
	for _, l := range []Limit{
		{Amount: 120, Period: time.Minute, Algorithm: stint.SlidingWindow},
		{Amount: 900, Period: time.Hour, Algorithm: stint.TokenBucket, Burst: 250},
		{Amount: 1, Period: 24 * time.Hour, Algorithm: stint.SlidingWindow},
		{Amount: 9_900_000, Period: time.Second, Algorithm: stint.SlidingWindow},
	} {
		read, err := stint.ParseLimit(l.String())
		if err != nil {
			t.Error(err)
		} else if read.Terms() != l.String() || read.Spec().Amount != l.Amount || read.Spec().Burst != l.Burst {
			t.Errorf("%s is read as %s", l, read)
		}
	}
}

// TestCandidates has keys that send evenly, and keys that send a batch at the same minute of each
// hour, or day. In a window with one batch, only a bucket suffices that holds it.
func TestCandidates(t *testing.T) {
	even, batch := keyPeaks{10, 100, 600, 6000, 36_000, 864_000}, keyPeaks{50, 50, 50, 50, 50, 1200}
	for _, c := range []struct {
		key    keyPeaks
		window int
		want   string
	}{
		{even, 3, "[7200 per 10m 7200 per 10m token_bucket burst 12 7200 per 10m sliding_window]"},
		{even, 1, "[120 per 10s 120 per 10s token_bucket burst 12 120 per 10s sliding_window]"},
		{batch, 4, "[60 per 1h]"}, // a sliding_window may count 100
		{batch, 5, "[1500 per 24h 1500 per 24h token_bucket burst 60 1500 per 24h sliding_window]"},
		{keyPeaks{50, 50, 50, 50, 50, 50}, 5, "[60 per 24h]"},
	} {
		people := make([]keyPeaks, 50)
		for i := range people {
			people[i] = c.key
		}
		window := Window{Period: periods[c.window], Needed: int64(c.key[c.window])}
		if got := fmt.Sprint(candidates(people, c.window, window, 0.9, 0.2)); got != c.want {
			t.Errorf("%v: %s, want %s", c.key, got, c.want)
		}
	}
}

// Of more keys than the Options allow, a sample is remembered.
func TestFewerKeys(t *testing.T) {
	s := New(Options{Untouched: 0.9, Keys: 500})
	for k := range 3000 {
		s.Observe(fmt.Sprint(k), monday+int64(k)*second, int64(1+k%10))
	}
	got, err := s.Suggest()
	if err != nil || len(s.keys.Of) > 500 || !got.Sampled || got.Keys < 2000 || got.Keys > 4000 {
		t.Errorf("%d keys are remembered, of %d; %v", len(s.keys.Of), got.Keys, err)
	}
}

// A week of requests is a week, though none comes at its first and its last moment.
func TestWeek(t *testing.T) {
	const hour, week = 3600 * second, 7 * 24 * 3600 * second
	for _, c := range []struct {
		from, to int64
		is       string
	}{
		{hour / 10, week - hour/10, ""}, {2 * hour, week, "The log is shorter than a week"},
		{hour / 10, 24*hour - hour/10, "The log is shorter than a week"}, {0, 22 * hour, "The log is shorter than a day"},
	} {
		s := New(Options{Untouched: 0.9})
		for k := range int64(100) {
			s.Observe(fmt.Sprint(k), monday+c.from+k*(c.to-c.from)/99, 1)
		}
		got, err := s.Suggest()
		said := ""
		for _, n := range got.Notes {
			if n := n.String(); strings.Contains(n, "shorter than") {
				said, _, _ = strings.Cut(n, ",")
			}
		}
		if err != nil || said != c.is {
			t.Errorf("from %d to %d h: %q, want %q; %v", c.from/hour, c.to/hour, said, c.is, err)
		}
	}
}
