package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
)

const (
	shortestStall = 30 * time.Millisecond
	longestStall  = 500 * time.Millisecond
)

const (
	tick  = 5 * time.Millisecond
	ticks = 1 << 16
	// settled is how many ticks nearly all is to be decided by the store, for it to
	// decide again.
	settled = 10
)

// firstTick is the first one from a tick on from which on the store decides 19 of 20.
func firstTick(decided func(k int) (byStore, otherwise int64), from int) int {
	for k := from; ; k++ {
		var byStore, otherwise int64
		for j := range settled {
			s, o := decided(k + j)
			byStore, otherwise = byStore+s, otherwise+o
		}
		if s, o := decided(k); byStore > 0 && otherwise*20 <= byStore && o*20 <= s || k > from+int(time.Second/tick) {
			return k
		}
	}
}

// allowance is how long the store may take to decide again, from when a stall began.
func allowance(stall time.Duration) time.Duration { return 2*stall + 200*time.Millisecond }

// stallKinds are how many callers, who ask one after another without a rest, stall.
var stallKinds = []struct{ callers, keys int }{{64, 1}, {64, 1_000_000}, {1000, 1}, {1000, 1_000_000}}

// A Redis that stands still for a moment decides again soon after it goes on, however
// many wait for it, and however much was spent meanwhile.
func TestStalls(t *testing.T) {
	stalls := 4
	if testing.Short() {
		stalls = 2
	}
	if long() {
		stalls = 100
	}
	lines := []string{
		"| callers | keys | stalls of 30 to 500 ms | the breaker opened | the store decides again after, beyond the stall: half within | 90 % within | at most | within twice the stall + 200 ms | the machine paused | admitted ÷ bound |",
		"| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |"}
	for _, k := range stallKinds {
		t.Run(fmt.Sprintf("%d callers, %d keys", k.callers, k.keys), func(t *testing.T) {
			if testing.Short() && k.callers > 64 {
				t.Skip("it takes seconds: make chaos")
			}
			lines = append(lines, proveStalls(t, k.callers, k.keys, stalls))
		})
	}
	if !t.Failed() {
		publish(t, "stalls", lines)
	}
}

func proveStalls(t *testing.T, callers, keys, stalls int) string {
	server := redistest.Start(t)
	i := newInstance(t, server.URL())
	defer i.close()
	limit := stint.MustLimit("1000000000 per 24h")
	few := stint.MustLimit("100 per 24h fixed_window") // of a key that is new with each stall
	var byStore, otherwise [ticks]atomic.Int64         // decisions asked for in each tick
	var round, admitted, doubtful atomic.Int64
	began := time.Now()
	var over atomic.Bool
	var asking sync.WaitGroup
	for n := range callers {
		asking.Go(func() {
			for !over.Load() {
				l, key, now := limit, "", round.Load()
				if rare := n < 8; rare {
					l, key = few, fmt.Sprint("few", now)
				} else {
					key = fmt.Sprint(rand.N(keys))
				}
				asked := int(time.Since(began)/tick) % ticks
				// A call that may have been sent is in doubt, unless the breaker was open all the time.
				opened, open := i.opened.Load(), i.fall.State() == fleet.Open
				d, err := i.Allow(context.Background(), key, l)
				if err != nil {
					t.Error(err)
					return
				}
				if d.By == stint.ByStore {
					byStore[asked].Add(1)
				} else {
					otherwise[asked].Add(1)
				}
				if l == few && round.Load() == now {
					if d.Allowed {
						admitted.Add(1)
						if open = open && i.fall.State() == fleet.Open && i.opened.Load() == opened; !open && d.By == stint.ByLocal {
							doubtful.Add(1)
						}
					}
					time.Sleep(rand.N(20 * time.Millisecond))
				}
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	var beyond []time.Duration
	var most float64
	within := 0
	paused := redistest.WatchPauses()
	for n := range stalls {
		stall := shortestStall + time.Duration(n)*(longestStall-shortestStall)/time.Duration(stalls-1)
		round.Add(1)
		admitted.Store(0)
		doubtful.Store(0)
		time.Sleep(100 * time.Millisecond)
		from := time.Since(began)
		thaw := server.Freeze(t)
		time.Sleep(stall)
		thaw()
		stood := time.Since(began) - from
		time.Sleep(stood + 800*time.Millisecond)
		again := firstTick(func(k int) (s, o int64) { return byStore[k%ticks].Load(), otherwise[k%ticks].Load() }, int((from+stood)/tick))
		took := time.Duration(again)*tick - from
		beyond = append(beyond, max(0, took-stood))
		if took <= allowance(stood) {
			within++
		}
		most = max(most, float64(admitted.Load())/float64(few.Capacity()+doubtful.Load()))
	}
	pause := paused()
	over.Store(true)
	asking.Wait()
	slices.Sort(beyond)
	line := fmt.Sprintf("| %d | %d | %d | %d times | %s | %s | %s | %d | %s | %.2f |", callers, keys, stalls, i.opened.Load(),
		milliseconds(beyond[len(beyond)/2]), milliseconds(beyond[len(beyond)*9/10]), milliseconds(beyond[len(beyond)-1]), within, milliseconds(pause), most)
	t.Log(line)
	if most > 1 {
		t.Errorf("%.2f of what may be was admitted", most)
	}
	if worst := beyond[len(beyond)/2]; long() && worst > grossly+pause {
		t.Errorf("half of the times the store decided again only after %s", worst)
	}
	return line
}
