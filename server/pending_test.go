package server_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
)

// away is a fleet whose store and documents fail or hang together.
type away struct {
	*fleet
	fault atomic.Pointer[limittest.Fault]
}

func newAway(t *testing.T) *away {
	f := &away{fleet: newFleet(t)}
	f.fault.Store(new(limittest.Fault))
	return f
}

func (f *away) join(changes ...func(*server.Config)) (operator, *server.Server) {
	faulty := &limittest.Faulty{Store: f.store, Fault: func(int) limittest.Fault { return *f.fault.Load() }}
	return f.fleet.join(adminRules, append(changes, over(faulty))...)
}

func (f *away) down(is bool) {
	fault := &limittest.Fault{}
	if is {
		fault.Err = limittest.ErrFault
	}
	f.fault.Store(fault)
	f.shelf.set(func(s *shelf) { s.down = is })
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// Every change that an operator makes while the store is away is in force at that
// instance when the call returns, says that it is there alone, shows in status and in
// the audit, and is everywhere once the store is back, beside what others changed.
func TestChangesWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		f := newAway(t)
		a, one := f.join(logTo(&log))
		b, two := f.join()
		old := a.id(a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`))
		listed := a.id(a.want(201, "POST", "/v1/lists/blocklist", `{"network":"198.51.100.0/24"}`))
		override := a.id(a.want(201, "POST", "/v1/overrides", `{"rule":"api","key":["ann","x"],"times":2}`))
		synctest.Wait()
		f.down(true)

		const alone = `"pending":"in force at this instance only, because the store does not answer: `
		began := time.Now()
		ban := a.id(a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1","reason":"tries passwords"}`, alone))
		expect(t, outcome(t, one, login)+" "+outcome(t, two, login), "banned allowed")
		a.want(200, "DELETE", "/v1/bans/"+old, "", alone)
		a.want(404, "DELETE", "/v1/bans/"+old, "")
		a.want(201, "POST", "/v1/lists/safelist", `{"network":"192.0.2.77"}`, alone)
		a.want(200, "DELETE", "/v1/lists/blocklist/"+listed, "", alone)
		a.want(200, "DELETE", "/v1/overrides/"+override, "", alone)
		a.want(201, "POST", "/v1/overrides", `{"rule":"api","tier":"gold","times":3}`, alone)
		a.want(422, "POST", "/v1/overrides", `{"rule":"api","tier":"silver","times":3}`)
		a.want(200, "PATCH", "/v1/switches", `{"rules":{"api":"shadow"},"reason":"night"}`, alone, `"set":"shadow"`)
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s though the store was known to be away", took)
		}
		a.want(200, "GET", "/v1/status", "", `"pending":[{"at":`, `"who":"local","action":"ban","reason":"tries passwords"`, `"action":"switch","reason":"night"`)
		if text := log.taken(); !strings.Contains(text, `msg=audit who=local from=127.0.0.1:5000 action=ban what="rule login, key 192.0.2.1" reason="tries passwords"`) || strings.Count(text, " pending=") != 7 {
			t.Errorf("the audit does not say so:\n%s", text)
		}

		f.down(false)
		expect(t, outcome(t, one, login)+" "+outcome(t, two, login), "banned banned")
		for _, o := range []operator{a, b} {
			o.want(200, "GET", "/v1/status", "", `"pending":[]`)
			bans := o.want(200, "GET", "/v1/bans", "", ban)
			lists := o.want(200, "GET", "/v1/lists/safelist", "", "192.0.2.77") + o.want(200, "GET", "/v1/lists/blocklist", "")
			overrides := o.want(200, "GET", "/v1/overrides", "", `"tier":"gold"`)
			for _, gone := range []string{old, listed, override} {
				if strings.Contains(bans+lists+overrides, gone) {
					t.Errorf("%s is still there", gone)
				}
			}
			o.want(200, "GET", "/v1/switches", "", `"name":"api","file":"enforce","set":"shadow"`)
		}
		if text := log.taken(); strings.Count(text, `msg="audit: merged"`) != 7 || strings.Contains(text, "not merged") {
			t.Errorf("of 7 changes the log says:\n%s", text)
		}
	})
}

// Of two changes of one entry, made at two instances without the store, the one that
// is merged later wins; of different entries, both stay. What does not apply any more
// is dropped, and told.
func TestConflictingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		f := newAway(t)
		a, _ := f.join(logTo(&log))
		b, _ := f.join(logTo(&log))
		old := a.id(a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`))
		synctest.Wait()
		f.down(true)
		log.taken()
		for _, o := range []operator{a, b} {
			o.want(200, "DELETE", "/v1/bans/"+old, "")
			o.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`)
		}
		a.want(200, "PATCH", "/v1/switches", `{"enabled":false}`)
		b.want(200, "PATCH", "/v1/switches", `{"enabled":true,"rules":{"api":"off"}}`)
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.2"}`)
		f.down(false)
		time.Sleep(time.Second)
		first := a.want(200, "GET", "/v1/switches", "", `"name":"api","file":"enforce","set":"off"`)
		if second := b.want(200, "GET", "/v1/switches", ""); first != second {
			t.Errorf("%s\n%s", first, second)
		}
		bans := a.want(200, "GET", "/v1/bans", "", `"key":"192.0.2.2"`)
		if n := strings.Count(bans, `"key":"192.0.2.1"`); n != 1 || strings.Contains(bans, old) {
			t.Errorf("%d bans of one key, or the one that was lifted twice: %s", n, bans)
		}
		if text := log.taken(); strings.Count(text, "audit: merged") != 6 || strings.Count(text, "audit: not merged") != 1 {
			t.Errorf("of 7 changes, of which one was made twice:\n%s", text)
		}
	})
}

