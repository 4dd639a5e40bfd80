package redislimit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// EnvoyKeys makes a Store count some limits as envoyproxy/ratelimit does, so that instances of
// both count together while one replaces the other. Such a count is a whole number under a key
// that ends with the start of its window by this instance's clock. It expires with its window and
// up to JitterMax later.
//
// Stint does not charge requests that it refuses, although envoyproxy/ratelimit does, in the
// same keys. A request under both kinds of limits, or under such a limit with a penalty, takes
// two or more round trips and is not atomic: the units taken under one kind are refunded if the
// other refuses. So are those taken in other slots of a Cluster, where these keys have no hash
// tags.
type EnvoyKeys struct {
	// Name returns the name of a key's count under a limit in envoyproxy/ratelimit, without
	// Prefix and without the start of the window, such as "domain_key_value_". ok is false for
	// limits that are counted in Stint's own keys; it may be true only for fixed windows of
	// whole seconds that are not held. It is called for each ask, from many goroutines at once.
	Name func(l *stint.Limit, key string) (name string, ok bool)
	// Prefix is before each key.
	Prefix string
	// JitterMax is how much longer than its window a count lives at most. It is in whole
	// seconds.
	JitterMax time.Duration
}

var (
	//go:embed envoy.lua
	envoyText string
	//go:embed envoy_refund.lua
	envoyRefundText string

	envoyScript       = conn.NewScript(envoyText)
	envoyRefundScript = conn.NewScript(envoyRefundText)
)

// envoyCount is the count in Envoy's keys of an ask or a call.
type envoyCount struct {
	key     string
	units   int64
	most    int64
	seconds int64 // until it expires
	plan    *algo.Plan
}

// envoyInstant is at in µs; zero: now, by this instance's clock, as Envoy's instances use
// theirs.
func envoyInstant(at time.Time) int64 {
	if at.IsZero() {
		at = time.Now()
	}
	return at.UnixMicro()
}

// envoyCount returns the count of l in the window at now; not ok: l is counted in Stint's keys. s
// must have EnvoyKeys.
func (s *Store) envoyCount(l *stint.Limit, key string, units, now int64) (c envoyCount, ok bool) {
	if l == nil {
		return c, false
	}
	name, ok := s.envoy.Name(l, key)
	if !ok {
		return c, false
	}
	p := kit.Plan(l)
	window := p.Window(now)
	c = envoyCount{units: units, most: p.Capacity, plan: p, seconds: p.Period / 1e6}
	b := make([]byte, 0, len(s.envoy.Prefix)+len(name)+12)
	b = append(append(b, s.envoy.Prefix...), name...)
	c.key = string(strconv.AppendInt(b, window.Start/1e6, 10))
	if j := int64(s.envoy.JitterMax / time.Second); j > 0 {
		c.seconds += rand.Int64N(j)
	}
	return c, true
}

// Actions of an envoyRequest.
const (
	envoyLook   = "look"
	envoyTake   = "take"
	envoyCharge = "charge" // whether it fits or not
)

// envoyRequest has counts that are decided together, and the answer.
type envoyRequest struct {
	counts []envoyCount
	what   string
	fits   bool
	used   []int64 // each count before the request
	err    error
}

// runEnvoy makes one call for requests whose keys are in one slot. All get its error.
func (s *Store) runEnvoy(ctx context.Context, all ...*envoyRequest) {
	var keys, argv []string
	for _, r := range all {
		argv = append(argv, strconv.Itoa(len(r.counts)), r.what)
		for i := range r.counts {
			c := &r.counts[i]
			keys = append(keys, c.key)
			argv = append(argv, strconv.FormatInt(c.units, 10), strconv.FormatInt(c.most, 10), strconv.FormatInt(c.seconds, 10))
		}
	}
	reply, err := s.conn.Eval(ctx, envoyScript, keys, argv...)
	numbers, _ := reply.([]any)
	switch {
	case err != nil && conn.IsWrongType(err):
		err = fmt.Errorf("redislimit: a count of Envoy's rate limit service holds another type of value: %w", fleet.ErrBroken)
	case err != nil:
		err = fmt.Errorf("redislimit: %w", markNotCharged(err))
	case len(numbers) == 1:
		err = fmt.Errorf("redislimit: a count of Envoy's rate limit service holds a value that is not a number: %w", fleet.ErrBroken)
	case len(numbers) != len(all)+len(keys):
		err = badReply("%T, %d numbers for %d counts", reply, len(numbers), len(keys))
	}
	next := func() int64 {
		n, _ := numbers[0].(int64)
		numbers = numbers[1:]
		return n
	}
	for _, r := range all {
		if r.err = err; err != nil {
			continue
		}
		r.fits = next() == 1
		r.used = make([]int64, len(r.counts))
		for i := range r.used {
			r.used[i] = next()
		}
	}
}

// takeEnvoy decides one request, whose keys may be in several slots.
func (s *Store) takeEnvoy(ctx context.Context, r *envoyRequest) {
	slots := map[uint16]*envoyRequest{}
	var parts []*envoyRequest
	places := map[*envoyRequest][]int{}
	for i := range r.counts {
		n := uint16(0)
		if s.conn.Cluster() {
			n = conn.KeySlot(r.counts[i].key)
		}
		p := slots[n]
		if p == nil {
			p = &envoyRequest{what: r.what}
			slots[n] = p
			parts = append(parts, p)
		}
		p.counts = append(p.counts, r.counts[i])
		places[p] = append(places[p], i)
	}
	if len(parts) == 1 {
		s.runEnvoy(ctx, r)
		return
	}
	inParallel(parts, func(p *envoyRequest) { s.runEnvoy(ctx, p) })
	r.fits, r.used = true, make([]int64, len(r.counts))
	var errs []error
	for _, p := range parts {
		r.fits = r.fits && p.fits
		errs = append(errs, p.err)
		for i, place := range places[p] {
			if p.err == nil {
				r.used[place] = p.used[i]
			}
		}
	}
	refunded := true
	if r.what == envoyTake && !r.fits {
		refunded = s.refundEnvoyParts(ctx, parts)
	}
	if errors.Join(errs...) != nil {
		r.err = slotsError(ctx, errs, refunded)
	}
}

// refundEnvoyParts refunds the units that parts have taken for a refused request, and reports
// whether all are back.
func (s *Store) refundEnvoyParts(ctx context.Context, parts []*envoyRequest) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	inParallel(parts, func(p *envoyRequest) {
		if p.err != nil || !p.fits {
			return
		}
		if err := s.refundEnvoy(ctx, p.counts, nil); err != nil {
			p.fits = false
		}
	})
	complete := true
	for _, p := range parts {
		complete = complete && (p.err != nil || p.fits)
	}
	return complete
}

// refundEnvoy refunds the units of counts in one slot, and publishes the invalidated keys.
func (s *Store) refundEnvoy(ctx context.Context, counts []envoyCount, asks []stint.Ask) error {
	var keys, argv []string
	for i := range counts {
		keys = append(keys, counts[i].key)
		argv = append(argv, strconv.FormatInt(counts[i].units, 10))
	}
	argv = s.appendInvalidations(argv, &stint.Request{Asks: asks})
	if _, err := s.conn.Eval(ctx, envoyRefundScript, keys, argv...); err != nil {
		return fmt.Errorf("redislimit: refund: %w", markNotCharged(err))
	}
	return nil
}
