package limittest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// checkFields checks every field of decisions against the contract and the documentation of stint.
func checkFields(t testing.TB, e *env) {
	store := e.open()
	for _, s := range scenes {
		s.play(&stage{reader: reader{t: t, store: store}, scene: s.name})
	}
}

// noon is an instant at which windows of a minute begin.
const noon = 1_700_000_040_000_000

const second = 1_000_000

type stage struct {
	reader
	scene string
}

func (s *stage) key(name string) string { return s.scene + ": " + name }

func (s *stage) ask(at int64, key string, l *stint.Limit, cost int64, p *stint.Penalty) stint.Decision {
	d, _ := s.take(at, stint.Ask{Key: s.key(key), Limit: l, Cost: cost, Peek: cost == 0, Penalty: p})
	return d
}

// fill takes all units that limits allow key at noon.
func (s *stage) fill(key string, limits ...*stint.Limit) {
	for _, l := range limits {
		s.ask(noon, key, l, l.Capacity(), nil)
	}
}

func (s *stage) is(what string, got, want stint.Decision) {
	s.t.Helper()
	s.want(s.scene+": "+what, got, want)
}

// windowOf is a fixed window that is easy to follow: it ends when a minute does.
func windowOf(name string, amount int64) *stint.Limit {
	return mustLimit(stint.Spec{Name: name, Algorithm: stint.FixedWindow, Amount: amount, Period: time.Minute})
}

var (
	one   = windowOf("one", 1)
	three = windowOf("three", 3)
	tri   = windowOf("tri", 3)
	ten   = windowOf("ten", 10)
	slow  = mustLimit(stint.Spec{Name: "slow", Algorithm: stint.FixedWindow, Amount: 3, Period: 2 * time.Minute})
	leaky = mustLimit(stint.Spec{Name: "leaky", Algorithm: stint.LeakyBucket, Amount: 60, Period: time.Minute})

	strict   = mustPenalty(stint.PenaltySpec{Name: "strict", BanAfter: 1, BanFor: 10 * time.Second})
	stricter = mustPenalty(stint.PenaltySpec{Name: "stricter", BanAfter: 1, BanFor: 30 * time.Minute})
	warning  = mustPenalty(stint.PenaltySpec{Name: "warning", WarnAfter: 1})
	twice    = mustPenalty(stint.PenaltySpec{Name: "twice", BanAfter: 2, BanFor: 10 * time.Second})
	often    = mustPenalty(stint.PenaltySpec{Name: "often", WarnAfter: 3, BanAfter: 9, BanFor: 10 * time.Second})
)

func (s *stage) yes(key string, l *stint.Limit, remaining int64, reset time.Duration) stint.Decision {
	return stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: l, Key: s.key(key), Remaining: remaining, ResetAfter: reset}
}

