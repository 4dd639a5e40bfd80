package limittest

import (
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// checkHolds plays scenes from the contract of holds.
func checkHolds(t testing.TB, e *env) {
	store := e.open()
	asHolder(t, store)
	for i, s := range holdScenes {
		s.play(&holdStage{stage: stage{reader: reader{t: t, store: store}, scene: s.name}, first: 1000 * (i + 1)})
	}
}

// holdStage numbers the holds of a scene, whose key is "k".
type holdStage struct {
	stage
	first int
}

func (s *holdStage) id(n int) stint.HoldID { return numbered(s.first + n) }

// holds asks to hold n units as hold number i.
func (s *holdStage) holds(at int64, i int, l *stint.Limit, n int64) stint.Decision {
	s.t.Helper()
	d, _ := s.hold(at, s.id(i), stint.Ask{Key: s.key("k"), Limit: l, Cost: n, Peek: n == 0})
	return d
}

// does makes one call about hold number i.
func (s *holdStage) does(at int64, action stint.HoldAction, i int, l *stint.Limit, units, cost int64, again bool) stint.HoldCall {
	s.t.Helper()
	calls := []stint.HoldCall{{Action: action, Key: s.key("k"), Limit: l, Hold: s.id(i), Units: units, Cost: cost, Again: again}}
	s.call(at, calls...)
	return calls[0]
}

func (s *holdStage) settles(at int64, i int, l *stint.Limit, units, cost int64) stint.HoldCall {
	s.t.Helper()
	return s.does(at, stint.HoldSettle, i, l, units, cost, false)
}

// stands peeks, and fails unless used and held are as given.
func (s *holdStage) stands(what string, at int64, l *stint.Limit, used, held int64) {
	s.t.Helper()
	d := s.ask(at, "k", l, 0, nil)
	if d.Held != held || d.Remaining != max(0, l.Capacity()-used-held) {
		s.t.Fatalf("%s: %s: %s, want %d used and %d held\n%s", s.scene, what, show(&d), used, held, &s.story)
	}
}

// answers fails unless found and charged of a call are as given.
func (s *holdStage) answers(what string, c stint.HoldCall, found bool, charged int64) {
	s.t.Helper()
	if c.Found != found || c.Charged != charged {
		s.t.Fatalf("%s: %s: %s, want found %t and %d charged\n%s", s.scene, what, showCall(&c), found, charged, &s.story)
	}
}

func (s *holdStage) allows(what string, d stint.Decision) {
	s.t.Helper()
	if !d.Allowed {
		s.t.Fatalf("%s: %s: %s\n%s", s.scene, what, show(&d), &s.story)
	}
}

// refuses fails unless d refuses for retry, because of holds if busy.
func (s *holdStage) refuses(what string, d stint.Decision, retry time.Duration, busy bool) {
	s.t.Helper()
	if d.Allowed || d.RetryAfter != retry || d.Busy != busy {
		s.t.Fatalf("%s: %s: %s, want a refusal, retry %s, busy %t\n%s", s.scene, what, show(&d), retry, busy, &s.story)
	}
}

// budget is a fixed window of a minute that is held for 30 s.
func budget(name string, amount, debt int64) *stint.Limit {
	return mustLimit(stint.Spec{Name: name, Algorithm: stint.FixedWindow, Amount: amount, Period: time.Minute, Hold: 30 * time.Second, Debt: debt})
}

func inFlight(name string, amount int64, hold time.Duration) *stint.Limit {
	return mustLimit(stint.Spec{Name: name, Algorithm: stint.InFlight, Amount: amount, Hold: hold})
}

var holdScenes = []struct {
	name string
	play func(*holdStage)
}{
	{"a rate, a budget and requests in flight in one decision", func(s *holdStage) {
		rate, tokens, flying := windowOf("rate", 60), budget("tokens", 100, 0), inFlight("flying", 2, 0)
		asks := func(cost int64) []stint.Ask {
			return []stint.Ask{{Key: s.key("k"), Limit: rate}, {Key: s.key("k"), Limit: tokens, Cost: cost}, {Key: s.key("k"), Limit: flying}}
		}
		_, each := s.hold(noon, s.id(1), asks(60)...)
		s.is("the rate", each[0], s.yes("k", rate, 59, time.Minute))
		s.is("the budget", each[1], withHeld(s.yes("k", tokens, 40, 30*time.Second), 60))
		s.is("in flight", each[2], withHeld(s.yes("k", flying, 1, 30*time.Second), 1))
		d, each := s.hold(noon, s.id(2), asks(50)...)
		s.refuses("more than is left", d, time.Second, true)
		s.is("the rate of a refusal", each[0], s.yes("k", rate, 59, time.Minute))
		s.is("in flight, of a refusal", each[2], withHeld(s.yes("k", flying, 1, 30*time.Second), 1))
		s.answers("the usage", s.settles(noon, 1, tokens, 60, 25), true, 25)
		s.answers("its flight", s.settles(noon, 1, flying, 1, 25), true, 0)
		s.stands("in the end", noon, tokens, 25, 0)
		s.stands("in the end", noon, flying, 0, 0)
		s.stands("in the end", noon, rate, 1, 0)
	}},
	{"a hold of nothing asks whether one would fit", func(s *holdStage) {
		l := budget("budget", 10, 0)
		s.allows("none", s.holds(noon, 1, l, 0))
		s.stands("after it", noon, l, 0, 0)
		s.allows("all", s.holds(noon, 2, l, 10))
		s.refuses("none more", s.holds(noon, 3, l, 0), time.Second, true)
		flying := inFlight("flying", 1, 0)
		s.allows("a look that holds nothing", s.ask(noon, "k", flying, 1, nil))
		s.allows("a flight", s.holds(noon, 4, flying, 1))
		s.refuses("a look", s.ask(noon, "k", flying, 0, nil), time.Second, true)
		s.refuses("another look", s.ask(noon, "k", flying, 1, nil), time.Second, true)
		s.stands("under the limit", noon, flying, 0, 1)
	}},
	{"at an earlier instant more may be held than any limit has", func(s *holdStage) {
		const units, most = 3 << 50, 1 << 52
		flying := inFlight("flying", units, time.Second)
		later, earlier := int64(noon+1_000_000), int64(noon+999_999)
		s.allows("a hold", s.holds(noon, 1, flying, units))
		s.allows("another, when the first has run out", s.holds(later, 2, flying, units))
		s.stands("when both count", earlier, flying, 0, most)
		s.stands("once more", earlier, flying, 0, most)
		s.answers("the first", s.settles(earlier, 1, flying, units, 0), true, 0)
		s.stands("when one is left", earlier, flying, 0, units)
		s.stands("when one is left", later, flying, 0, units)
		s.answers("the other", s.settles(later, 2, flying, units, 0), true, 0)
		s.stands("in the end", later, flying, 0, 0)
	}},
	{"what fits is settled once, however often it is sent", func(s *holdStage) {
		l := budget("budget", 10, 0)
		s.allows("a hold", s.holds(noon, 1, l, 5))
		s.answers("first", s.settles(noon, 1, l, 5, 3), true, 3)
		for range 3 {
			s.answers("again", s.settles(noon, 1, l, 5, 3), false, 0)
		}
		s.stands("in the end", noon, l, 3, 0)
	}},
	{"a call whose answer was lost is settled with 0", func(s *holdStage) {
		l := budget("budget", 10, 0)
		s.holds(noon, 1, l, 7) // the caller does not know
		s.answers("one that was made", s.settles(noon+second, 1, l, 7, 0), true, 0)
		s.answers("one that was never made", s.settles(noon+second, 2, l, 7, 0), false, 0)
		s.stands("in the end", noon+second, l, 0, 0)
	}},
	{"the amount changes between hold and settlement", func(s *holdStage) {
		of := func(amount int64) *stint.Limit { return budget("budget", amount, 0) }
		s.allows("a hold", s.holds(noon, 1, of(10), 8))
		s.stands("lowered", noon, of(4), 0, 8)
		s.refuses("lowered", s.ask(noon, "k", of(4), 1, nil), time.Second, true)
		s.stands("raised", noon, of(100), 0, 8)
		s.answers("settled as it was held", s.settles(noon, 1, of(10), 8, 9), true, 9)
		s.refuses("lowered, in debt", s.ask(noon, "k", of(4), 1, nil), time.Minute, false)
		s.stands("raised", noon, of(100), 9, 0)
	}},
	{"a reset forgets what is used, a refund returns it, and neither ends a hold", func(s *holdStage) {
		l := budget("budget", 10, 0)
		asks := []stint.Ask{{Key: s.key("k"), Limit: l, Cost: 2}}
		s.allows("a charge", s.ask(noon, "k", l, 4, nil))
		s.allows("a hold", s.holds(noon, 1, l, 5))
		if _, ok := stint.As[stint.Refunder](s.store); ok {
			if err := stint.Refund(s.t.(testing.TB).Context(), s.store, &stint.Request{Asks: asks, At: time.UnixMicro(noon)}); err != nil {
				s.t.Fatalf("Refund: %v", err)
			}
			s.stands("after the refund", noon, l, 2, 5)
		}
		if _, ok := stint.As[stint.Resetter](s.store); ok {
			if err := stint.Reset(s.t.(testing.TB).Context(), s.store, &stint.Request{Asks: asks, At: time.UnixMicro(noon)}); err != nil {
				s.t.Fatalf("Reset: %v", err)
			}
			s.stands("after the reset", noon, l, 0, 5)
		}
		s.answers("settled", s.settles(noon, 1, l, 5, 6), true, 6)
	}},
	{"a clock that is set back by less than the time of a hold changes nothing, by more locks nobody", func(s *holdStage) {
		l := inFlight("flying", 1, 30*time.Second)
		s.allows("a flight", s.holds(noon, 1, l, 1))
		s.refuses("29 s back", s.holds(noon-29*second, 2, l, 1), time.Second, true)
		s.refuses("30 s back", s.holds(noon-30*second, 2, l, 1), time.Second, true)
		s.stands("30 s and 1 µs back", noon-30*second-1, l, 0, 0)
		s.answers("settled where it does not count", s.settles(noon-30*second-1, 1, l, 1, 0), false, 0)
		s.refuses("as the clock was", s.holds(noon, 2, l, 1), time.Second, true)
		s.refuses("1 µs before it runs out", s.holds(noon+30*second-1, 2, l, 1), time.Second, true)
		s.allows("when it ran out", s.holds(noon+30*second, 2, l, 1))
		s.answers("settled when it ran out", s.settles(noon+30*second, 1, l, 1, 0), false, 0)
	}},
	{"a renewal lasts as long as a hold, makes a lost one again, and never a released one", func(s *holdStage) {
		l := inFlight("flying", 1, 30*time.Second)
		renews := func(at int64, i int, again bool) stint.HoldCall {
			return s.does(at, stint.HoldRenew, i, l, 1, 0, again)
		}
		s.allows("a flight", s.holds(noon, 1, l, 1))
		s.answers("in time", renews(noon+20*second, 1, false), true, 0)
		s.refuses("when it would have run out", s.holds(noon+49*second, 2, l, 1), time.Second, true)
		s.answers("too late", renews(noon+50*second, 1, false), false, 0)
		s.allows("another", s.holds(noon+50*second, 3, l, 1))
		s.answers("one that is lost", renews(noon+50*second, 1, true), false, 0)
		s.stands("fitting or not", noon+50*second, l, 0, 2)
		s.answers("released", s.does(noon+50*second, stint.HoldRelease, 1, l, 1, 0, false), true, 0)
		s.answers("renewed after that", renews(noon+70*second, 1, true), false, 0)
		s.stands("after that", noon+70*second, l, 0, 1)
		s.answers("renewed long after that", renews(noon+109*second, 1, true), false, 0)
		s.stands("in the end", noon+109*second, l, 0, 0)
	}},
	{"what was spent is charged, up to the debt", func(s *holdStage) {
		none, some := budget("none", 10, stint.NoDebt), budget("some", 10, 5)
		bucket := mustLimit(stint.Spec{Name: "bucket", Amount: 10, Period: time.Minute, Hold: time.Second})
		for i, l := range []*stint.Limit{none, some, bucket} {
			s.allows("a hold", s.holds(noon, i, l, 2))
			s.answers("much more", s.settles(noon, i, l, 2, 1000), true, []int64{10, 15, 20}[i])
			s.answers("more", s.does(noon, stint.HoldCharge, 0, l, 0, 1, false), true, 0)
		}
		s.refuses("a bucket in debt", s.ask(noon, "k", bucket, 1, nil), 66*time.Second, false)
		s.refuses("a look at a bucket in debt", s.ask(noon, "k", bucket, 0, nil), time.Minute, false)
		plain := windowOf("plain", 10)
		s.answers("without holds", s.does(noon, stint.HoldCharge, 0, plain, 0, 1000, false), true, 1000)
		s.refuses("a window in debt", s.ask(noon, "k", plain, 1, nil), time.Minute, false)
	}},
	{"a refusal that is due to what is held is no violation", func(s *holdStage) {
		l := budget("budget", 10, 0)
		s.allows("a hold", s.holds(noon, 1, l, 10))
		d := s.ask(noon, "k", l, 1, strict)
		s.refuses("by what is held", d, time.Second, true)
		if d.Violations != 0 || d.Penalty != nil {
			s.t.Fatalf("%s: %s", s.scene, show(&d))
		}
		if d = s.ask(noon, "k", l, 11, strict); d.Outcome != stint.Banned {
			s.t.Fatalf("%s: of more than ever fits: %s", s.scene, show(&d))
		}
	}},
}

func withHeld(d stint.Decision, held int64) stint.Decision {
	d.Held = held
	return d
}

// checkManyHolds: mostHolds records count under one key, and one more is refused.
func checkManyHolds(t testing.TB, e *env) {
	store := e.open()
	asHolder(t, store)
	r := reader{t: t, store: store}
	flying := mustLimit(stint.Spec{Name: "flying", Algorithm: stint.InFlight, Amount: 5000, Hold: time.Hour, Retry: 7 * time.Second})
	tokens := mustLimit(stint.Spec{Name: "tokens", Algorithm: stint.FixedWindow, Amount: 100_000, Period: time.Minute, Hold: time.Hour})
	asks := []stint.Ask{{Key: "many", Limit: flying}, {Key: "many", Limit: tokens, Cost: 2}}
	const batch = 256
	for first := 0; first < mostHolds; first += batch {
		rs, answers := make([]stint.Request, batch), make([]stint.Answer, batch)
		for i := range rs {
			rs[i] = stint.Request{Asks: asks, At: time.UnixMicro(noon), Hold: numbered(first + i)}
		}
		stint.TakeBatch(t.Context(), store, rs, answers)
		for i := range answers {
			if !answers[i].Allowed || answers[i].Err != nil {
				t.Fatalf("hold %d: %s, %v", first+i, show(&answers[i].Decision), answers[i].Err)
			}
		}
	}
	refuse := func(what string) {
		t.Helper()
		d, each := r.hold(noon, numbered(mostHolds), asks...)
		if d.Allowed || !d.Busy || d.RetryAfter != 7*time.Second || each[0].Held != mostHolds || each[0].Remaining != 5000-mostHolds ||
			!each[1].Busy || each[1].Held != 2*mostHolds || each[1].RetryAfter != time.Second {
			t.Fatalf("%s: %s\n%s\n%s", what, show(&d), show(&each[0]), show(&each[1]))
		}
	}
	refuse("one more")
	if d, _ := r.take(noon, stint.Ask{Key: "many", Limit: tokens}); !d.Allowed {
		t.Fatalf("a request that holds nothing: %s", show(&d))
	}
	again := stint.HoldCall{Action: stint.HoldRenew, Key: "many", Limit: flying, Hold: numbered(mostHolds), Units: 1, Again: true}
	r.call(noon, again)
	refuse("after one that was lost")
	calls := []stint.HoldCall{{Key: "many", Limit: flying, Hold: numbered(17), Units: 1}, {Key: "many", Limit: tokens, Hold: numbered(17), Units: 2, Cost: 1}}
	r.call(noon, calls...)
	if !calls[0].Found || !calls[1].Found {
		t.Fatalf("one of many: %s\n%s", showCall(&calls[0]), showCall(&calls[1]))
	}
	if d, _ := r.hold(noon, numbered(mostHolds), asks...); !d.Allowed {
		t.Fatalf("where one was settled: %s", show(&d))
	}
	refuse("then one more")
}

// checkHoldClock lets a hold expire by the store's own clock, and lists holds.
func checkHoldClock(t testing.TB, e *env) {
	store := e.open()
	holder := asHolder(t, store)
	for _, key := range oddKeys {
		c := holdClock{TB: t, store: store, key: key}
		c.listed(holder)
		c.runsOut()
	}
}

type holdClock struct {
	testing.TB
	store stint.Store
	key   string
}

func (c *holdClock) take(id stint.HoldID, l *stint.Limit, cost int64) stint.Decision {
	c.Helper()
	d, err := c.store.Take(c.Context(), &stint.Request{Asks: []stint.Ask{{Key: c.key, Limit: l, Cost: cost}}, Hold: id}, nil)
	if err != nil {
		c.Fatal(err)
	}
	return d
}

func (c *holdClock) listed(holder stint.Holder) {
	limits := []*stint.Limit{budget("}listed", 10, 0), inFlight("}listed", 10, time.Hour)}
	want := []stint.Hold{
		{ID: numbered(1), Limit: limits[0], Units: 3, For: 30 * time.Second},
		{ID: numbered(2), Limit: limits[0], Units: 4, For: 30 * time.Second},
		{ID: numbered(2), Limit: limits[1], Units: 1, For: time.Hour},
	}
	for _, h := range want {
		if d := c.take(h.ID, h.Limit, h.Units); !d.Allowed {
			c.Fatalf("hold: %s", show(&d))
		}
	}
	list := func(n int) {
		c.Helper()
		got, err := holder.Held(c.Context(), c.key, limits)
		if err != nil || len(got) != n {
			c.Fatalf("Held of %q: %v, %v, want %d", c.key, got, err, n)
		}
		for _, w := range want[:n] {
			found := false
			for _, h := range got {
				left := h.Left
				h.Left = 0
				found = found || h == w && left > 0 && left <= h.For
			}
			if !found {
				c.Errorf("Held of %q: %v, want %v among them", c.key, got, w)
			}
		}
	}
	list(3)
	calls := []stint.HoldCall{{Key: c.key, Limit: limits[1], Hold: numbered(2), Units: 1}}
	if stint.Holds(c.Context(), c.store, time.Time{}, calls); !calls[0].Found || calls[0].Err != nil {
		c.Fatal(showCall(&calls[0]))
	}
	list(2)
}

func (c *holdClock) runsOut() {
	const span = 50 * time.Millisecond
	l := inFlight("}short", 1, span)
	began := time.Now()
	if d := c.take(numbered(3), l, 1); !d.Allowed {
		c.Fatalf("hold: %s", show(&d))
	}
	for deadline := began.Add(time.Minute); !c.take(numbered(4), l, 1).Allowed; {
		if time.Now().After(deadline) {
			c.Fatalf("a hold of %s counts after a minute", span)
		}
		time.Sleep(span / 10)
	}
	// A store may round to ms.
	if after := time.Since(began); after < span-2*time.Millisecond {
		c.Fatalf("a hold of %s ran out after %s", span, after)
	}
	calls := []stint.HoldCall{{Key: c.key, Limit: l, Hold: numbered(3), Units: 1}}
	if stint.Holds(c.Context(), c.store, time.Time{}, calls); calls[0].Found || calls[0].Err != nil {
		c.Fatalf("of one that ran out: %s", showCall(&calls[0]))
	}
}
