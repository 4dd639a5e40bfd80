package stint

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/algo"
)

// Algorithm is a way to count. docs/algorithms.md compares them. The zero
// Algorithm is TokenBucket.
type Algorithm uint8

const (
	// TokenBucket lets a burst through at once and then as much as comes back,
	// continuously. It is the cheapest, and right for most limits.
	TokenBucket = Algorithm(algo.TokenBucket)
	// LeakyBucket decides as TokenBucket does and also says, in
	// Decision.Delay, how long to hold a request so that they leave at an even
	// pace.
	LeakyBucket = Algorithm(algo.LeakyBucket)
	// FixedWindow counts in windows aligned to the clock (to 1970, UTC). Up to
	// twice the amount may pass around the border of two windows.
	FixedWindow = Algorithm(algo.FixedWindow)
	// SlidingLog remembers every admitted request: in no window of one period,
	// wherever it starts, is more than the amount admitted. (Where units are
	// refunded, the newest go first, and a window may then hold that much
	// more.)
	SlidingLog = Algorithm(algo.SlidingLog)
	// SlidingWindow approximates SlidingLog by counters of sub-windows, in
	// constant memory.
	SlidingWindow = Algorithm(algo.SlidingWindow)
)

var algorithmNames = [...]string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window"}

// String is the algorithm's name in files and flags, such as "token_bucket".
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "algorithm(" + strconv.Itoa(int(a)) + ")"
}

// ParseAlgorithm is the inverse of String.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithmNames {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q: one of %s", name, strings.Join(algorithmNames[:], ", "))
}

// Spec says what a limit is. NewLimit makes a Limit of it.
type Spec struct {
	// Name tells limits apart that count the same key: limits with the same
	// name, algorithm, period and number of sub-windows share their counts. It
	// also appears in headers and problem details. At most 192 bytes of printable
	// text; empty is a name like any other.
	//
	// Limits that are in use for one key at the same time, such as those of free and
	// of paying users, should have names of their own if their amounts differ.
	// Sharing a count is for an amount that changes now and then: what is used stays
	// used. Where limits that share one take turns, all together admit no more than
	// a limit with the largest of their amounts and of their bursts would alone. For
	// windows and logs, none admits more than it would alone either. For buckets one
	// may: the level that the others leave behind may run dry at their rates.
	//
	// Of buckets, that takes limits each of which can express the levels of the others:
	// for each, the largest burst × period / gcd(amount, period) must be below 2^52, in
	// the ticks that NewLimit chooses for it. A level above that is cut, and the rest
	// may be admitted again. An example is "999983 per 24h burst 1000" beside a burst
	// of more than 52,000.
	Name string
	// Algorithm is TokenBucket where not given.
	Algorithm Algorithm
	// Amount is how many units are allowed per Period; at least 1.
	Amount int64
	// Period is at least a millisecond and a whole number of microseconds.
	Period time.Duration
	// Burst is, for the buckets, how many units fit at once. 0: Amount.
	Burst int64
	// Buckets is, for SlidingWindow, how many sub-windows a period has; they
	// must divide it. 0: 10. At most 1000.
	Buckets int
	// Lease is what share of the capacity, in percent from 1 to MaxLease, all
	// instances together may have charged ahead, to serve hot keys without asking
	// the Store each time; see Leases. 0: none. Only a TokenBucket and a FixedWindow
	// can be leased. A TokenBucket keeps the share for that: as many units fewer fit
	// at once, and what comes back is the same.
	Lease int
}

// MaxLease is the largest share of a limit that may be leased, in percent.
const MaxLease = 50

// Limit is how much is allowed in how much time. It is made by ParseLimit,
// MustLimit or NewLimit, never changes, and may be used from many goroutines at
// once. Several limits may be in use for one key; see Spec.Name.
type Limit struct {
	spec Spec
	plan algo.Plan
	id   string
	text string // of String
	// lease is how many units all instances together may have charged ahead.
	lease int64

	salt       uint64        // of id, for a Memory's table
	planNumber atomic.Uint32 // see plans; 0: not looked up yet
}

const maxName = 192