func (s *stage) no(key string, l *stint.Limit, remaining int64, retry, reset time.Duration) stint.Decision {
	return stint.Decision{Outcome: stint.Limited, Limit: l, Key: s.key(key), Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
}

func (s *stage) violation(d stint.Decision, n int64, p *stint.Penalty) stint.Decision {
	d.Penalty, d.Violations = p, n
	return d
}

func (s *stage) warned(d stint.Decision) stint.Decision {
	d.Outcome = stint.Warned
	return d
}

func (s *stage) banned(d stint.Decision, p *stint.Penalty) stint.Decision {
	d.Outcome, d.Penalty, d.Violations, d.BanLeft = stint.Banned, p, p.Spec().BanAfter, p.Spec().BanFor
	d.RetryAfter = max(d.RetryAfter, d.BanLeft)
	return d
}

func (s *stage) running(key string, p *stint.Penalty, left time.Duration) stint.Decision {
	return stint.Decision{Outcome: stint.Banned, Key: s.key(key), RetryAfter: left, BanLeft: left, Penalty: p}
}

var scenes = []struct {
	name string
	play func(*stage)
}{
	{"of those that allow, the least remaining, the first of equals", func(s *stage) {
		d, each := s.take(noon, stint.Ask{Key: s.key("k"), Limit: ten, Cost: 1},
			stint.Ask{Key: s.key("k"), Limit: three, Cost: 1}, stint.Ask{Key: s.key("k"), Limit: tri, Cost: 1})
		s.is("ask 0", each[0], s.yes("k", ten, 9, time.Minute))
		s.is("ask 1", each[1], s.yes("k", three, 2, time.Minute))
		s.is("ask 2", each[2], s.yes("k", tri, 2, time.Minute))
		s.is("whole", d, s.yes("k", three, 2, time.Minute))
	}},
	{"one unit where no cost is given, none by a peek", func(s *stage) {
		l := windowOf("two", 2)
		ask, peek := stint.Ask{Key: s.key("k"), Limit: l}, stint.Ask{Key: s.key("k"), Limit: l, Peek: true}
		d, _ := s.take(noon, ask)
		s.is("the first", d, s.yes("k", l, 1, time.Minute))
		d, _ = s.take(noon, peek)
		s.is("a peek", d, s.yes("k", l, 1, time.Minute))
		d, _ = s.take(noon, ask)
		s.is("the second", d, s.yes("k", l, 0, time.Minute))
		d, _ = s.take(noon, peek)
		s.is("a peek at an exhausted key", d, s.yes("k", l, 0, time.Minute))
		d, each := s.take(noon, ask, stint.Ask{Key: s.key("other"), Limit: l})
		s.is("the third", each[0], s.no("k", l, 0, time.Minute, time.Minute))
		s.is("beside it", each[1], s.yes("other", l, 2, 0))
		s.is("whole", d, s.no("k", l, 0, time.Minute, time.Minute))
	}},
	{"of those that refuse, the longest retry, and none is charged", func(s *stage) {
		s.fill("k", one, slow)
		d, each := s.take(noon+second, stint.Ask{Key: s.key("k"), Limit: one, Cost: 1},
			stint.Ask{Key: s.key("k"), Limit: ten, Cost: 1}, stint.Ask{Key: s.key("k"), Limit: slow, Cost: 1})
		s.is("ask 0", each[0], s.no("k", one, 0, 59*time.Second, 59*time.Second))
		s.is("ask 1 would have", each[1], s.yes("k", ten, 10, 0))
		s.is("ask 2", each[2], s.no("k", slow, 0, 119*time.Second, 119*time.Second))
		s.is("whole", d, s.no("k", slow, 0, 119*time.Second, 119*time.Second))
		s.is("uncharged", s.ask(noon+second, "k", ten, 0, nil), s.yes("k", ten, 10, 0))
	}},
	{"never is the longest retry", func(s *stage) {
		s.fill("k", slow)
		d, each := s.take(noon, stint.Ask{Key: s.key("k"), Limit: slow, Cost: 1}, stint.Ask{Key: s.key("other"), Limit: ten, Cost: 11})
		s.is("ask 1", each[1], s.no("other", ten, 10, stint.Never, 0))
		s.is("whole", d, s.no("other", ten, 10, stint.Never, 0))
	}},
	{"the delay is the longest, whoever decides", func(s *stage) {
		s.ask(noon, "k", leaky, 5, nil)
		d, each := s.take(noon, stint.Ask{Key: s.key("k"), Limit: leaky, Cost: 1}, stint.Ask{Key: s.key("k"), Limit: one, Cost: 1})
		want := s.yes("k", leaky, 54, 6*time.Second)
		want.Delay = 5 * time.Second
		s.is("ask 0", each[0], want)
		s.is("ask 1", each[1], s.yes("k", one, 0, time.Minute))
		want = s.yes("k", one, 0, time.Minute)
		want.Delay = 5 * time.Second
		s.is("whole", d, want)
		d, each = s.take(noon, stint.Ask{Key: s.key("k"), Limit: leaky, Cost: 1}, stint.Ask{Key: s.key("k"), Limit: one, Cost: 1})
		s.is("no delay for who is refused, ask 0", each[0], s.yes("k", leaky, 54, 6*time.Second))
		s.is("no delay for who is refused, whole", d, s.no("k", one, 0, time.Minute, time.Minute))
	}},
	{"nobody has to want each answer", func(s *stage) {
		r := stint.Request{Asks: []stint.Ask{{Key: s.key("k"), Limit: three, Cost: 1}}, At: time.UnixMicro(noon)}
		d, err := s.store.Take(context.Background(), &r, nil)
		if err != nil {
			s.t.Fatalf("%s: %v", s.scene, err)
		}
		s.story.add("take", &r, &d, nil)
		s.is("whole", d, s.yes("k", three, 2, time.Minute))
	}},
	{"warned", func(s *stage) {
		s.fill("k", one)
		want := s.warned(s.violation(s.no("k", one, 0, 59*time.Second, 59*time.Second), 1, warning))
		d, each := s.take(noon+second, stint.Ask{Key: s.key("k"), Limit: one, Cost: 1, Penalty: warning})
		s.is("whole", d, want)
		s.is("its ask is just limited", each[0], s.no("k", one, 0, 59*time.Second, 59*time.Second))
	}},
	{"the violation that leads to a ban", func(s *stage) {
		s.fill("k", one)
		at := int64(noon + 55*second)
		d, each := s.take(at, stint.Ask{Key: s.key("k"), Limit: ten, Cost: 1}, stint.Ask{Key: s.key("k"), Limit: one, Cost: 1, Penalty: strict})
		refusal := s.no("k", one, 0, 5*time.Second, 5*time.Second)
		s.is("ask 0", each[0], s.yes("k", ten, 10, 0))
		s.is("ask 1 is just limited", each[1], refusal)
		s.is("whole, retry after the ban", d, s.banned(refusal, strict))

		each = slices.Repeat([]stint.Decision{untouched}, 2)
		r := stint.Request{At: time.UnixMicro(at + 3*second), Asks: []stint.Ask{
			{Key: s.key("other"), Limit: ten, Cost: 1}, {Key: s.key("k"), Limit: ten, Cost: 1, Penalty: strict},
		}}
		d, err := s.store.Take(context.Background(), &r, each)
		if err != nil {
			s.t.Fatalf("%s: %v", s.scene, err)
		}
		s.story.add("take", &r, &d, each)
		s.is("a running ban answers", d, s.running("k", strict, 7*time.Second))
		for _, e := range each {
			s.is("and leaves out alone", e, untouched)
		}
		s.is("who is not asked is not charged", s.ask(at+3*second, "other", ten, 0, nil), s.yes("other", ten, 10, 0))
		s.is("without the penalty, the limit answers", s.ask(at+3*second, "k", ten, 0, nil), s.yes("k", ten, 10, 0))
		s.is("it runs to its last microsecond", s.ask(at+10*second-1, "k", ten, 1, strict), s.running("k", strict, time.Microsecond))
		s.is("and then the limits answer", s.ask(at+10*second, "k", ten, 1, strict), s.yes("k", ten, 9, 55*time.Second))
	}},
	{"a ban asked for alone", func(s *stage) {
		alone := stint.Ask{Key: s.key("k"), Penalty: strict}
		free := stint.Decision{Allowed: true, Outcome: stint.Allowed, Key: s.key("k")}
		s.fill("k", one)
		d, each := s.take(noon, alone)
		s.is("none runs", d, free)
		s.is("none runs, ask 0", each[0], free)
		d, each = s.take(noon, alone, stint.Ask{Key: s.key("other"), Limit: ten})
		s.is("beside a limit", each[0], free)
		s.is("the whole is the limit's", d, s.yes("other", ten, 9, time.Minute))
		d, _ = s.take(noon, alone, stint.Ask{Key: s.key("k"), Limit: one})
		s.is("what refuses beside it is no violation", d, s.no("k", one, 0, time.Minute, time.Minute))
		s.ask(noon, "k", one, 1, strict)
		d, _ = s.take(noon+3*second, alone)
		s.is("one runs", d, s.running("k", strict, 7*time.Second))
		d, _ = s.take(noon+3*second, stint.Ask{Key: s.key("other"), Limit: ten, Cost: 11}, alone)
		running := s.running("k", strict, 7*time.Second)
		running.RetryAfter = stint.Never
		s.is("beside a limit that refuses for longer", d, running)
		d, _ = s.take(noon+10*second, alone)
		s.is("and then it is over", d, free)
	}},
	{"never stays never in a ban", func(s *stage) {
		s.is("whole", s.ask(noon, "k", one, 2, strict), s.banned(s.no("k", one, 1, stint.Never, 0), strict))
	}},
	{"a shorter ban leaves the longer wait", func(s *stage) {
		s.fill("k", slow)
		s.is("whole", s.ask(noon, "k", slow, 1, strict), s.banned(s.no("k", slow, 0, 2*time.Minute, 2*time.Minute), strict))
	}},
	{"the gravest outcome and the longest ban of several", func(s *stage) {
		s.fill("a", one)
		s.fill("b", slow)
		d, _ := s.take(noon, stint.Ask{Key: s.key("a"), Limit: one, Cost: 1, Penalty: stricter},
			stint.Ask{Key: s.key("b"), Limit: slow, Cost: 1, Penalty: strict}, stint.Ask{Key: s.key("b"), Limit: ten, Cost: 11, Penalty: warning})
		named := s.banned(s.no("a", one, 0, time.Minute, time.Minute), stricter)
		named.RetryAfter = stint.Never // the longest of all
		s.is("whole", d, named)
		d, _ = s.take(noon+second, stint.Ask{Key: s.key("b"), Limit: ten, Cost: 1, Penalty: strict}, stint.Ask{Key: s.key("a"), Limit: ten, Cost: 1, Penalty: stricter})
		s.is("the longest ban answers", d, s.running("a", stricter, 30*time.Minute-time.Second))
	}},
	{"one violation for each key and penalty that refused", func(s *stage) {
		s.fill("k", one, three)
		refusal := s.no("k", one, 0, time.Minute, time.Minute)
		d, _ := s.take(noon, stint.Ask{Key: s.key("k"), Limit: one, Cost: 1, Penalty: twice},
			stint.Ask{Key: s.key("k"), Limit: three, Cost: 1, Penalty: twice}, stint.Ask{Key: s.key("fits"), Limit: three, Cost: 1, Penalty: twice})
		s.is("the first violation", d, s.violation(refusal, 1, twice))
		s.is("who fits commits none", s.ask(noon, "fits", one, 2, twice), s.violation(s.no("fits", one, 1, stint.Never, 0), 1, twice))
		s.is("the second", s.ask(noon, "k", one, 1, twice), s.banned(refusal, twice))
	}},
	{"violations are told of the gravest penalty, and of equals of the first", func(s *stage) {
		s.fill("a", one)
		s.fill("b", slow)
		a, b := stint.Ask{Key: s.key("a"), Limit: one, Cost: 1, Penalty: twice}, stint.Ask{Key: s.key("b"), Limit: slow, Cost: 1, Penalty: often}
		refusal := s.no("b", slow, 0, 2*time.Minute, 2*time.Minute)
		s.ask(noon, "b", slow, 1, often)
		d, _ := s.take(noon, stint.Ask{Key: s.key("b"), Limit: ten, Cost: 11}, a, b)
		named := s.violation(s.no("a", one, 0, time.Minute, time.Minute), 1, twice)
		named.RetryAfter = stint.Never // the longest of all
		s.is("a refusal that is no violation does not count, and of equals the first does", d, named)
		s.is("its own", s.ask(noon, "b", slow, 1, often), s.warned(s.violation(refusal, 3, often)))
		d, _ = s.take(noon, stint.Ask{Key: s.key("other2"), Limit: one, Cost: 2, Penalty: twice}, b)
		named = s.warned(s.violation(refusal, 4, often))
		named.RetryAfter = stint.Never
		s.is("a warning before a violation", d, named)
		d, _ = s.take(noon, stint.Ask{Key: s.key("fits"), Limit: ten, Cost: 1, Penalty: strict}, stint.Ask{Key: s.key("b"), Limit: slow, Cost: 1})
		s.is("no violation, none told", d, refusal)
	}},
	{"fewer violations lead to a ban than there were", func(s *stage) {
		for range 4 {
			s.ask(noon, "k", one, 2, often)
		}
		fewer := mustPenalty(stint.PenaltySpec{Name: "often", BanAfter: 3, BanFor: 10 * time.Second})
		s.is("the number is never above that", s.ask(noon, "k", one, 2, fewer), s.banned(s.no("k", one, 1, stint.Never, 0), fewer))
	}},
	{"a peek that does not fit is a violation", func(s *stage) {
		s.ask(noon, "k", windowOf("shrinks", 5), 5, nil)
		shrunk := windowOf("shrinks", 3)
		s.is("whole", s.ask(noon, "k", shrunk, 0, strict), s.banned(s.no("k", shrunk, 0, time.Minute, time.Minute), strict))
	}},
}
