package limittest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stintdev/stint"
)

// At one instant every algorithm is a counter with a capacity. Racing goroutines must get the answers
// of some order of their calls.

const (
	racers       = 8
	raceCalls    = 12 // of each racer: few, so that a failure can be read
	races        = 20 // under each algorithm
	raceCapacity = 6
	mostRaced    = 5 // counts in a race
)

// call is a racer's call: a cost for each count, or for some.
type call struct {
	verb string
	asks [mostRaced]bool
	cost [mostRaced]int64
}

type reply struct {
	allowed bool
	fits    [mostRaced]bool
	left    [mostRaced]int64
}

type counters [mostRaced]int64

func (c counters) step(in call) (counters, reply) {
	var out reply
	after := c
	out.allowed = true
	for i := range c {
		if !in.asks[i] {
			continue
		}
		switch in.verb {
		case "take":
			out.fits[i] = c[i]+in.cost[i] <= raceCapacity
			out.allowed = out.allowed && out.fits[i]
			after[i] += in.cost[i]
		case "refund":
			after[i] = max(0, c[i]-in.cost[i])
		case "reset":
			after[i] = 0
		}
	}
	if in.verb != "take" {
		return after, reply{}
	}
	if !out.allowed {
		after = c
	}
	for i := range c {
		if in.asks[i] {
			out.left[i] = raceCapacity - after[i]
		}
	}
	return after, out
}

var counting = porcupine.Model{
	Init: func() any { return counters{} },
	Step: func(state, in, out any) (bool, any) {
		next, want := state.(counters).step(in.(call))
		return want == out.(reply), next
	},
}

func checkLinearizable(t testing.TB, e *env)            { checkRaces(t, e, 1) }
func checkLinearizableOverTwoKeys(t testing.TB, e *env) { checkRaces(t, e, 2) }

func checkRaces(t testing.TB, e *env, keys int) {
	for _, limit := range oneOfEach(raceCapacity, 10*time.Second, "") {
		var raced []stint.Ask
		for i := range keys {
			raced = append(raced, stint.Ask{Key: fmt.Sprint("key ", i), Limit: limit})
		}
		checkRacesFor(t, e, limit.Spec().Algorithm.String(), raced)
	}
}

func checkLinearizableOverLimits(t testing.TB, e *env) {
	var raced []stint.Ask
	for _, limit := range oneOfEach(raceCapacity, 10*time.Second, "") {
		raced = append(raced, stint.Ask{Key: "key", Limit: limit})
	}
	checkRacesFor(t, e, "all algorithms", raced)
}

func checkRacesFor(t testing.TB, e *env, under string, raced []stint.Ask) {
	t.Logf("seed %d", e.seed)
	stores := e.fleet()
	verbs, _ := verbsOf(stores)
	verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == "violate" || v == "hold" }) // no counter models these
	for n := range races {
		r := race{
			stores: stores, verbs: verbs, raced: raced, seed: e.seed + uint64(n),
			name: fmt.Sprintf("race %d %s %d", n, under, len(raced)),
		}
		r.run(t)
		if t.Failed() {
			t.FailNow()
		}
	}
}

type race struct {
	stores []stint.Store
	verbs  []string
	raced  []stint.Ask // each is a count
	seed   uint64
	name   string
}

func (r *race) run(t testing.TB) {
	runRace(t, &runners[call, reply]{
		name: r.name, seed: r.seed, calls: raceCalls, model: counting,
		draw: func(rng *rand.Rand, _, _ int) call { return r.draw(rng) },
		do: func(racer int, in call) (reply, error) {
			out, err := r.do(r.stores[racer%len(r.stores)], in)
			if err != nil {
				err = fmt.Errorf("%s: %w", in.verb, err)
			}
			return out, err
		},
		tell: r.tell,
	})
}

// runners has what races share: racers that each make the same number of calls, at once.
type runners[In, Out any] struct {
	name  string
	seed  uint64
	calls int // of each racer
	model porcupine.Model
	draw  func(rng *rand.Rand, racer, n int) In // the racer's n-th call, from 0
	do    func(racer int, in In) (Out, error)
	tell  func(in In, out Out) string
}

