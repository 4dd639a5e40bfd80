package stint

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
	"github.com/stintdev/stint/internal/limittext"
)

// Algorithm is a way to count. docs/algorithms.md compares them. The zero
// Algorithm is TokenBucket.
type Algorithm uint8

const (
	// TokenBucket lets a burst through at once and then as much as comes back,
	// continuously. It is the cheapest, and right for most limits.
	TokenBucket Algorithm = Algorithm(algo.TokenBucket)
	// LeakyBucket decides as TokenBucket does and also says, in Decision.Delay, how long to
	// delay a request so that requests leave at an even pace.
	LeakyBucket Algorithm = Algorithm(algo.LeakyBucket)
	// FixedWindow counts in windows aligned to the clock (to 1970, UTC), or to
	// Spec.Calendar. Up to twice the amount may pass around the border of two windows.
	FixedWindow Algorithm = Algorithm(algo.FixedWindow)
	// SlidingLog remembers every admitted request: no window of one period, wherever it
	// starts, admits more than the amount. A refund returns the newest units first; a
	// window may then admit as many more.
	SlidingLog Algorithm = Algorithm(algo.SlidingLog)
	// SlidingWindow approximates SlidingLog by counters of sub-windows, in
	// constant memory.
	SlidingWindow Algorithm = Algorithm(algo.SlidingWindow)
	// InFlight limits how many units are held at once by requests that have started and not
	// ended. It has no period. A request holds one unit, whatever it costs under other
	// limits, unless its Ask has a Cost.
	InFlight Algorithm = Algorithm(algo.InFlight)
)

// String is the algorithm's name in files and flags, such as "token_bucket".
func (a Algorithm) String() string { return algo.Kind(a).String() }

// Spec describes a limit. NewLimit makes a Limit from it.
type Spec struct {
	// Name tells limits apart that count the same key: limits with the same name,
	// algorithm, period or calendar, and number of sub-windows share their counts, in every program
	// over the same Store. Those without a name share theirs, too. It also appears in
	// headers and problem details. At most 192 bytes of printable text without spaces at
	// its ends; "": no name.
	//
	// Limits share counts so that an amount can change and what is used stays used.
	// Limits that are in use for one key at the same time, such as those of free and paying
	// users, should have different names. docs/decisions/0001-limits-and-counts.md says
	// what limits that share a count admit together.
	Name string
	// Algorithm is the way to count. The zero value is TokenBucket.
	Algorithm Algorithm
	// Amount is how many units are allowed per Period. 0 lets nothing pass. Unlimited lets
	// everything pass: then the other fields but Name do not matter.
	Amount int64
	// Period is at least a millisecond and a whole number of microseconds. A limit with a
	// Calendar has none, nor does one that is InFlight.
	Period time.Duration
	// Calendar makes the limit a FixedWindow with the windows of the calendar. The zero
	// Calendar: windows are one Period long.
	Calendar Calendar
	// Burst is how many units fit into a TokenBucket or LeakyBucket at once. 0: Amount.
	Burst int64
	// Buckets is how many sub-windows the period of a SlidingWindow has; they must divide
	// it. 0: 10. At most 1000.
	Buckets int
	// Hold makes the limit held: a Request with a Hold does not take units, but holds them
	// until it is settled with its final cost. Hold is how long a hold lasts without
	// renewal, from a millisecond to a day. 0: the limit is not held; for InFlight,
	// DefaultHold. A LeakyBucket cannot be held, and a held limit cannot be leased.
	Hold time.Duration
	// Retry is the RetryAfter of a request that a held limit refuses because of units that
	// others hold. It is a hint. 0: one second.
	Retry time.Duration
	// Debt is how many units above the capacity settlements and charges may use; units
	// beyond that are not charged. 0: as many as the capacity for buckets, and no bound for
	// the other algorithms, whose debt ends with their windows. NoDebt: none.
	Debt int64
	// Lease is the share of the capacity, in percent from 1 to 50, that all
	// instances together may have charged ahead, to serve hot keys without asking
	// the Store each time; see fleet.Leases. 0: none. Only a TokenBucket and a
	// FixedWindow can be leased. The capacity of a TokenBucket is smaller by the
	// share; its rate is the same.
	Lease int
}

