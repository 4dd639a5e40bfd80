package limittest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// flawed is a Model with a flaw.
type flawed struct {
	*Model
	before func(m *Model, r *stint.Request)
	after  func(m *Model, r *stint.Request, d *stint.Decision, out []stint.Decision)
}

func (f *flawed) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if out == nil {
		out = make([]stint.Decision, len(r.Asks))
	}
	if f.before != nil {
		f.before(f.Model, r)
	}
	d, err := f.Model.Take(ctx, r, out)
	if f.after != nil {
		f.after(f.Model, r, &d, out)
	}
	return d, err
}

func (f *flawed) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = f.Take(ctx, &rs[i], answers[i].Each)
	}
}

func before(flaw func(m *Model, r *stint.Request)) func() stint.Store {
	return func() stint.Store { return &flawed{Model: new(Model), before: flaw} }
}

func after(flaw func(m *Model, r *stint.Request, d *stint.Decision, out []stint.Decision)) func() stint.Store {
	return func() stint.Store { return &flawed{Model: new(Model), after: flaw} }
}

// forceIn charges r whatever its limits say.
func forceIn(m *Model, r *stint.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Limit != nil && a.Units() <= a.Limit.Capacity() {
			m.settle(r, a, instant(r), true, true)
		}
	}
}

// twoStep looks first and charges later.
type twoStep struct{ *Model }

func (s twoStep) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	s.mu.Lock()
	fits := true
	for i := range r.Asks {
		l := s.look(&r.Asks[i], instant(r))
		fits = fits && l.allows(&r.Asks[i])
	}
	s.mu.Unlock()
	if !fits {
		return s.Model.Take(ctx, r, out)
	}
	time.Sleep(time.Millisecond) // so that others come between
	forceIn(s.Model, r)
	return stint.Decision{Allowed: true, Outcome: stint.Allowed}, nil
}

// oneByOneTaker charges the asks of a request one after another, and refunds
// if one refuses.
type oneByOneTaker struct{ *Model }

func (s oneByOneTaker) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	for i := range r.Asks {
		one := stint.Request{Asks: r.Asks[i : i+1], At: r.At}
		if d, err := s.Model.Take(ctx, &one, nil); err != nil || !d.Allowed {
			undo := stint.Request{Asks: r.Asks[:i], At: r.At}
			time.Sleep(time.Millisecond) // so that others come between
			return s.Model.settleRefused(ctx, r, out, &undo)
		}
		time.Sleep(time.Millisecond) // so that others come between
	}
	undo := stint.Request{Asks: r.Asks, At: r.At}
	_ = s.Refund(ctx, &undo)
	return s.Model.Take(ctx, r, out)
}

func (m *Model) settleRefused(ctx context.Context, r *stint.Request, out []stint.Decision, undo *stint.Request) (stint.Decision, error) {
	_ = m.Refund(ctx, undo)
	return m.Take(ctx, r, out)
}

// oldestFirst refunds in the wrong order.
type oldestFirst struct{ *Model }

func (s oldestFirst) Refund(ctx context.Context, r *stint.Request) error {
	reverse := func() {
		for i := range r.Asks {
			if h := s.counts[countOf(&r.Asks[i])]; h != nil && termsOf(r.Asks[i].Limit).rate == nil {
				slices.Reverse(h.charges)
			}
		}
	}
	reverse()
	defer reverse()
	return s.Model.Refund(ctx, r)
}

// hanging never answers, and claims to keep deadlines: it waits for a share of them; of
// 0, for the context alone.
type hanging struct {
	share time.Duration
	err   error // nil: the context's
}

func (hanging) KeepsDeadline() bool { return true }

func (s hanging) Take(ctx context.Context, r *stint.Request, _ []stint.Decision) (stint.Decision, error) {
	if s.share > 0 && r.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline/s.share)
		defer cancel()
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Hour): // longer than the check waits, and its end
		return stint.Decision{}, errors.New("an hour is over")
	}
	if s.err != nil {
		return stint.Decision{}, s.err
	}
	return stint.Decision{}, ctx.Err()
}

// allAtOnce decides each of several requests as if it were alone.
type allAtOnce struct{ *Model }

func (s allAtOnce) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		peek := stint.Request{Asks: slices.Clone(rs[i].Asks), At: rs[i].At}
		answers[i].Decision, answers[i].Err = s.Take(ctx, &peek, answers[i].Each)
		if answers[i].Allowed {
			_ = s.Refund(ctx, &peek)
		}
	}
}

type flaw struct {
	name   string
	open   func() stint.Store
	caught []string // by which checks at least
}