// NewLimit checks s and makes a limit of it. The error says which number is
// wrong and what would be right: beside the ranges given with Spec, the numbers
// must allow exact arithmetic in integers below 2^52 (in ticks of 1 µs, or of
// 1 ms where that is too fine).
func NewLimit(s Spec) (*Limit, error) {
	if err := checkName(s.Name); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	plan, err := algo.NewPlan(algo.Kind(s.Algorithm), s.Amount, s.Period, s.Burst, int64(s.Buckets))
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	lease, err := leaseOf(&s, &plan)
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	id := limitID(s.Name, &plan)
	return &Limit{spec: s, plan: plan, id: id, text: s.text(), lease: lease, salt: saltOf(id)}, nil
}

// leaseOf is how many units of a limit may be leased. What of a bucket may be is
// taken from its capacity: where at most C fit into the bucket and at most A lie
// beside it, already charged, no more than C + A pass at once, however long A has
// lain there.
func leaseOf(s *Spec, p *algo.Plan) (int64, error) {
	switch {
	case s.Lease == 0:
		return 0, nil
	case s.Lease < 0 || s.Lease > MaxLease:
		return 0, fmt.Errorf("lease %d%%: must be from 1%% to %d%%", s.Lease, MaxLease)
	case s.Algorithm == LeakyBucket:
		return 0, fmt.Errorf("lease %d%%: a leaky_bucket says when each request may leave, which only the store knows; only token_bucket and fixed_window can be leased", s.Lease)
	case s.Algorithm != TokenBucket && s.Algorithm != FixedWindow:
		return 0, fmt.Errorf("lease %d%%: a unit of a %s is free again a period after it was charged, and of a lease it may be used later than that; only token_bucket and fixed_window can be leased", s.Lease, s.Algorithm)
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

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("name of %d bytes: at most %d", len(name), maxName)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("name %q: must be printable text", name)
	}
	return nil
}

// limitID leads with what has a fixed form, so that no name can imitate it.
func limitID(name string, p *algo.Plan) string {
	id := string("tlfsw"[p.Kind]) + durationText(algo.Duration(p.Period))
	if p.Kind == algo.SlidingWindow {
		id += "/" + strconv.FormatInt(p.Buckets, 10)
	}
	return id + ":" + name
}

// ParseLimit reads the text form of a limit:
//
//	AMOUNT per PERIOD [ALGORITHM] [burst N] [buckets N] [lease N%]
//
// such as "100 per 1m", "5 per 10s sliding_log", "100 per 1h token_bucket burst
// 20", "500 per 1d sliding_window buckets 12" or "100000 per 1m lease 5%". PERIOD is a Go duration, or a
// number of days such as 7d. The limit has no name; see Named.
func ParseLimit(text string) (*Limit, error) {
	words := strings.Fields(text)
	s, err := parseSpec(words)
	if err != nil {
		if better := misplaced(words); better != nil {
			err = better
		}
		return nil, fmt.Errorf("limit %q: %w", clip(text), err)
	}
	l, err := NewLimit(s)
	if err != nil {
		return nil, fmt.Errorf("limit %q: %w", clip(text), errors.Unwrap(err))
	}
	return l, nil
}

// MustLimit is ParseLimit for limits written in the program: it panics where
// ParseLimit returns an error.
func MustLimit(text string) *Limit {
	l, err := ParseLimit(text)
	if err != nil {
		panic(err)
	}
	return l
}

// misplaced is what is wrong with a limit's words if it is where the algorithm stands,
// or that there are two; nil: it is something else.
func misplaced(words []string) error {
	const after = 3 // AMOUNT per PERIOD
	isAlgorithm := func(word string) bool { _, err := ParseAlgorithm(word); return err == nil }
	i := slices.IndexFunc(words, isAlgorithm)
	if i < 0 {
		return nil
	}
	if j := slices.IndexFunc(words[i+1:], isAlgorithm); j >= 0 {
		return fmt.Errorf("%q and %q: only one algorithm", words[i], words[i+1+j])
	}
	if i == after || len(words) <= after {
		return nil
	}
	inOrder := slices.Insert(slices.Delete(slices.Clone(words), i, i+1), after, words[i])
	s, err := parseSpec(inOrder)
	if err == nil {
		_, err = NewLimit(s)
	}
	if err != nil {
		return fmt.Errorf("%q must come right after the period, and then: %s", words[i], strings.TrimPrefix(err.Error(), "limit: "))
	}
	return fmt.Errorf("%q must come right after the period: write %q", words[i], clip(strings.Join(inOrder, " ")))
}

