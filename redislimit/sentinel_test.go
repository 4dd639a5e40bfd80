package redislimit_test

import (
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// Behind a Sentinel the Store follows a failover, and no call is charged twice:
// what is charged in the end is no more than what was sent.
func TestSentinelFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("a failover takes seconds")
	}
	sentinel, master, replica := redistest.StartSentinel(t)
	s := open(t, "redis+sentinel://"+sentinel.Addr+"/mymaster")
	l := stint.NewLimiter(s)
	heard := watch(t, s.Documents())
	hears(t, heard, "the connection")
	write(t, s.Documents(), "rules", 1, "before")
	limit := stint.MustLimit("1000000 per 24h sliding_log")
	allowed, sent := int64(0), int64(0)
	call := func() bool {
		sent++
		d, err := l.Allow(t.Context(), "a", limit)
		if err == nil && d.Allowed {
			allowed++
		}
		return err == nil
	}
	for range 100 {
		if !call() {
			t.Fatal("a call failed before the failover")
		}
	}
	master.Do(t, "WAIT", "1", "5000")
	await.Until(t, "the Sentinel has heard enough of the replica", func() bool {
		_, err := sentinel.Try("SENTINEL", "FAILOVER", "mymaster")
		return err == nil // NOGOODSLAVE before
	})
	promoted := replica.Client(t)
	await.Until(t, "the Store follows the failover", func() bool {
		name := "" // the Sentinel cuts the connections of whom it promotes
		if role, err := promoted.Do(t.Context(), promoted.B().Arbitrary("ROLE").Build()).ToArray(); err == nil {
			name, _ = role[0].ToString()
		}
		return call() && name == "master"
	})
	for range 100 {
		call()
	}
	d, err := l.Peek(t.Context(), "a", limit)
	charged := 1000000 - d.Remaining
	if err != nil || charged > sent {
		t.Errorf("%d sent, %d allowed, %d charged, %v", sent, allowed, charged, err)
	}
	t.Logf("%d sent, %d allowed, %d charged", sent, allowed, charged)
	drain(heard)
	version := int64(1)
	await.Until(t, "writes after the failover are heard of", func() bool {
		version++ // what is written before the watching connection has followed, too, may be missed
		write(t, s.Documents(), "rules", version, "after")
		select {
		case <-heard:
			return true
		case <-time.After(time.Second):
			return false
		}
	})
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	violate(t, s, time.Time{}, stint.Banned, stint.Ask{Key: "eve", Penalty: p})
	if all := bans(t, s); len(all) != 1 {
		t.Errorf("bans after the failover: %+v", all)
	}
}