var flaws = []flaw{
	{"remaining is off by one", after(func(_ *Model, _ *stint.Request, d *stint.Decision, out []stint.Decision) {
		d.Remaining++
		for i := range out {
			out[i].Remaining++
		}
	}), []string{"Vectors", "Fields", "Twins", "RemainingIsExact", "ResetAfterIsExact", "Linearizable"}},
	{"the whole is not the strictest", after(func(_ *Model, _ *stint.Request, d *stint.Decision, out []stint.Decision) {
		if d.Allowed {
			*d = out[len(out)-1]
		}
	}), []string{"Vectors", "Fields", "Twins"}},
	{"charges what it refuses", after(func(m *Model, r *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.Outcome == stint.Limited {
			forceIn(m, r)
		}
	}), []string{"Vectors", "Fields", "Twins", "DenialChangesNothing", "RetryAfterIsExact", "Linearizable"}},
	{"charges those that fit though others refuse", after(func(m *Model, r *stint.Request, d *stint.Decision, out []stint.Decision) {
		for i := range out {
			if d.Outcome == stint.Limited && out[i].Allowed {
				forceIn(m, &stint.Request{Asks: r.Asks[i : i+1], At: r.At})
			}
		}
	}), []string{"Vectors", "Fields", "Twins", "DenialChangesNothing", "LinearizableOverTwoKeys", "LinearizableOverLimits"}},
	{"lets in every tenth that it should refuse", func() func() stint.Store {
		n := 0
		return after(func(m *Model, r *stint.Request, d *stint.Decision, out []stint.Decision) {
			if n++; d.Outcome == stint.Limited && n%10 == 0 {
				forceIn(m, r)
				d.Allowed, d.Outcome = true, stint.Allowed
			}
		})
	}(), []string{"Vectors", "Twins", "SlidingLogIsExact", "BucketsRefillAtTheRate"}},
	{"goes back in time with the clock", before(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			if h := m.counts[countOf(&r.Asks[i])]; h != nil {
				h.last = min(h.last, instant(r))
			}
		}
	}), []string{"Vectors", "Twins"}},
	{"forgets when nine tenths of a period have passed", before(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			a := &r.Asks[i]
			if h := m.counts[countOf(a)]; h != nil && instant(r) > h.last+termsOf(a.Limit).period*9/10 {
				delete(m.counts, countOf(a))
			}
		}
	}), []string{"Vectors", "Twins", "SlidingLogIsExact", "ResetAfterIsExact"}},
	{"begins the days of a place by UTC", before(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			a := &r.Asks[i]
			h := m.counts[countOf(a)]
			if h == nil || a.Limit.Spec().Calendar.Unit == 0 {
				continue
			}
			inUTC := a.Limit.Spec().Calendar
			inUTC.Zone = ""
			c := calendarOf(inUTC)
			was, _ := c.window(h.last)
			if now, _ := c.window(instant(r)); now > was {
				delete(m.counts, countOf(a))
			}
		}
	}), []string{"Twins"}},
	{"starts a bucket anew where the amount is another", before(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			a := &r.Asks[i]
			h := m.counts[countOf(a)]
			if h == nil {
				continue
			}
			if own := termsOf(a.Limit); own.rate != nil && h.charges[len(h.charges)-1].under.rate.Cmp(own.rate) != 0 {
				delete(m.counts, countOf(a))
			}
		}
	}), []string{"Twins", "TogetherNoMoreThanTheLargest"}},
	{"says to retry a microsecond late", after(func(_ *Model, _ *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.RetryAfter > 0 && d.RetryAfter != stint.Never {
			d.RetryAfter += time.Microsecond
		}
	}), []string{"Vectors", "Fields", "Twins", "RetryAfterIsExact"}},
	{"says to retry a microsecond early", after(func(_ *Model, _ *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.RetryAfter > 0 && d.RetryAfter != stint.Never {
			d.RetryAfter -= time.Microsecond
		}
	}), []string{"Vectors", "Fields", "Twins", "RetryAfterIsExact"}},
	{"resets a microsecond late", after(func(_ *Model, _ *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.ResetAfter > 0 {
			d.ResetAfter += time.Microsecond
		}
	}), []string{"Vectors", "Fields", "Twins", "ResetAfterIsExact"}},
	{"never ends", after(func(_ *Model, _ *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.RetryAfter == stint.Never {
			d.RetryAfter = time.Hour
		}
	}), []string{"Vectors", "Fields", "Twins"}},
	{"writes where a running ban must not", after(func(_ *Model, _ *stint.Request, d *stint.Decision, out []stint.Decision) {
		if d.Limit == nil {
			clear(out)
		}
	}), []string{"Fields", "Twins", "TakeBatch"}},
	{"forgets whom a ban hit", after(func(_ *Model, _ *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.Limit == nil {
			d.Key = ""
		}
	}), []string{"Vectors", "Fields", "Twins"}},
	{"tells one violation too few", after(func(_ *Model, _ *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.Violations > 1 {
			d.Violations--
		}
	}), []string{"Fields", "Twins"}},
	{"tells violations of a ban that runs", after(func(_ *Model, _ *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.Outcome == stint.Banned && d.Limit == nil {
			d.Violations = d.Penalty.Spec().BanAfter
		}
	}), []string{"Vectors", "Fields", "Twins"}},
	{"counts a violation for each ask", after(func(m *Model, r *stint.Request, d *stint.Decision, out []stint.Decision) {
		for i := range r.Asks {
			if a := &r.Asks[i]; d.Limit != nil && !d.Allowed && out[i].Allowed && a.Penalty != nil {
				m.violate(recordOf(a), a.Penalty.Spec(), instant(r))
			}
		}
	}), []string{"Fields", "Twins"}},
	{"takes nothing where no cost is given", before(func(_ *Model, r *stint.Request) {
		r.Asks = slices.Clone(r.Asks)
		for i := range r.Asks {
			r.Asks[i].Peek = r.Asks[i].Cost == 0
		}
	}), []string{"Fields", "Twins"}},
	{"takes a unit by a peek", before(func(_ *Model, r *stint.Request) {
		r.Asks = slices.Clone(r.Asks)
		for i := range r.Asks {
			r.Asks[i].Peek = false
		}
	}), []string{"Vectors", "Fields", "Twins"}},
	{"sees no ban that is asked for alone", before(func(_ *Model, r *stint.Request) {
		r.Asks = slices.Clone(r.Asks)
		for i := range r.Asks {
			if r.Asks[i].Limit == nil {
				r.Asks[i].Penalty = nil
			}
		}
	}), []string{"Fields", "Twins"}},
	{"looks first and charges later", func() stint.Store { return twoStep{new(Model)} },
		[]string{"Linearizable", "LinearizableOverTwoKeys", "LinearizableOverLimits", "Burst"}},
	{"charges one by one", func() stint.Store { return oneByOneTaker{new(Model)} }, []string{"LinearizableOverTwoKeys", "LinearizableOverLimits"}},
	{"refunds the oldest first", func() stint.Store { return oldestFirst{new(Model)} }, []string{"Twins"}},
	{"counts violations while a ban runs", func() stint.Store { return recounting{new(Model)} }, []string{"Twins"}},
	{"forgets nothing that is found", func() stint.Store { return unforgetting{new(Model)} }, []string{"Twins", "Records"}},
	{"loses violations found at once", func() stint.Store { return losing{new(Model)} }, []string{"Violations"}},
	{"shows one violation too many", func() stint.Store { return miscounting{new(Model), 1, 0, 0} }, []string{"Records"}},
	{"shows one ban too few", func() stint.Store { return miscounting{new(Model), 0, -1, 0} }, []string{"Records"}},
	{"shows bans a minute too long", func() stint.Store { return miscounting{new(Model), 0, 0, time.Minute} }, []string{"Records"}},
	{"tells bans twice", func() stint.Store { return telling{new(Model), 2} }, []string{"Records"}},
	{"tells no bans", func() stint.Store { return telling{new(Model), 0} }, []string{"Records"}},
	{"takes looks for charges", func() stint.Store { return misinspecting{new(Model), func(s *stint.Stored) { s.Idle = 0 }} }, []string{"Inspect"}},
	{"says how long a count was kept, not is", func() stint.Store {
		return misinspecting{new(Model), func(s *stint.Stored) { s.Expires += 4 * s.Idle }}
	}, []string{"Inspect"}},
	{"keeps what is not there", func() stint.Store { return misinspecting{new(Model), func(s *stint.Stored) { s.Held = true }} }, []string{"Inspect"}},
	{"waits for a clock that has jumped back", before(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			if h := m.counts[countOf(&r.Asks[i])]; h != nil && h.last > instant(r) {
				r.At = time.UnixMicro(h.last)
			}
		}
	}), []string{"Twins", "Clocks"}},
	{"bans until a clock that has jumped back is there again", before(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			if r.Asks[i].Penalty == nil {
				continue
			}
			for _, v := range m.records[recordOf(&r.Asks[i])] {
				if v.at > instant(r) {
					r.At = time.UnixMicro(v.at)
				}
			}
		}
	}), []string{"Twins", "ClocksOfBans"}},
	{"forgets what is ahead of the clock", before(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			if h := m.counts[countOf(&r.Asks[i])]; h != nil && h.last > instant(r) {
				delete(m.counts, countOf(&r.Asks[i]))
			}
		}
	}), []string{"Vectors", "Twins"}},
	{"keeps no deadline", func() stint.Store { return hanging{} }, []string{"Deadlines"}},
	{"gives up too soon", func() stint.Store { return hanging{share: 2} }, []string{"Deadlines"}},
	{"gives up without saying why", func() stint.Store { return hanging{share: 1, err: ErrFault} }, []string{"Deadlines"}},
	{"decides a batch all at once", func() stint.Store { return allAtOnce{new(Model)} }, []string{"TakeBatch"}},
}