// A change whose writing went unanswered, and had been done, is there once.
func TestChangeUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, one := f.join(adminRules)
		b, _ := f.join(adminRules)
		f.shelf.set(func(s *shelf) { s.lost = errors.New("no answer") })
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`, `"pending"`)
		a.want(201, "POST", "/v1/lists/safelist", `{"network":"192.0.2.9"}`, `"pending"`)
		expect(t, outcome(t, one, login), "banned")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, o := range []operator{a, b} {
			if answer := o.want(200, "GET", "/v1/bans", ""); strings.Count(answer, `"id"`) != 1 {
				t.Errorf("%s", answer)
			}
			if answer := o.want(200, "GET", "/v1/lists/safelist", ""); strings.Count(answer, `"id"`) != 1 {
				t.Errorf("%s", answer)
			}
			o.want(200, "GET", "/v1/status", "", `"pending":[]`)
		}
		f.shelf.set(func(s *shelf) {
			if n := len(s.versions["controls"]); n > 4 {
				t.Errorf("two changes came to %d versions", n)
			}
		})
	})
}

// As many changes wait as are told, and no more.
func TestChangesWithoutStoreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAway(t)
		a, _ := f.join()
		f.down(true)
		for range 1000 {
			a.want(200, "PATCH", "/v1/switches", `{"enabled":true}`)
		}
		a.want(503, "PATCH", "/v1/switches", `{"enabled":false}`, "1000 changes already wait")
		f.down(false)
		a.want(200, "PATCH", "/v1/switches", `{"enabled":false}`, `"now":false`)
	})
}

// The first change after the store has begun to hang waits a second for it, those
// after that not at all.
func TestChangeWhileHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAway(t)
		hanging := &hangs{shelf: f.shelf}
		a, one := f.join(func(c *server.Config) { c.Documents = hanging })
		hanging.set(func(*shelf) { hanging.is = true })
		began := time.Now()
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`, `"pending"`)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		expect(t, outcome(t, one, login), "banned")
		time.Sleep(2 * time.Second)
		began = time.Now()
		a.want(200, "PATCH", "/v1/switches", `{"enabled":false}`, `"pending"`)
		a.want(503, "PUT", "/v1/rules", push(adminRules, 0))
		a.want(503, "GET", "/v1/rules/versions", "")
		if took := time.Since(began); took != 0 {
			t.Errorf("then it took %s", took)
		}
	})
}

// A change that is lost with its instance is told to whoever reads the log, once.
func TestChangesLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		f := newAway(t)
		a, s := f.join(logTo(&log))
		f.down(true)
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.9","reason":"why"}`, `"pending"`)
		log.taken()
		s.Close()
		s.Close()
		if text := log.taken(); strings.Count(text, "level=WARN msg=\"audit: lost") != 1 || !strings.Contains(text, "action=ban reason=why") {
			t.Errorf("told:\n%s", text)
		}
	})
}

// hangs are documents that do not answer.
type hangs struct {
	*shelf
	is bool
}

func (h *hangs) Newest(ctx context.Context, name string) (int64, string, error) {
	h.mu.Lock()
	is := h.is
	h.mu.Unlock()
	if is {
		<-ctx.Done()
		return 0, "", ctx.Err()
	}
	return h.shelf.Newest(ctx, name)
}

// What a penalty holds against a key that this instance has banned can be forgotten
// without the store, and is forgotten there when it is back.
func TestLiftWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAway(t)
		a, one := f.join()
		_, two := f.join()
		expect(t, outcomes(t, one, login, 6), "allowed allowed limited limited banned banned") // the store knows
		f.down(true)
		expect(t, outcome(t, one, login), "banned")
		a.want(200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1","reason":"ours"}`, `"pending"`, `"rule":"login","key":"192.0.2.1"`)
		expect(t, outcome(t, one, login), "limited")
		a.want(404, "POST", "/v1/bans/lift", `{"network":"192.0.2.0/24"}`)
		a.want(200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.9"}`, `"pending"`, `"by_penalty":[]`) // of which only the store may know
		f.down(false)
		time.Sleep(5 * time.Second)
		expect(t, outcome(t, one, login)+" "+outcome(t, two, login), "limited limited")
	})
}