// Limit is how much is allowed in how much time. ParseLimit, MustLimit and NewLimit make
// one. It never changes and may be used from many goroutines at once. Several limits may be
// in use for one key: Spec.Name says which share counts.
//
// An amount of 0, "0 per 1m" or "0 in_flight", lets nothing pass: a request with a cost of 1 or more is
// refused like one whose cost is above the capacity, with RetryAfter Never, and that counts as a violation. A
// peek is allowed, except under 0 in_flight, and Remaining is 0. "unlimited" lets everything pass, and
// Remaining is Unlimited: nothing is counted, and a request under unlimited limits alone does not reach the
// Store. So a setting can turn something off, or lift a limit, by its text alone.
//
// Where a key is counted under one limit, as by Limiter.Allow, a Guard, httplimit.By and a
// httplimit.Transport, a nil Limit is the default, "100 per 1m", so that a program which forgot its limit
// still has one. Where a limit is one of several or may be left out, as in an Ask, Limiter.Instance and
// rpclimit.Client, nil is no limit.
type Limit struct {
	spec  Spec
	id    string
	terms string
	// lease is how many units all instances together may have charged ahead.
	lease   int64
	counted counts.Limit
}

const maxName = 192

// NoDebt is the Spec.Debt of a limit whose usage must not exceed the capacity. DefaultHold is
// the Spec.Hold of a held limit without a time.
const (
	NoDebt      = -1
	DefaultHold = 30 * time.Second
)

const (
	defaultRetry = time.Second
	maxHold      = 24 * time.Hour
)

// NewLimit checks s and makes a limit of it. Limits that differ only in amount, burst and
// lease share their counts (see Spec.Name). The error says which number is wrong and what
// would be right: besides the ranges given with Spec, the numbers must allow exact
// arithmetic in integers below 2^52 (in ticks of 1 µs, or of 1 ms where that is too fine).
func NewLimit(s Spec) (*Limit, error) {
	if err := checkName(s.Name); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	switch s.Amount {
	case 0:
		return newNothing(s)
	case Unlimited:
		return newUnlimited(s), nil
	}
	plan, err := planOf(&s)
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	lease, err := leaseOf(&s, &plan)
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	if err := addHold(&s, &plan); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	id := limitID(&s, &plan)
	return &Limit{spec: s, id: id, terms: s.terms(), lease: lease, counted: counts.Limit{Plan: plan, Salt: counts.Salt(id)}}, nil
}

func planOf(s *Spec) (algo.Plan, error) {
	switch c := &s.Calendar; {
	case c.Unit != 0:
		return planOfCalendar(s)
	case c.Zone != "":
		return algo.Plan{}, fmt.Errorf("in %s: only a limit per day, week, month or year has a time zone", limittext.Clip(c.Zone))
	case c.Starts != "":
		return algo.Plan{}, fmt.Errorf("starts %s: only a limit per week, month or year has a day to start with", limittext.Clip(c.Starts))
	}
	return algo.NewPlan(algo.Kind(s.Algorithm), s.Amount, s.Period, s.Burst, int64(s.Buckets))
}

// leaseOf is how many units of a limit may be leased. A bucket's capacity is reduced by
// them: if at most C units fit into the bucket and at most A are charged ahead, at most C +
// A pass at once, however long ago A was charged.
func leaseOf(s *Spec, p *algo.Plan) (int64, error) {
	switch {
	case s.Lease == 0:
		return 0, nil
	case s.Lease < 0 || s.Lease > limittext.MaxLease:
		return 0, fmt.Errorf("lease %d%%: must be from 1%% to %d%%", s.Lease, limittext.MaxLease)
	case s.Algorithm == LeakyBucket:
		return 0, fmt.Errorf("lease %d%%: only the store knows when a request may leave a leaky_bucket; only token_bucket and fixed_window can be leased", s.Lease)
	case s.Algorithm == InFlight:
		return 0, fmt.Errorf("lease %d%%: a limit that is held cannot be leased", s.Lease)
	case s.Algorithm != TokenBucket && s.Algorithm != FixedWindow:
		return 0, fmt.Errorf("lease %d%%: a %s frees a unit one period after it was charged, but a leased unit may be used after that; only token_bucket and fixed_window can be leased", s.Lease, s.Algorithm)
	}
	lease := p.Capacity * int64(s.Lease) / 100
	if s.Algorithm == FixedWindow || lease == 0 {
		return lease, nil
	}
	less, err := algo.NewPlan(p.Kind, p.Amount, s.Period, p.Capacity-lease, 0)
	if err != nil {
		return 0, err
	}
	*p = less
	return lease, nil
}

