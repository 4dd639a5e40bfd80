package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/internal/rulestest"
	"github.com/stintdev/stint/server/rules"
)

// After a request that was refused or could not be decided, every key has what it had before, whatever the
// rules are and whatever happened: as many units used, and as many held. See undoing.stays for the exceptions.
func TestRefusedTakesNothing(t *testing.T) {
	seeds, failingSeeds, redisSeeds, calls := uint64(300), uint64(300), uint64(20), 5
	if testing.Short() {
		seeds, failingSeeds, redisSeeds, calls = 40, 14, 3, 2
	}
	t.Run("memory", func(t *testing.T) {
		for seed := range seeds {
			for _, layered := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					u := newUndoing(t, seed, &undoing{over: new(stint.Memory), layered: layered})
					u.quiet = func() { time.Sleep(time.Nanosecond); synctest.Wait() }
					u.run()
				})
			}
		}
	})
	// The call that fails may be the one that gives back. What it is about may then stay taken, if the log
	// says so; what is held is given back later, or runs out.
	t.Run("failing", func(t *testing.T) {
		for seed := range failingSeeds {
			for n := range calls {
				synctest.Test(t, func(t *testing.T) {
					u := newUndoing(t, seed, &undoing{over: new(stint.Memory), layered: (seed+uint64(n))%4 > 0, long: true, fails: n + 1})
					u.quiet = func() { time.Sleep(30 * time.Second); synctest.Wait() }
					u.run()
					time.Sleep(25 * time.Hour)
					if held := u.stillHeld(); held != "" {
						t.Fatalf("held at the end: %s\n%s", held, u)
					}
				})
			}
		}
	})
	t.Run("redis", func(t *testing.T) {
		redis := redistest.Start(t)
		for seed := range redisSeeds {
			u := newUndoing(t, seed, &undoing{over: openRedis(t, redis.URL(), fmt.Sprint("undo", seed)), layered: true, long: true, real: true})
			u.quiet = func() {
				await.Until(t, "no call for rules in shadow mode", func() bool { return u.s.Holds()["shadows"] == 0 })
			}
			u.run()
		}
	})
}

// undoing plays a scenario, and looks after each refused step at what it has taken.
type undoing struct {
	*play
	over    stint.Store
	layered bool   // the server has layers over the store
	long    bool   // periods are so long that nothing becomes free in the test
	real    bool   // the clock is real
	fails   int    // which call of each step fails; 0: none
	quiet   func() // waits until nothing of a step is under way

	seed     uint64
	at       int // the step
	random   *rand.Rand
	scenario *rulestest.Scenario
	modes    map[string]rules.Mode
	calls    *watchedStore
	log      logged
	logged   string          // in the step
	wrapped  *wrappedHandler // nil: steps are checks
}

func newUndoing(t *testing.T, seed uint64, u *undoing) *undoing {
	u.seed, u.scenario, u.random = seed, rulestest.Draw(seed), rand.New(rand.NewPCG(seed, 2))
	wraps := !u.real && u.random.IntN(3) == 0
	if wraps {
		u.scenario.Rules = aboutRequests(u.scenario.Rules)
	}
	if u.long {
		u.scenario.Rules, u.scenario.Envoy = inOneYear.Replace(u.scenario.Rules), anUnit.ReplaceAllString(u.scenario.Envoy, "unit: year")
	}
	set, err := u.scenario.Set()
	if err != nil {
		t.Fatalf("%v\n%s", err, u)
	}
	u.modes = map[string]rules.Mode{}
	for _, r := range set.Rules {
		u.modes[r.Name] = r.Mode
	}
	u.calls = &watchedStore{Faulty: &limittest.Faulty{Store: u.over}, known: map[heldAs]bool{}}
	u.calls.Fault = u.calls.fault
	var to stint.Store = unlayered{u.calls}
	if u.layered {
		to = u.calls
	}
	s := newServer(t, "rules: []", over(to), logTo(&u.log), func(c *server.Config) {
		c.Rules = set
		if u.real {
			unhurried(c)
		}
		if u.random.IntN(3) == 0 {
			c.Settings.Instance.Limit = stint.MustLimit("4 per 10s fixed_window")
		}
	})
	u.play = &play{t, s, s.Admin(), map[string]string{}}
	if wraps {
		u.wrapped = newWrappedHandler(s)
	}
	return u
}

var (
	anUnit      = regexp.MustCompile(`unit: (second|minute|hour|day)\b`)
	anOperation = regexp.MustCompile(`(key: |match: |')operation\b`)
)

// aboutRequests makes a file whose rules look at headers instead of attributes and operations, and sometimes
// at bodies.
func aboutRequests(file string) string {
	file = anOperation.ReplaceAllString(strings.ReplaceAll(file, "attrs.vip == true", `attrs.vip == "true"`), "${1}request.headers.operation")
	file = strings.ReplaceAll(file, "attrs.", "request.headers.")
	body := `  - {name: body900, key: '"all"', limits: [9 per 1h], cost: 'has(body.n) ? int(body.n) : 1'`
	return file + body + ", mode: shadow}\n" + strings.Replace(body, "900", "901", 1) + `, match: request.headers.operation == "read"}` + "\n"
}

