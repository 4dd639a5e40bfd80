package limittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stintdev/stint"
)

// At one instant a held limit is two counters: used and held units. Racing goroutines hold, settle,
// renew, release and charge under two keys, also each other's holds, and must get the answers of
// some order of their calls.

const (
	holdRaceCapacity = 6
	holdRaceMost     = 8 // debt
	holdRaceCalls    = 10
	holdRaceKeys     = 2
)

// heldCall is a request that holds, or a call about the hold that a racer's call made.
type heldCall struct {
	verb string // hold, take, settle, renew, release or charge
	hold int    // number of the call that made it
	key  int
	both bool // a request asks for both keys, key first
	cost int64
}

type heldReply struct {
	allowed bool // for a call: found
	charged int64
	left    int64 // of key
	held    int64 // of key
}

type heldState struct {
	used, held [holdRaceKeys]int64
	// units has the units of each hold; -1 if it was released.
	units [holdRaceKeys][racers * holdRaceCalls]int8
}

func (s *heldState) step(in heldCall, charges bool) (out heldReply) {
	k := in.key
	units := &s.units[k][in.hold]
	most := int64(0)
	if charges {
		most = holdRaceMost
	}
	charge := func() int64 { return max(0, min(in.cost, most-s.used[k])) }
	switch in.verb {
	case "hold", "take":
		keys := []int{k}
		if in.both {
			keys = append(keys, 1-k)
		}
		out.allowed = true
		for _, k := range keys {
			out.allowed = out.allowed && s.used[k]+s.held[k]+in.cost <= holdRaceCapacity
		}
		for _, k := range keys {
			switch {
			case !out.allowed:
			case in.verb == "hold":
				s.held[k] += in.cost
				s.units[k][in.hold] = int8(in.cost)
			case charges:
				s.used[k] += in.cost
			}
		}
	case "settle":
		if out.allowed = *units > 0; out.allowed {
			s.held[k] -= int64(*units)
			*units = 0
			out.charged = charge()
		}
	case "renew":
		out.allowed = *units > 0
	case "release":
		if out.allowed = *units > 0; out.allowed {
			s.held[k] -= int64(*units)
		}
		*units = -1
	case "charge":
		out.allowed = true
		out.charged = charge()
	}
	s.used[k] += out.charged
	out.left, out.held = max(0, holdRaceCapacity-s.used[k]-s.held[k]), s.held[k]
	return out
}

func checkLinearizableHolds(t testing.TB, e *env) {
	t.Logf("seed %d", e.seed)
	stores := e.fleet()
	asHolder(t, stores[0])
	for a := stint.TokenBucket; a <= stint.InFlight; a++ {
		spec := stint.Spec{Algorithm: a, Amount: holdRaceCapacity, Period: 10 * time.Second, Hold: time.Minute, Debt: holdRaceMost - holdRaceCapacity}
		switch a {
		case stint.LeakyBucket:
			continue
		case stint.InFlight:
			spec.Period, spec.Debt = 0, 0
		}
		for n := range races {
			r := holdRace{stores: stores, limit: mustLimit(spec), seed: e.seed + uint64(n), name: fmt.Sprintf("hold race %d %s", n, a)}
			r.run(t)
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

type holdRace struct {
	stores []stint.Store
	limit  *stint.Limit
	seed   uint64
	name   string
}

func (r *holdRace) run(t testing.TB) {
	charges := r.limit.Spec().Algorithm != stint.InFlight
	runRace(t, &runners[heldCall, heldReply]{
		name: r.name, seed: r.seed, calls: holdRaceCalls, draw: r.draw, tell: heldCall.tell,
		model: porcupine.Model{
			Init: func() any { return heldState{} },
			Step: func(state, in, out any) (bool, any) {
				next := state.(heldState)
				want := next.step(in.(heldCall), charges)
				return want == out.(heldReply), next
			},
		},
		do: func(racer int, in heldCall) (heldReply, error) {
			out, err := r.do(t.Context(), r.stores[racer%len(r.stores)], in)
			if err != nil {
				err = fmt.Errorf("%s: %w", in.verb, err)
			}
			return out, err
		},
	})
}

// draw returns a request by racer i, or a call about a hold that any racer has made or is about to
// make.
func (r *holdRace) draw(rng *rand.Rand, i, n int) heldCall {
	in := heldCall{verb: "hold", hold: i*holdRaceCalls + n, key: rng.IntN(holdRaceKeys)}
	in.cost = racedUnits(in.hold)
	switch rng.IntN(10) {
	case 0, 1, 2:
		in.both = rng.IntN(2) == 0
		return in
	case 3:
		in.verb, in.both = "take", rng.IntN(2) == 0
		return in
	}
	in.verb = "settle"
	switch rng.IntN(6) {
	case 0:
		in.verb = "renew"
	case 1:
		if n > 0 { // one that was answered, so that its request does not come later
			in.verb, in.hold = "release", i*holdRaceCalls+rng.IntN(n)
			return in
		}
	case 2:
		if r.limit.Spec().Algorithm != stint.InFlight {
			in.verb = "charge"
		}
	}
	in.hold = rng.IntN(racers)*holdRaceCalls + rng.IntN(n+1)
	in.cost = int64(rng.IntN(4))
	return in
}

// racedUnits is how many units hold n holds, known to all racers.
func racedUnits(n int) int64 { return int64(1 + n%3) }

func (r *holdRace) key(k int) string { return fmt.Sprintf("%s: key %d", r.name, k) }

func (r *holdRace) do(ctx context.Context, s stint.Store, in heldCall) (out heldReply, err error) {
	at := time.UnixMicro(1e15 + 123_456)
	id := numbered(1 + in.hold)
	if in.verb != "hold" && in.verb != "take" {
		action := stint.HoldAction(slices.Index(actionNames[:], in.verb))
		calls := []stint.HoldCall{{Action: action, Key: r.key(in.key), Limit: r.limit, Hold: id, Units: racedUnits(in.hold), Cost: in.cost}}
		stint.Holds(ctx, s, at, calls)
		c := &calls[0]
		return heldReply{allowed: c.Found, charged: c.Charged, left: c.Remaining, held: c.Held}, c.Err
	}
	req := stint.Request{At: at, Asks: []stint.Ask{{Key: r.key(in.key), Limit: r.limit, Cost: in.cost}}}
	if in.both {
		req.Asks = append(req.Asks, stint.Ask{Key: r.key(1 - in.key), Limit: r.limit, Cost: in.cost})
	}
	if in.verb == "hold" {
		req.Hold = id
	}
	each := make([]stint.Decision, len(req.Asks))
	d, err := s.Take(ctx, &req, each)
	return heldReply{allowed: d.Allowed, left: each[0].Remaining, held: each[0].Held}, err
}

func (in heldCall) tell(out heldReply) string {
	return fmt.Sprintf("%s %d of key %d (both: %t) ×%d → %+v", in.verb, in.hold, in.key, in.both, in.cost, out)
}