func TestBrokenStoresAreCaught(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "0s", "rapid.seed": "1"} {
		was := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, was) })
	}
	for _, flaw := range slices.Concat(flaws, holdFlaws) {
		t.Run(flaw.name, func(t *testing.T) {
			for _, c := range checks {
				if !slices.Contains(flaw.caught, c.name) {
					continue
				}
				e := &env{open: flaw.open, frozen: flaw.open, fleet: func() []stint.Store { return []stint.Store{flaw.open()} }, steps: DefaultSteps, seed: 1, calls: 1000}
				var failed bool
				var said string
				run := func(t *testing.T) { failed, said = watch(t, func(t testing.TB) { c.run(t, e) }) }
				if c.name == "Deadlines" {
					// By real time, a machine under load wakes also a store that gives
					// up at half its deadline when all of that is over.
					synctest.Test(t, run)
				} else {
					run(t)
				}
				if !failed {
					t.Errorf("%s does not catch it", c.name)
				}
				t.Logf("%s says:\n%.2000s", c.name, said)
			}
		})
	}
}

func TestAFleetThatSharesNothingIsCaught(t *testing.T) {
	e := &env{fleet: func() []stint.Store { return []stint.Store{new(Model), new(Model)} }, seed: 1, calls: 1000}
	for _, c := range checks {
		if !strings.HasPrefix(c.name, "Linearizable") && c.name != "Burst" {
			continue
		}
		if failed, _ := watch(t, func(t testing.TB) { c.run(t, e) }); !failed {
			t.Errorf("%s does not catch it", c.name)
		}
	}
}