// addHold copies the fields for holds from s to p.
func addHold(s *Spec, p *algo.Plan) error {
	if s.Algorithm == InFlight && s.Hold == 0 {
		p.Hold = DefaultHold.Microseconds()
	}
	switch {
	case s.Hold != 0 && !isHoldTime(s.Hold):
		return fmt.Errorf("hold %s: must be from 1ms to 24h and a whole number of microseconds", s.Hold)
	case s.Hold > 0 && s.Algorithm == LeakyBucket:
		return fmt.Errorf("hold: a leaky_bucket cannot hold, because it sets the delay when a request starts")
	case s.Hold > 0:
		p.Hold = s.Hold.Microseconds()
	}
	switch {
	case s.Lease > 0 && p.Hold > 0:
		return fmt.Errorf("lease %d%%: a limit that is held cannot be leased", s.Lease)
	case s.Retry < 0 || s.Retry > maxHold || s.Retry%time.Microsecond != 0:
		return fmt.Errorf("retry %s: must be from 1µs to 24h and a whole number of microseconds", s.Retry)
	case s.Retry > 0 && p.Hold == 0:
		return fmt.Errorf("retry %s: only a limit that is held has one", s.Retry)
	case p.Hold > 0:
		p.Busy = cmp.Or(s.Retry, defaultRetry).Microseconds()
	}
	return p.SetDebt(s.Debt)
}

// isHoldTime reports whether a hold can last for d.
func isHoldTime(d time.Duration) bool {
	return d >= time.Millisecond && d <= maxHold && d%time.Microsecond == 0
}

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("name of %d bytes: at most %d", len(name), maxName)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("name %q: must be printable text", name)
	}
	if strings.TrimSpace(name) != name {
		return fmt.Errorf("name %q: must not begin or end with a space", name)
	}
	return nil
}

// limitID puts the name last, after the parts of a fixed form, so that no name can imitate
// another limit.
func limitID(s *Spec, p *algo.Plan) string {
	if s.Calendar.Unit != 0 {
		return s.Calendar.id() + ":" + s.Name
	}
	id := string("tlfswi"[p.Kind])
	if p.Kind != algo.InFlight {
		id += limittext.Duration(algo.Duration(p.Period))
	}
	if p.Kind == algo.SlidingWindow {
		id += "/" + strconv.FormatInt(p.Buckets, 10)
	}
	return id + ":" + s.Name
}

// defaultLimit stands for a nil Limit. It is meant for one user or client: above what a person or a page
// load needs, below what a scanning script or an endless loop sends.
var defaultLimit = MustLimit("100 per 1m")

// orDefault is l, or the default limit if that is nil.
func (l *Limit) orDefault() *Limit {
	if l == nil {
		return defaultLimit
	}
	return l
}

// Methods of a nil Limit return "no limit" or zero values, as a Decision without a limit needs.

// String is the limit's text form, such as "login: 5 per 1m", which ParseLimit reads back.
func (l *Limit) String() string {
	if l == nil {
		return "no limit"
	}
	if l.spec.Name == "" {
		return l.terms
	}
	return l.spec.Name + ": " + l.terms
}

// Terms is String without the name, such as "5 per 1m".
func (l *Limit) Terms() string {
	if l == nil {
		return "no limit"
	}
	return l.terms
}

// Spec is what the limit was made from.
func (l *Limit) Spec() (s Spec) {
	if l != nil {
		s = l.spec
	}
	return s
}

// Capacity is how many units fit at once: the burst of a bucket that has one, else the
// amount; less the leased share of a token bucket. A request with a higher cost is never
// allowed. It is Unlimited for an unlimited limit.
func (l *Limit) Capacity() int64 {
	switch {
	case l == nil:
		return 0
	case l.IsUnlimited():
		return Unlimited
	}
	return l.counted.Plan.Capacity
}

// Window returns the start and the end of the FixedWindow that contains at, which must be from
// 1970 on: in the time zone of Spec.Calendar, else in UTC. For other algorithms and if l is
// unlimited it returns zero Times.
func (l *Limit) Window(at time.Time) (start, end time.Time) {
	if l == nil || l.counted.Plan.Kind != algo.FixedWindow || l.spec.Algorithm != FixedWindow && l.spec.Calendar.Unit == 0 || l.IsUnlimited() {
		return start, end
	}
	p := &l.counted.Plan
	w := p.Window(at.UnixMicro())
	zone := time.UTC
	if p.Calendar != nil {
		zone = p.Calendar.Zone()
	}
	return time.UnixMicro(w.Start).In(zone), time.UnixMicro(w.End).In(zone)
}

// IsHeld reports whether requests with a Hold hold units under l; see Spec.Hold.
func (l *Limit) IsHeld() bool { return l != nil && l.counted.Plan.Hold > 0 }

// ID names the limit's counts in a store: limits with the same ID share them. It
// starts with the algorithm, period and sub-windows and ends with the name.
func (l *Limit) ID() string {
	if l == nil {
		return ""
	}
	return l.id
}
