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
	// These are the caller's own.
	"unfit":  {Err: stint.ErrRequest},
	"unable": {Err: stint.ErrUnsupported},
}

func newDistant() *distant {
	s := &distant{notifier: newNotifier(), fails: "here"}
	s.Fault = func(int) limittest.Fault {
		s.mu.Lock()
		defer s.mu.Unlock()
		return faults[s.fails]
	}
	return s
}

func (s *distant) fail(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = how
}

// asked notes a call, and takes the time that it is on its way. That depends on what is
// asked, so that what happens on two ways does not happen at one instant, in any order.
func (s *distant) asked(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if strings.Contains(line, "stint probe") {
		line = "probe"
	}
	s.note("%s", line)
	h := fnv.New32()
	_, _ = h.Write([]byte(line))
	time.Sleep(time.Millisecond + time.Duration(h.Sum32()%100_000))
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
	s.asked("take %s", shownAsks(r))
	return s.notifier.Take(ctx, r, out)
}

func (s *distant) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	var all []string
	for i := range rs {
		all = append(all, shownAsks(&rs[i]))
	}
	slices.Sort(all) // debts are charged in any order
	s.asked("batch %s", strings.Join(runsOf(all), " ; "))
	s.notifier.TakeBatch(ctx, rs, answers)
}

func (s *distant) Refund(ctx context.Context, r *stint.Request) error {
	all := strings.Split(shownAsks(r), ", ")
	slices.Sort(all) // leases return in any order
	s.asked("refund %s", strings.Join(all, ", "))
	return s.notifier.Refund(ctx, r)
}

func (s *distant) Reset(ctx context.Context, r *stint.Request) error {
	s.asked("reset %s", shownAsks(r))
	return s.notifier.Reset(ctx, r)
}

func (s *distant) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	s.asked("violate %s", shownAsks(r))
	return s.notifier.Violate(ctx, r)
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
	s.asked("%s", strings.Join(all, " ; "))
	s.notifier.Holds(ctx, at, calls)
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