// String is what a person needs to repeat a failure.
func (u *undoing) String() string {
	soFar := *u.scenario
	soFar.Steps = soFar.Steps[:min(u.at+1, len(soFar.Steps))]
	return fmt.Sprintf("step %d of seed %d, layered: %t, call that fails: %d, wrapped: %t, fault: %v\n%s", u.at, u.seed, u.layered, u.fails, u.wrapped != nil, u.calls.fail, &soFar)
}

func (u *undoing) run() {
	if u.wrapped != nil {
		defer u.wrapped.endAll()
	}
	for i := range u.scenario.Steps {
		step := &u.scenario.Steps[i]
		u.at = i
		if !u.long {
			time.Sleep(step.After)
		}
		if u.quiet != nil {
			u.quiet()
		}
		switch step.Do {
		case rulestest.Check, rulestest.Hold:
			u.step(step)
		case rulestest.Settle:
			if u.wrapped != nil {
				u.wrapped.end(step.Hold)
				continue
			}
			u.do(step)
		default:
			u.do(step)
		}
	}
}

// step carries out a check or a hold, and compares before and after if it is refused.
func (u *undoing) step(step *rulestest.Step) {
	before := u.counts()
	u.log.taken()
	kinds := []limittest.Fault{{Err: limittest.ErrFault}, {Lost: true}, {Hang: true, Err: limittest.ErrFault}, {Hang: true, Lost: true, Err: limittest.ErrFault}}
	if !u.layered {
		kinds = kinds[:2] // a store in memory does not hang, so nothing bounds its calls
	}
	u.calls.begin(u.fails, kinds[u.random.IntN(len(kinds))])
	in, v, refused := u.ask(step)
	u.calls.end()
	if u.quiet != nil {
		u.quiet()
	}
	u.logged = u.log.taken()
	if !refused {
		return
	}
	differ := func() string { return u.differ(before, u.counts(), u.stays(in, v)) }
	wrong := differ()
	if wrong != "" && u.real {
		await.So(func() bool { wrong = differ(); return wrong == "" }) // holds are given back in the background
	}
	if wrong != "" {
		u.Fatalf("%s %s\n%s%s", step.Do, step.Body, wrong, u)
	}
}

// ask sends the request of a step through one of the doors. in and v are of a call of Envoy's service that was
// decided; else they are nil.
func (u *undoing) ask(step *rulestest.Step) (in *rules.Input, v *server.Verdict, refused bool) {
	body := step.Body
	switch {
	case strings.Contains(body, `"descriptors"`), u.wrapped == nil && step.Do == rulestest.Check && u.random.IntN(6) == 0:
		return u.decided(body)
	case u.wrapped != nil:
		return nil, nil, u.wrapped.ask(step, u.random)
	case step.Do == rulestest.Hold && u.long:
		body = `{"hold":"24h",` + body[1:]
	case step.Do == rulestest.Hold:
		body = `{"hold":"30s",` + body[1:]
	}
	if u.random.IntN(4) == 0 {
		w := callCheck(u.s, "/v1/check", "["+body+","+body+"]")
		var each []struct{ Status int }
		if u.read(w, &each); len(each) != 2 {
			u.Fatalf("%d %s", w.Code, w.Body)
		}
		return nil, nil, each[0].Status != 200 && each[1].Status != 200
	}
	w := callCheck(u.s, "/v1/check", body)
	var answer struct{ Hold string }
	if u.read(w, &answer); step.Do == rulestest.Hold {
		u.held[step.Hold] = answer.Hold
	}
	return nil, nil, w.Code != 200
}

// decided is ask for a caller of Server.Decide, who may have left.
func (u *undoing) decided(body string) (*rules.Input, *server.Verdict, bool) {
	in, err := server.ReadInput([]byte(body))
	if err != nil {
		return nil, nil, true
	}
	if d := in.Descriptors; d != nil {
		d.Each, d.Quota, d.Ahead = u.random.IntN(4) == 0, u.random.IntN(4) == 0, u.random.IntN(8) == 0
	}
	ctx, cancel := context.WithCancel(u.Context())
	defer cancel()
	if u.random.IntN(8) == 0 {
		cancel()
	}
	v, err := u.s.Decide(ctx, in, time.Time{})
	if err != nil || in.Descriptors == nil {
		return nil, nil, err != nil || !v.Allowed
	}
	return in, &v, !v.Allowed
}