// parseSpec reads the words of a limit's text form.
func parseSpec(f []string) (Spec, error) {
	var s Spec
	if len(f) < 3 || f[1] != "per" {
		return s, errors.New(`want AMOUNT per PERIOD, such as "100 per 1m"`)
	}
	var err error
	if s.Amount, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return s, fmt.Errorf("amount %q: must be a whole number from 1 to 2^52", clip(f[0]))
	}
	if s.Period, err = ParsePeriod(f[2]); err != nil {
		return s, err
	}
	f = f[3:]
	for _, word := range f {
		if name, value, ok := strings.Cut(word, "="); ok {
			return s, fmt.Errorf("%q: write %q", clip(word), clip(name+" "+value))
		}
	}
	if len(f) > 0 && f[0] != "burst" && f[0] != "buckets" && f[0] != "lease" {
		if s.Algorithm, err = ParseAlgorithm(f[0]); err != nil {
			return s, err
		}
		f = f[1:]
	}
	for ; len(f) > 0; f = f[2:] {
		if len(f) == 1 {
			return s, fmt.Errorf("%q: a number must follow", clip(f[0]))
		}
		if f[0] == "lease" {
			if s.Lease > 0 {
				return s, errors.New(`"lease": only once`)
			}
			if s.Lease, err = ParseLease(f[1]); err != nil {
				return s, err
			}
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || n < 1 {
			return s, fmt.Errorf("%s %q: must be a whole number of at least 1", clip(f[0]), clip(f[1]))
		}
		switch {
		case f[0] == "burst" && s.Burst == 0:
			s.Burst = n
		case f[0] == "buckets" && s.Buckets == 0:
			s.Buckets = int(min(n, algo.MaxBuckets+1))
		default:
			return s, fmt.Errorf("%q: only burst N, buckets N and lease N%% may follow, once each", clip(f[0]))
		}
	}
	return s, nil
}

// ParseLease reads the share of a limit that may be leased, such as "5%", for
// Spec.Lease.
func ParseLease(text string) (int, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		if n, err := strconv.ParseUint(percent, 10, 8); err == nil && n >= 1 && n <= MaxLease {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("lease %q: must be a share from 1%% to %d%%, such as 5%%", clip(text), MaxLease)
}

// ParsePeriod reads a period: a Go duration such as "1m30s", or whole days such
// as "7d".
func ParsePeriod(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err == nil && n >= 1 && n <= math.MaxInt64/int64(24*time.Hour) {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	return 0, fmt.Errorf("period %q: must be a duration such as 500ms, 10s, 1m30s, 24h or 7d", clip(text))
}

// clip keeps what a caller sent from filling a log.
func clip(s string) string {
	if len(s) <= 80 {
		return s
	}
	return strings.ToValidUTF8(s[:77], "") + "…"
}

// String is the limit's text form, without its name; ParseLimit reads it back.
func (l *Limit) String() string { return l.text }

func (s *Spec) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d per %s", s.Amount, durationText(s.Period))
	if s.Algorithm != TokenBucket || s.Burst > 0 {
		b.WriteString(" " + s.Algorithm.String())
	}
	if s.Burst > 0 {
		fmt.Fprintf(&b, " burst %d", s.Burst)
	}
	if s.Buckets > 0 {
		fmt.Fprintf(&b, " buckets %d", s.Buckets)
	}
	if s.Lease > 0 {
		fmt.Fprintf(&b, " lease %d%%", s.Lease)
	}
	return b.String()
}

// durationText is d as a person writes it: 1m, not 1m0s.
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// Spec is what the limit was made of.
func (l *Limit) Spec() Spec { return l.spec }

// Name is Spec.Name.
func (l *Limit) Name() string { return l.spec.Name }

// Capacity is how many units fit at once: the burst of a bucket that has one,
// else the amount; without the share of a token bucket that may be leased. A request
// of a higher cost is never allowed.
func (l *Limit) Capacity() int64 { return l.plan.Capacity }

// Lease is how many units all instances together may have charged ahead, as
// Spec.Lease says; 0: none.
func (l *Limit) Lease() int64 { return l.lease }

// Named is a copy of l with another name. It returns an error where Spec.Name
// would be refused.
func (l *Limit) Named(name string) (*Limit, error) {
	s := l.spec
	s.Name = name
	return NewLimit(s)
}

// ID names the limit's counts in a store: limits with the same ID share them. It
// starts with the algorithm, period and sub-windows and ends with the name.
func (l *Limit) ID() string { return l.id }
