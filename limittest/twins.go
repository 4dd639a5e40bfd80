package limittest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint"
)

// Twins makes the same random requests to a and b, in the given number of steps, and fails at the
// first answer in which they differ from each other or from the Model. The same seed makes the same
// requests. Both stores must be empty, and nothing else may use them.
func Twins(t testing.TB, a, b stint.Store, steps int, seed uint64) {
	t.Helper()
	twins(t, steps, seed, a, b)
}

func twins(t testing.TB, steps int, seed uint64, stores ...stint.Store) {
	t.Helper()
	t.Logf("%d steps with seed %d", steps, seed)
	verbs, lacks := verbsOf(stores)
	for _, lack := range lacks {
		t.Logf("not tested: %s", lack)
	}
	s := newScript(seed, steps, verbs)
	var told story
	var tally tally
	for i, episode := 0, 0; i < steps; i++ {
		m := s.next()
		if s.episode != episode {
			episode, told = s.episode, story{}
		}
		d, each, calls := play(t, m, &s.model)
		if m.verb == "hold" {
			told.addCalls(s.clock, calls)
		} else {
			told.add(m.verb, &m.req, &d, each)
		}
		for _, store := range stores {
			got, gotEach, gotCalls := play(t, m, store)
			for j := range calls {
				if gotCalls[j] != calls[j] {
					t.Fatalf("seed %d, step %d: %T answers call %d:\n got %s\nwant %s\n%s", seed, i,
						store, j, showCall(&gotCalls[j]), showCall(&calls[j]), &told)
				}
			}
			for j := range each {
				if gotEach[j] != each[j] {
					t.Fatalf("seed %d, step %d: %T answers ask %d (%s):\n got %s\nwant %s\n%s", seed, i,
						store, j, showAsk(&m.req.Asks[j]), show(&gotEach[j]), show(&each[j]), &told)
				}
			}
			if got != d {
				t.Fatalf("seed %d, step %d: %T answers the whole:\n got %s\nwant %s\n%s", seed, i,
					store, show(&got), show(&d), &told)
			}
		}
		m.calls = calls
		tally.count(s, m, &d, each)
		s.done(m, &d, each)
	}
	tally.check(t, steps, verbs)
}

// verbsOf returns the verbs that all stores support, and those that some lack.
func verbsOf(stores []stint.Store) (verbs, lacks []string) {
	verbs = []string{"take"}
	add := func(verb, by string, can func(stint.Store) bool) {
		for _, s := range stores {
			if !can(s) {
				lacks = append(lacks, fmt.Sprintf("%s: %T is no %s", verb, s, by))
				return
			}
		}
		verbs = append(verbs, verb)
	}
	add("refund", "stint.Refunder", is[stint.Refunder])
	add("reset", "stint.Resetter", is[stint.Resetter])
	add("violate", "stint.Violator", is[stint.Violator])
	add("hold", "stint.Holder", is[stint.Holder])
	return verbs, lacks
}

func is[T any](s stint.Store) bool {
	_, ok := stint.As[T](s)
	return ok
}

// untouched is in places where a store must not write.
var untouched = stint.Decision{Key: "(untouched)", Remaining: -1}

func play(t testing.TB, m *move, s stint.Store) (d stint.Decision, each []stint.Decision, calls []stint.HoldCall) {
	t.Helper()
	var err error
	switch m.verb {
	case "take":
		each = slices.Repeat([]stint.Decision{untouched}, len(m.req.Asks))
		d, err = s.Take(context.Background(), &m.req, each)
	case "refund":
		err = stint.Refund(context.Background(), s, &m.req)
	case "reset":
		err = stint.Reset(context.Background(), s, &m.req)
	case "violate":
		d, err = stint.Violate(context.Background(), s, &m.req)
	case "hold":
		calls = slices.Clone(m.calls)
		stint.Holds(context.Background(), s, m.req.At, calls)
	}
	if err != nil {
		t.Fatalf("%T: %s: %v", s, m.verb, err)
	}
	return d, each, calls
}

// tally counts sights by algorithm: a run that met nothing of interest proves nothing.
type tally map[sight]*[algorithms]int

const algorithms = 6

type sight string

const (
	allowed   sight = "allowed"
	denied    sight = "denied"
	never     sight = "never"
	partial   sight = "fits, but another ask refused"
	msTick    sight = "ticks of 1 ms"
	changed   sight = "used under another amount or burst"
	saturated sight = "level saturated"
	clamped   sight = "clock stepped back"
	stranded  sight = "clock jumped back by more than a period"
	onMoment  sight = "around the moment that an answer changes"
	warned    sight = "warned"
	banned    sight = "banned"
	grown     sight = "ban longer than the first"
	running   sight = "ban running"
	reforgets sight = "violation after ForgetAfter has changed"
	awaited   sight = "ban running, and a limit refuses for longer"
	tooLate   sight = "refused for its longest delay alone"
	refunded  sight = "units refunded"
	resetting sight = "reset while in use"

	inCalendar sight = "in a window of the calendar"

	askedBanned sight = "ban asked for alone, and one runs or begins"
	askedFree   sight = "ban asked for alone, and none runs"

	foundLimited sight = "violation found: limited"
	foundWarned  sight = "violation found: warned"
	foundBanned  sight = "violation found: banned"
	foundGrown   sight = "violation found: ban longer than the first"
	foundRunning sight = "violation found while a ban runs"
)

