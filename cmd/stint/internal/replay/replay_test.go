package replay

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/sample"
	"github.com/stintdev/stint/internal/heavy"
	"github.com/stintdev/stint/server/rules"
)

// A sample keeps a bounded number of keys, and tells how many there are, and of how many something is true.
func TestSample(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 1000, 1001, 40_000, 300_000} {
		s := sample.New[*bool](1000)
		for range n {
			hash := random.Uint64()
			for range 2 { // again is the same key
				if v, isNew := tallyOf(&s, hash); v != nil && isNew {
					*v = random.IntN(4) == 0
				}
			}
		}
		if len(s.Of) > s.Most || s.IsPart() != (n > s.Most) {
			t.Fatalf("of %d keys %d are kept, a part: %t", n, len(s.Of), s.IsPart())
		}
		keys, marked := count(&s, func(v *bool) bool { return *v })
		near := func(got int64, want float64) bool { return float64(got) >= 0.8*want && float64(got) <= 1.2*want }
		if n <= s.Most && keys != int64(n) || !near(keys, float64(n)) {
			t.Errorf("%d keys are told to be %d", n, keys)
		}
		if n >= 1000 && !near(marked, float64(n)/4) {
			t.Errorf("a quarter of %d keys is told to be %d", n, marked)
		}
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		n, all int64
		want   string
	}{
		{0, 0, "0%"}, {0, 5, "0%"}, {5, 5, "100%"}, {1, 3, "33%"}, {1, 1_000_000, "under 0.01%"}, {999_999, 1_000_000, "99.99%"},
		{1, 100, "1.0%"}, {12, 1000, "1.2%"}, {7, 1000, "0.70%"}, {999, 10_000, "10%"}, {994, 10_000, "9.9%"}, {9_899, 10_000, "99%"},
	} {
		if got := Share(c.n, c.all).String(); got != c.want {
			t.Errorf("%d of %d: %s, want %s", c.n, c.all, got, c.want)
		}
	}
}

func TestJudgement(t *testing.T) {
	good := []Client{{Client: "192.0.2.1"}}
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{}, "It applies to no request of this log."},
		{Rule{Requests: 9, Keys: 30}, "It refuses nothing: no key reaches a limit."},
		{Rule{Requests: 9, Mode: "shadow", Keys: 30}, "It would refuse nothing: no key reaches a limit."},
		{Rule{Requests: 9, Refused: 1, Keys: 3, RefusedKeys: 1}, "It refuses 1 of only 3 keys at least once: too few to judge by."},
		{Rule{Requests: 900, Refused: 9, Keys: 100, RefusedKeys: 5}, "It is probably too strict, or many clients misbehave: it refuses 5.0% of the keys at least once."},
		{Rule{Requests: 900, Refused: 9, Keys: 100, RefusedKeys: 5, Best: good}, "It is probably too strict: it refuses 5.0% of the keys at least once, also of clients whose other requests all passed."},
		{Rule{Requests: 900, Refused: 9, Keys: 100, RefusedKeys: 4, Best: good}, "It refuses few keys (4.0%), but some are of clients whose other requests all passed: look at those."},
		{Rule{Requests: 900, Refused: 9, Keys: 100, RefusedKeys: 4}, "It refuses 4.0% of the keys, and of no client whose other requests all passed."},
		{Rule{Requests: 900, Refused: 9, Keys: 1000, RefusedKeys: 4}, "It refuses few keys (0.40%), and of no client whose other requests all passed."},
	} {
		if got := c.rule.judge().String(); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.rule, got, c.want)
		}
	}
}

// Text fits 80 columns, and a log's texts cannot write what a terminal would obey.
func TestTextFits(t *testing.T) {
	hostile := strings.Repeat("\x1b[31mé\u202e", 40)
	p := Report{
		Requests: 1_234_567_890, Judgement: phrase.Plain(strings.Repeat("some words ", 30)),
		Rules: Outcome{Refused: 1_234_567, Clients: 12_345_678, RefusedClients: 1_234_567},
		Log: Log{
			Files: []File{{Path: "access.log", Form: "combined"}}, Unread: 12, Late: 3,
			FirstUnread: []UnreadLine{{"access.log", 7, "it is not of the form combined"}},
		},
		Against:     &Outcome{File: "old.yaml", Refused: 1_234_567},
		NotReplayed: []NotReplayed{{Rule: strings.Repeat("r", 64), Reads: []string{`request.headers["x-key"]`, "body", "claims"}}},
		Notes:       []phrase.Phrase{phrase.Plain(strings.Repeat("a note of some length ", 9))},
		ByRule: []Rule{{
			Name: strings.Repeat("n", 64), Key: "client.ip", Limits: []string{"100 per 1m", "1000 per 1d"}, Requests: 1_234_567_890, Refused: 123_456_789,
			Keys: 12_345_678, RefusedKeys: 1_234_567, Bans: 4, Judgement: phrase.Plain("It is probably too strict."),
			MostRefused: []Key{{Key: rules.Key(hostile), Refused: 123_456_789, Requests: 1_234_567_890}},
			Best:        []Client{{Client: hostile, Refused: 12, Passed: 12_345, SignedIn: true}},
			Hours:       []Hour{{time.Unix(0, 0), 10, 1}, {time.Unix(3600, 0), 10, 9}},
		}},
	}
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > width {
			t.Errorf("%d characters: %s", n, line)
		}
		if strings.ContainsAny(line, "\x1b\u202e") {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(b.String(), "most in the hour from 1970-01-01 01:00 UTC: 9 of 10") {
		t.Error(b.String())
	}
}

// The heaviest keys are found with a bound of their count. What is shown is never more than was refused.
func TestMostRefused(t *testing.T) {
	tally := ruleTally{keys: sample.New[*keyTally](0), most: heavy.New(mostRefusedKeys)}
	for i := range 50_000 {
		tally.most.Add([]byte(strconv.Itoa(i)), 1)
		if i%100 == 0 {
			tally.most.Add([]byte("busy"), 1)
		}
	}
	all := tally.mostRefused()
	if len(all) != mostShown || all[0].Key != "busy" || all[0].Refused != 500 || all[1].Refused != 1 {
		t.Errorf("%+v", all)
	}
}

// An entry of a list is no rule, and a log without requests has no times.
func TestWords(t *testing.T) {
	p := Report{Requests: 1, NotReplayed: []NotReplayed{{Rule: "a"}, {Entry: "blocklist entry 1"}}, ByRule: []Rule{{Name: "watch", Key: "client.ip"}}}
	var b strings.Builder
	p.Judgement = p.judge()
	p.Write(&b)
	for _, want := range []string{"1 request, ", "; 1 rule not replayed.", "watch: no limit, by client.ip"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %s", want, &b)
		}
	}
	b.Reset()
	(&Report{}).Write(&b)
	if strings.Contains(b.String(), "UTC") {
		t.Error(b.String())
	}
}

// Of thousands of files, some are named, and those that were not read are not hidden among the others.
func TestManyFiles(t *testing.T) {
	var l Log
	for range 30 {
		l.Files = append(l.Files, File{Path: "read.log", Form: "alb"})
	}
	for range mostFiles {
		l.Files = append(l.Files, File{Path: "other.log", Skipped: "its form is not recognised"})
	}
	var w writer
	w.files(&l)
	want := strings.Repeat("read.log: alb\n", 10) + strings.Repeat("other.log: not read: its form is not recognised\n", 10) + "20 more files that were read\n"
	if w.String() != want {
		t.Error(w.String())
	}
}