// runRace lets racers call, and looks for an order of their calls that explains the answers.
func runRace[In, Out any](t testing.TB, r *runners[In, Out]) {
	var (
		done    sync.WaitGroup
		mu      sync.Mutex
		history []porcupine.Operation
	)
	start := make(chan struct{})
	began := time.Now()
	for i := range racers {
		done.Go(func() {
			rng := rand.New(rand.NewPCG(r.seed, uint64(i)))
			<-start
			for n := range r.calls {
				in := r.draw(rng, i, n)
				call := time.Since(began).Nanoseconds()
				out, err := r.do(i, in)
				end := time.Since(began).Nanoseconds()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: i, Input: in, Call: call, Output: out, Return: end})
				mu.Unlock()
			}
		})
	}
	close(start)
	done.Wait()
	if t.Failed() {
		return
	}
	switch porcupine.CheckOperationsTimeout(r.model, history, 20*time.Second) {
	case porcupine.Illegal:
		slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		var b strings.Builder
		for _, op := range history {
			fmt.Fprintf(&b, "%9d–%9dns racer %d: %s\n", op.Call, op.Return, op.ClientId, r.tell(op.Input.(In), op.Output.(Out)))
		}
		t.Errorf("%s, seed %d: no order of these calls explains the answers:\n%s", r.name, r.seed, &b)
	case porcupine.Unknown:
		t.Logf("%s, seed %d: could not tell in 20s", r.name, r.seed)
	}
}

func (r *race) draw(rng *rand.Rand) call {
	in := call{verb: "take"}
	if rng.IntN(5) == 0 {
		in.verb = r.verbs[rng.IntN(len(r.verbs))]
	}
	for i := range r.raced {
		in.asks[i] = true
		in.cost[i] = int64(rng.IntN(4))
	}
	// Only Take acts on several counts atomically.
	if n := len(r.raced); n > 1 && (in.verb != "take" || rng.IntN(3) == 0) {
		only := rng.IntN(n)
		for i := range r.raced {
			if in.verb != "take" && i != only || in.verb == "take" && i == only {
				in.asks[i], in.cost[i] = false, 0
			}
		}
	}
	return in
}

func (r *race) do(s stint.Store, in call) (out reply, err error) {
	req := stint.Request{At: time.UnixMicro(1e15 + 123_456)}
	order := make([]int, len(r.raced))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(in.cost[i], in.cost[j]) }) // no store may rely on one order
	for _, i := range order {
		if in.asks[i] {
			req.Asks = append(req.Asks, stint.Ask{Key: r.name + ": " + r.raced[i].Key, Limit: r.raced[i].Limit, Cost: in.cost[i], Peek: in.cost[i] == 0})
		}
	}
	ctx := context.Background()
	switch in.verb {
	case "refund":
		return out, stint.Refund(ctx, s, &req)
	case "reset":
		return out, stint.Reset(ctx, s, &req)
	}
	each := make([]stint.Decision, len(req.Asks))
	d, err := s.Take(ctx, &req, each)
	out.allowed = d.Allowed
	for _, i := range order {
		if in.asks[i] {
			out.fits[i], out.left[i] = each[0].Allowed, each[0].Remaining
			each = each[1:]
		}
	}
	return out, err
}

func (r *race) tell(in call, out reply) string {
	var b strings.Builder
	b.WriteString(in.verb)
	for i := range in.asks {
		if in.asks[i] {
			fmt.Fprintf(&b, ", %s under %s ×%d", r.raced[i].Key, r.raced[i].Limit, in.cost[i])
			if in.verb == "take" {
				fmt.Fprintf(&b, " (fits: %t, left: %d)", out.fits[i], out.left[i])
			}
		}
	}
	if in.verb == "take" {
		fmt.Fprintf(&b, " → allowed: %t", out.allowed)
	}
	return b.String()
}