// Without the store, an instance explains and shows by what it knows, at once, and says
// so; bans by hand are listed whole.
func TestExplainWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAway(t)
		a, one := f.join(func(c *server.Config) { c.Settings.Instances = 1 })
		a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`)
		expect(t, outcome(t, one, login), "allowed")
		before := a.want(200, "POST", "/v1/keys/show", `{"rule":"login","key":"192.0.2.1"}`, `"used":1`)
		if strings.Contains(before, `"by"`) {
			t.Errorf("%s", before)
		}
		f.fault.Store(&limittest.Fault{Hang: true})
		began := time.Now()
		const by = `"by":"local","store_error":"`
		a.want(200, "POST", "/v1/keys/show", `{"rule":"login","key":"192.0.2.1"}`, by, `"capacity":2,"used":1,"remaining":1`)
		a.want(200, "POST", "/v1/explain", login, by, `"outcome":"allowed"`, "The store does not answer", `"used":1,"remaining":1`)
		expect(t, outcomes(t, one, login, 4), "allowed limited limited banned")
		a.want(200, "POST", "/v1/explain", login, by, `"outcome":"banned"`)
		a.want(200, "POST", "/v1/keys/show", `{"rule":"login","key":"192.0.2.1"}`, by, `"used":2,"remaining":0`, `"ban_left_us":1`)
		a.want(200, "GET", "/v1/bans", "", by, `"network":"203.0.113.0/24"`, `"by_penalty":[{"rule":"login","key":"192.0.2.1"`)
		a.want(503, "POST", "/v1/keys/reset", `{"rule":"login","key":"192.0.2.1"}`, "nothing was changed")
		a.want(200, "GET", "/v1/status", "")
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("all that took %s", took)
		}
		time.Sleep(2 * time.Second) // it is known to hang
		began = time.Now()
		a.want(200, "POST", "/v1/explain", login, by)
		a.want(200, "GET", "/v1/bans", "", by)
		if took := time.Since(began); took != 0 {
			t.Errorf("then it took %s", took)
		}
	})
}

// What on_store_error makes of a request is explained.
func TestExplainPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for policy, want := range map[string]string{"allow": `"outcome":"allowed"`, "deny": `"outcome":"undecided","rule":"r"`, "local": `"outcome":"limited","rule":"r"`} {
			s := newServer(t, fmt.Sprintf("rules: [{name: r, key: client.ip, limits: [1 per 1h], on_store_error: %s}]", policy),
				over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(n int) (f limittest.Fault) {
					if n > 1 {
						f.Err = limittest.ErrFault
					}
					return f
				}}))
			outcome(t, s, `{"client":"192.0.2.1"}`)
			o := operator{t, s.Admin()}
			answer := o.want(200, "POST", "/v1/explain", `{"client":"192.0.2.1"}`, want, `"by":"local"`)
			if strings.Contains(answer, "It would get 503: rule r denies while the store does not answer.") != (policy == "deny") {
				t.Errorf("%s: %s", policy, answer)
			}
		}
	})
}

// Whatever fails in between, each instance goes by its own changes at once, and in the
// end all go by all of them, as a model has it: a map that knows of no store.
func TestChangesModel(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			f := newFleet(t)
			f.shelf.deaf = seed%2 == 0
			const instances, networks = 3, 4
			var operators []operator
			for range instances {
				o, _ := f.join(adminRules)
				operators = append(operators, o)
			}
			bans := map[string]string{} // IDs by network
			for step := range 60 {
				i := random.IntN(instances)
				o, network := operators[i], fmt.Sprintf("10.%d.%d.0/24", i, random.IntN(networks)) // each instance has some of its own
				what := random.IntN(8)
				switch {
				case what < 4:
					bans[network] = o.id(o.want(201, "POST", "/v1/bans", fmt.Sprintf(`{"network":%q}`, network)))
				case what < 6 && bans[network] != "":
					o.want(200, "DELETE", "/v1/bans/"+bans[network], "")
					delete(bans, network)
				case what < 6:
					o.want(404, "POST", "/v1/bans/lift", fmt.Sprintf(`{"network":%q}`, network))
				default:
					f.shelf.set(func(s *shelf) {
						switch s.down, s.lost = false, nil; random.IntN(4) {
						case 0, 1:
							s.down = true
						case 2:
							s.lost = errors.New("no answer")
						}
					})
				}
				if answer := o.want(200, "GET", "/v1/bans", ""); strings.Contains(answer, `"`+network+`"`) != (bans[network] != "") {
					t.Fatalf("seed %d, step %d: %s is banned: %t; not so in %s", seed, step, network, bans[network] != "", answer)
				}
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			}
			f.shelf.set(func(s *shelf) { s.down, s.lost = false, nil })
			time.Sleep(5 * time.Second)
			for i, o := range operators {
				answer := o.want(200, "GET", "/v1/bans", "")
				for network, id := range bans {
					if !strings.Contains(answer, `"id":"`+id+`"`) {
						t.Errorf("seed %d, instance %d lacks %s: %s", seed, i, network, answer)
					}
				}
				if n := strings.Count(answer, `"id"`); n != len(bans) {
					t.Errorf("seed %d, instance %d has %d bans, want %d", seed, i, n, len(bans))
				}
				o.want(200, "GET", "/v1/status", "", `"pending":[]`)
			}
		})
	}
}