// A failure tells how it came about.
func TestAFailurePrintsItsSteps(t *testing.T) {
	forgetful := before(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			if h := m.counts[countOf(&r.Asks[i])]; h != nil && len(h.charges) > 3 {
				delete(m.counts, countOf(&r.Asks[i]))
			}
		}
	})
	_, said := watch(t, func(t testing.TB) { twins(t, 1000, 1, forgetful()) })
	for _, want := range []string{"seed 1, step ", "got ", "want ", "the story so far", "take", "→ allowed, remaining "} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}

// A run that met nothing of interest is no proof.
func TestTooFewStepsFail(t *testing.T) {
	failed, said := watch(t, func(t testing.TB) { new(tally).check(t, DefaultSteps, []string{"take"}) })
	if !failed || !strings.Contains(said, "sliding_window: ticks of 1 ms") {
		t.Errorf("failed %t, said:\n%s", failed, said)
	}
}

// watch runs f and tells whether it failed, and what it said.
func watch(t *testing.T, f func(testing.TB)) (failed bool, said string) {
	r := &recorder{TB: t}
	var done sync.WaitGroup
	done.Go(func() { f(r) }) // FailNow ends a goroutine
	done.Wait()
	return r.failed, r.said.String()
}

// recorder is a testing.TB that notes a failure instead of failing.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   strings.Builder
}

func (r *recorder) Helper() {}
func (r *recorder) Skip(args ...any) {
	r.note(false, "skipped: "+fmt.Sprintln(args...))
	runtime.Goexit()
}
func (r *recorder) Skipf(f string, a ...any)  { r.Skip(fmt.Sprintf(f, a...)) }
func (r *recorder) Log(args ...any)           { r.note(false, fmt.Sprintln(args...)) }
func (r *recorder) Logf(f string, a ...any)   { r.note(false, fmt.Sprintf(f+"\n", a...)) }
func (r *recorder) Error(args ...any)         { r.note(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.note(true, fmt.Sprintf(f+"\n", a...)) }
func (r *recorder) Fatal(args ...any)         { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }
func (r *recorder) Fail()                     { r.note(true, "") }
func (r *recorder) FailNow()                  { r.note(true, ""); runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) note(failed bool, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.said.WriteString(what)
}