// stays returns what a refused request keeps nevertheless:
//   - what rules in shadow mode count: they decide by themselves, and only what they hold is given back;
//   - places in a leaky bucket that the store gave before another refused: requests behind may have them already;
//   - in a call of Envoy's service, what was used before the call: the units of descriptors with more than one;
//   - in such a call with Each, what other descriptors took. What they refunded is not compared.
func (u *undoing) stays(in *rules.Input, v *server.Verdict) map[heldAs]int64 {
	all := map[heldAs]int64{}
	each := in != nil && in.Descriptors.Each
	for i := range u.calls.taken {
		r := &u.calls.taken[i]
		for j := range r.Asks {
			a := &r.Asks[j]
			holds := r.Hold != stint.HoldID{} && a.Limit.IsHeld()
			if a.Limit.Spec().Algorithm == stint.InFlight && !holds {
				continue // it takes nothing
			}
			if each || !holds && u.inShadow(a.Limit) || a.Limit.Spec().Algorithm == stint.LeakyBucket {
				all[heldAs{a.Key, a.Limit}] += a.Units()
			}
		}
	}
	for _, a := range u.calls.charged {
		if u.inShadow(a.Limit) {
			all[heldAs{a.Key, a.Limit}] += a.Cost
		}
	}
	if in == nil {
		return all
	}
	for i := range v.Descriptors {
		m, cost := &v.Descriptors[i], in.Descriptors.List[i].Cost
		if m.Rule == nil || m.Ask < 0 || m.GiveBack || m.Rule.Mode == rules.Shadow || cost < 2 || !m.Rule.Descriptor.ChargeRefused || v.Each[m.Ask].Limit == nil {
			if each && m.GiveBack && m.Ask >= 0 {
				all[heldAs{m.Key, v.GivenBack[m.Ask].Limit}] += 0 // not compared
			}
			continue
		}
		if !in.Descriptors.Ahead && (!each || !v.Each[m.Ask].Allowed) {
			all[heldAs{m.Key, v.Each[m.Ask].Limit}] += cost
		}
	}
	return all
}

func (u *undoing) inShadow(l *stint.Limit) bool {
	name, _, _ := strings.Cut(l.Spec().Name, "@") // of the rule, or of its tier
	return u.modes[name] == rules.Shadow
}

// count is what a key has under a limit.
type count struct {
	remaining, held int64
	reset           time.Duration
}

// counts are those of all keys that the server has asked about so far.
func (u *undoing) counts() map[heldAs]count {
	var all []heldAs
	var calls []stint.HoldCall // which charge nothing
	for as := range u.calls.keys() {
		if u.layered && as.limit.Spec().Lease > 0 {
			continue // what is leased is taken from the store, and used here
		}
		c := stint.HoldCall{Action: stint.HoldCharge, Key: as.key, Limit: as.limit}
		if as.limit.Spec().Algorithm == stint.InFlight {
			c.Action, c.Hold, c.Units = stint.HoldSettle, stint.NewHoldID(), 1
		}
		all, calls = append(all, as), append(calls, c)
	}
	stint.Holds(context.Background(), u.over, time.Time{}, calls)
	counts := map[heldAs]count{}
	for i := range calls {
		c := &calls[i]
		if c.Err != nil {
			u.Fatal(c.Err)
		}
		counts[all[i]] = count{c.Remaining, c.Held, c.ResetAfter}
	}
	return counts
}

// differ returns how the counts differ from those before and what stays; empty: not at all.
func (u *undoing) differ(before, after map[heldAs]count, stays map[heldAs]int64) string {
	type shared struct{ key, id string } // the count of several limits
	had, charged := map[shared]bool{}, map[shared]bool{}
	for as := range before {
		had[shared{as.key, as.limit.ID()}] = true
	}
	for as := range stays {
		charged[shared{as.key, as.limit.ID()}] = true
	}
	var all strings.Builder
	for as, is := range after {
		was, known := before[as]
		of := shared{as.key, as.limit.ID()}
		if !known && had[of] {
			continue // the former limit's count is compared
		}
		if !known {
			was = count{remaining: as.limit.Capacity()}
		}
		want := was
		want.remaining = max(0, was.remaining-stays[as])
		if u.long || charged[of] || u.wrapped != nil && was.held > 0 { // or running requests renew their holds

			want.reset = is.reset
		}
		if charged[of] && stays[as] == 0 {
			want.remaining = is.remaining // other units
		}
		if is == want || u.lost(as, is, want, was) {
			continue
		}
		fmt.Fprintf(&all, "%q under %s had %+v, then %+v, want %+v\n", as.key, as.limit, was, is, want)
	}
	return all.String()
}

// lost reports whether the call that failed explains why a count is not as wanted.
func (u *undoing) lost(as heldAs, is, want, was count) bool {
	units, kind := u.calls.lost(as)
	if kind == "take" && u.layered && is.held == want.held && is.remaining >= want.remaining && is.remaining <= was.remaining {
		return true // this instance decided, and owes the store what stays
	}
	if units == 0 {
		return false
	}
	if kind == "refund" && u.calls.fail.Lost && is.held == want.held && is.remaining <= was.remaining+units && is.remaining >= want.remaining {
		return true // it was made, and the caller got an error because that is not known
	}
	if (kind == "refund" || kind == "end") && u.logged == "" {
		return false
	}
	return is.remaining >= max(0, want.remaining-units) && is.remaining <= was.remaining && is.held >= want.held && is.held <= want.held+units
}
