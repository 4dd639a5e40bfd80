package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
)

// distant is a shared store about a millisecond away that fails as a story tells it to, and
// notes what it is asked.
type distant struct {
	*notifier
	mu    sync.Mutex
	fails string // how: see faults
	only  string // the key of which calls fail; empty: all do
	calls []string
}

// faults are the ways in which a distant fails.
var faults = map[string]limittest.Fault{
	"here": {},
	"away": {Err: fmt.Errorf("away: %w", fleet.ErrNotCharged)},
	"cut":  {Err: errors.New("cut")}, // it may have been charged, and was not
	"lost": {Lost: true},
	"hung": {Hang: true},
	"full": {Err: fmt.Errorf("away: %w: %w", fleet.ErrNotCharged, stint.ErrFull)},
	"bad":  {Err: fleet.ErrBroken},
	"slow": {}, // by slowness
	// These are the caller's own.
	"unfit":  {Err: stint.ErrRequest},
	"unable": {Err: stint.ErrUnsupported},
}

const slowness = 40 * time.Millisecond

func newDistant() *distant {
	s := &distant{notifier: newNotifier(), fails: "here"}
	s.Fault = func(int) limittest.Fault {
		s.mu.Lock()
		defer s.mu.Unlock()
		return faults[s.fails]
	}
	return s
}

// fail is "here", another of faults, or such as "away a": only calls about a fail.
func (s *distant) fail(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.only, _ = strings.Cut(how, " ")
}

// asked notes a call, and takes the time that it is on its way. That depends on what is
// asked, so that what happens on two ways does not happen at one instant, in any order.
// It returns the store that answers, which does not fail if the call is about other keys.
func (s *distant) asked(ctx context.Context, format string, args ...any) stint.Store {
	line := fmt.Sprintf(format, args...)
	if strings.Contains(line, "stint probe") {
		line = "probe"
	}
	s.note("%s", line)
	h := fnv.New32()
	_, _ = h.Write([]byte(line))
	takes := time.Millisecond + time.Duration(h.Sum32()%100_000)
	s.mu.Lock()
	if s.fails == "slow" {
		takes += slowness
	}
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return &limittest.Faulty{Fault: func(int) limittest.Fault { return limittest.Fault{Err: ctx.Err()} }}
	}
	return s.who(line)
}

// who answers a call, which fails if it is about a key that does.
func (s *distant) who(line string) stint.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.only != "" && !strings.Contains(" "+line, " "+s.only+" ") {
		return s.Faulty.Store
	}
	return s.Faulty
}

// tells has the instances hear of what is invalidated, some time after the answer came.
func (s *distant) tells(r *stint.Request) {
	go func() {
		time.Sleep(3 * time.Millisecond)
		s.notify(r)
	}()
}

// note notes something that happened.
func (s *distant) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

// heard is what was asked since the last time. Calls at one instant have no order.
func (s *distant) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	slices.Sort(calls)
	var b strings.Builder
	for _, call := range runsOf(calls) {
		b.WriteString("\n    > " + call)
	}
	return b.String()
}

// runsOf writes equal lines that follow each other once.
func runsOf(lines []string) (all []string) {
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n] == lines[i] {
			n++
		}
		line := lines[i]
		if n > 1 {
			line += fmt.Sprintf(" (%d times)", n)
		}
		all = append(all, line)
		i += n
	}
	return all
}

func (s *distant) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return s.asked(ctx, "take %s", shownAsks(r)).Take(ctx, r, out)
}

func (s *distant) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	var all []string
	for i := range rs {
		all = append(all, shownAsks(&rs[i]))
	}
	slices.Sort(all) // debts are charged in any order
	store := s.asked(ctx, "batch %s", strings.Join(runsOf(all), " ; "))
	if s.only == "" {
		stint.TakeBatch(ctx, store, rs, answers)
		return
	}
	for i := range rs {
		stint.TakeBatch(ctx, s.who(shownAsks(&rs[i])), rs[i:i+1], answers[i:i+1])
	}
}

func (s *distant) Refund(ctx context.Context, r *stint.Request) error {
	all := strings.Split(shownAsks(r), ", ")
	slices.Sort(all) // leases return in any order
	defer s.tells(r)
	return stint.Refund(ctx, s.asked(ctx, "refund %s", strings.Join(all, ", ")), r)
}

func (s *distant) Reset(ctx context.Context, r *stint.Request) error {
	defer s.tells(r)
	return stint.Reset(ctx, s.asked(ctx, "reset %s", shownAsks(r)), r)
}

func (s *distant) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	return stint.Violate(ctx, s.asked(ctx, "violate %s", shownAsks(r)), r)
}

func (s *distant) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	var all []string
	for i := range calls {
		c := &calls[i]
		again := ""
		if c.Again {
			again = " again"
		}
		all = append(all, fmt.Sprintf("%s %s %s %d of %d%s", holdNames[c.Action], c.Key, c.Limit.Spec().Name, c.Cost, c.Units, again))
	}
	slices.Sort(all)
	stint.Holds(ctx, s.asked(ctx, "%s", strings.Join(all, " ; ")), at, calls)
}

var holdNames = map[stint.HoldAction]string{
	stint.HoldSettle: "settle", stint.HoldRenew: "renew", stint.HoldRelease: "release", stint.HoldCharge: "charge",
}

func shownAsks(r *stint.Request) string {
	var all []string
	for i := range r.Asks {
		all = append(all, shownAsk(&r.Asks[i]))
	}
	s := strings.Join(all, ", ")
	if r.Hold != (stint.HoldID{}) {
		s += " holding"
	}
	if r.Deadline > 0 {
		s += " within " + r.Deadline.String()
	}
	return s
}

// shownAsk writes an ask as a story does: key limit*cost~delay+penalty!policy@source.
func shownAsk(a *stint.Ask) string {
	s := a.Key + " "
	if a.Limit != nil {
		s += a.Limit.Spec().Name
	}
	if a.Limit != nil && a.Units() != 1 {
		s += "*" + strconv.FormatInt(a.Units(), 10)
	}
	if a.MaxDelay != 0 {
		s += "~" + a.MaxDelay.String()
	}
	if a.Penalty != nil {
		s += "+" + a.Penalty.Spec().Name
	}
	if a.OnError != stint.OnErrorLocal {
		s += "!" + a.OnError.String()
	}
	if a.By != stint.ByStore {
		s += "@" + a.By.String()
	}
	return s
}

func shownDecision(d *stint.Decision, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s", d.Outcome, d.By)
	part := func(is bool, format string, args ...any) {
		if is {
			fmt.Fprintf(&b, format, args...)
		}
	}
	part(d.Remembered, ", remembered")
	part(d.Busy, ", busy")
	part(d.Limit != nil, ", %s", d.Key)
	if d.Limit != nil {
		part(true, " %s", d.Limit.Spec().Name)
	}
	part(true, ": %d left", d.Remaining)
	part(d.Held != 0, ", %d held", d.Held)
	part(d.RetryAfter == stint.Never, ", never")
	part(d.RetryAfter != 0 && d.RetryAfter != stint.Never, ", retry %s", d.RetryAfter)
	part(d.ResetAfter != 0, ", reset %s", d.ResetAfter)
	part(d.Delay != 0, ", delay %s", d.Delay)
	part(d.Violations != 0, ", violation %d", d.Violations)
	part(d.BanLeft != 0, ", banned %s", d.BanLeft)
	return b.String()
}