func (y *tally) see(what sight, a *stint.Ask) {
	y.of(what)[a.Limit.Spec().Algorithm]++
}

func (y *tally) of(what sight) *[algorithms]int {
	if *y == nil {
		*y = make(tally)
	}
	if (*y)[what] == nil {
		(*y)[what] = new([algorithms]int)
	}
	return (*y)[what]
}

func (y *tally) count(s *script, m *move, d *stint.Decision, each []stint.Decision) {
	if m.verb == "violate" {
		y.countViolate(m, d)
		return
	}
	if m.verb == "hold" {
		y.countCalls(m)
		return
	}
	for i := range m.seen {
		a, l := &m.req.Asks[i], &m.seen[i]
		switch {
		case a.Limit == nil && m.verb == "take":
			y.seeAll(map[bool]sight{true: askedFree, false: askedBanned}[d.Outcome != stint.Banned])
		case a.Limit == nil:
		case m.verb == "refund" && l.inUse && costOf(a) > 0:
			y.see(refunded, a)
		case m.verb == "reset" && l.inUse:
			y.see(resetting, a)
		case m.verb == "take" && d.Limit == nil:
			y.see(running, a)
			if d.RetryAfter > d.BanLeft {
				y.see(awaited, a)
			}
		case m.verb == "take":
			y.countTake(s, a, l, d, &each[i])
			y.countHolds(m, a, l, d, &each[i])
			if l.inUse && s.lastLimit[countOf(a)] != a.Limit {
				y.see(changed, a)
			}
		}
	}
}

func (y *tally) countTake(s *script, a *stint.Ask, l *seen, d, own *stint.Decision) {
	for what, seen := range map[sight]bool{
		allowed:    d.Allowed,
		denied:     !own.Allowed,
		never:      own.RetryAfter == stint.Never && costOf(a) > a.Limit.Capacity(),
		partial:    own.Allowed && !d.Allowed,
		msTick:     l.msTick,
		saturated:  l.saturated,
		clamped:    s.clock < l.now,
		stranded:   l.stranded,
		onMoment:   s.onMoment && s.clock == l.now,
		inCalendar: a.Limit.Spec().Calendar.Unit != 0 && l.inUse,
		warned:     d.Outcome == stint.Warned && !own.Allowed && a.Penalty != nil,
		banned:     d.Outcome == stint.Banned && !own.Allowed && a.Penalty != nil,
		reforgets:  !own.Allowed && l.reforgets,
		tooLate:    !own.Allowed && a.MaxDelay != 0 && l.fits,
		grown:      !own.Allowed && a.Penalty != nil && d.BanLeft > a.Penalty.Spec().BanFor,
	} {
		if seen {
			y.see(what, a)
		}
	}
}

func (y *tally) countViolate(m *move, d *stint.Decision) {
	what := map[stint.Outcome]sight{stint.Limited: foundLimited, stint.Warned: foundWarned, stint.Banned: foundBanned}[d.Outcome]
	if m.running {
		what = foundRunning
	} else if d.Penalty != nil && d.BanLeft > d.Penalty.Spec().BanFor {
		what = foundGrown
	}
	y.seeAll(what)
}

func (y *tally) seeAll(what sight) {
	for i := range y.of(what) {
		y.of(what)[i]++
	}
}

// provenFrom is the number of steps from which all sights must have been seen.
const provenFrom = DefaultSteps

func (y *tally) check(t testing.TB, steps int, verbs []string) {
	t.Helper()
	var b strings.Builder
	var missing []string
	for _, what := range append([]sight{allowed, denied, never, partial, msTick, changed, saturated, clamped, stranded, onMoment,
		warned, banned, grown, running, reforgets, awaited, tooLate, refunded, resetting, inCalendar, askedBanned, askedFree, foundLimited, foundWarned, foundBanned, foundGrown, foundRunning}, holdSights...) {
		n := (*y)[what]
		if n == nil {
			n = new([algorithms]int)
		}
		fmt.Fprintf(&b, "%42s %v\n", what, *n)
		for i := range n {
			if n[i] == 0 && canBe(what, stint.Algorithm(i), verbs) {
				missing = append(missing, fmt.Sprintf("%s: %s", stint.Algorithm(i), what))
			}
		}
	}
	t.Logf("seen, by algorithm:\n%s", &b)
	if steps >= provenFrom && len(missing) > 0 {
		t.Errorf("the steps prove too little, for these were never seen:\n%s", strings.Join(missing, "\n"))
	}
}

func canBe(what sight, a stint.Algorithm, verbs []string) bool {
	bucket := a == stint.TokenBucket || a == stint.LeakyBucket
	if a == stint.InFlight || slices.Contains(holdSights, what) {
		return canHold(what, a, verbs)
	}
	switch what {
	case msTick:
		return bucket || a == stint.SlidingWindow
	case saturated:
		return bucket
	case tooLate:
		return a == stint.LeakyBucket
	case refunded:
		return slices.Contains(verbs, "refund")
	case inCalendar:
		return a == stint.FixedWindow
	case resetting:
		return slices.Contains(verbs, "reset")
	case foundLimited, foundWarned, foundBanned, foundGrown, foundRunning:
		return slices.Contains(verbs, "violate")
	}
	return true
}

func checkTwins(t testing.TB, e *env) { twins(t, e.steps, e.seed, e.open()) }
