package redislimit_test

import (
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
)

// slotOf is where the load's key lies.
func slotOf(t *testing.T, c *redistest.Cluster) (slot, owner int) {
	slot = c.Slot(t, "stint:{1:a}")
	return slot, c.Owner(slot)
}

// A Cluster that changes hands, whole or slot by slot, charges nothing twice.
func TestFaultyCluster(t *testing.T) {
	for _, c := range []struct {
		name    string
		keeps   bool // no count is lost
		long    bool
		trouble func(*testing.T, *redistest.Cluster)
	}{
		{"slot moved", true, false, func(t *testing.T, c *redistest.Cluster) {
			slot, owner := slotOf(t, c)
			for end := time.Now().Add(spell()); time.Now().Before(end); owner = (owner + 1) % 3 {
				c.MoveSlot(t, slot, owner, (owner+1)%3, 20*time.Millisecond)
			}
		}},
		{"CLUSTERDOWN", true, true, func(t *testing.T, c *redistest.Cluster) {
			_, owner := slotOf(t, c)
			c.Masters[(owner+1)%3].Pause(t)
			c.Replicas[(owner+1)%3].Pause(t)
			time.Sleep(3*time.Second + spell())
			c.Masters[(owner+1)%3].Resume()
			c.Replicas[(owner+1)%3].Resume()
			c.AwaitMaster(t, c.Masters[owner])
		}},
		{"replica promoted", false, false, func(t *testing.T, c *redistest.Cluster) {
			_, owner := slotOf(t, c)
			c.Promote(t, c.Replicas[owner])
		}},
		{"master killed", false, true, func(t *testing.T, c *redistest.Cluster) {
			_, owner := slotOf(t, c)
			c.Masters[owner].Kill()
			c.AwaitMaster(t, c.Replicas[owner])
		}},
		{"master frozen", false, true, func(t *testing.T, c *redistest.Cluster) {
			_, owner := slotOf(t, c)
			c.Masters[owner].Pause(t)
			c.AwaitMaster(t, c.Replicas[owner])
			time.Sleep(spell())
			c.Masters[owner].Resume()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && brief() {
				t.Skip("a failover takes seconds")
			}
			cluster := redistest.StartReplicated(t, 3, 1)
			during(t, c.name, cluster.URL(), cluster.URL(), patient, c.keeps, func() { c.trouble(t, cluster) })
		})
	}
}

// A request with a penalty has two keys, which a slot under way may hold on either
// side: the Cluster then asks to be asked again, and is.
func TestMovingSlotWithPenalty(t *testing.T) {
	t.Parallel()
	c := redistest.StartReplicated(t, 3, 0)
	s := open(t, c.URL())
	l := start(s, 16, patient, penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1000, BanFor: time.Minute}))
	l.recovers(t, "before")
	slot, owner := slotOf(t, c)
	for end := time.Now().Add(spell()); time.Now().Before(end); owner = (owner + 1) % 3 {
		c.MoveSlot(t, slot, owner, (owner+1)%3, 5*time.Millisecond)
	}
	l.recovers(t, "slot moved with penalty")
	l.account(t, "slot moved with penalty", open(t, c.URL()), true)
}

// Behind three Sentinels, a master that fails in any way has a successor, and no
// call is charged twice.
func TestFaultySentinel(t *testing.T) {
	for _, c := range []struct {
		name    string
		trouble func(*testing.T, *redistest.Watched)
	}{
		{"Sentinel failover", func(t *testing.T, w *redistest.Watched) { w.Failover(t) }},
		{"Sentinel, master killed", func(t *testing.T, w *redistest.Watched) { w.Master.Kill(); w.AwaitMaster(t) }},
		{"Sentinel, master frozen", func(t *testing.T, w *redistest.Watched) {
			w.Master.Pause(t)
			w.AwaitMaster(t)
			time.Sleep(spell())
			w.Master.Resume()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if brief() {
				t.Skip("a failover takes seconds")
			}
			w := redistest.StartWatched(t, 2, 3)
			during(t, c.name, w.URL(), w.URL(), patient, false, func() { c.trouble(t, w) })
		})
	}
}
