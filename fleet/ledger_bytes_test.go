package fleet

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// longKey is a key of the length that is allowed at most.
func longKey(i int) string {
	n := strconv.Itoa(i)
	return strings.Repeat("k", stint.MaxKey-len(n)) + n
}

// inUse is how many bytes of the heap are in use once the garbage is gone, and what pools hold.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A ledger takes no more than its bound, whatever the algorithm and the keys.
func TestBytesOfALedger(t *testing.T) {
	const n, most = 20_000, 4 << 20
	short := func(i int) string { return "k" + strconv.Itoa(i) }
	for _, c := range []struct {
		limit string
		key   func(int) string
	}{
		{"100 per 1h", short},
		{"100 per 1h fixed_window", short},
		{"100 per 1h sliding_log", short},
		{"100 per 1h sliding_window buckets 60", short},
		{"100 per 1h", longKey},
	} {
		l := stint.MustLimit(c.limit)
		g := ledger{most: most}
		before := inUse()
		began := time.Now().UnixMicro()
		for spell := range int64(periodSpells) {
			now := began + spell*int64(time.Hour/periodSpells/time.Microsecond)
			for i := range n {
				g.note(&stint.Ask{Key: c.key(i), Limit: l, Cost: 1}, now, 0, 1, false)
			}
			if c.limit == "100 per 1h" {
				break // a bucket does not grow
			}
		}
		bytes := inUse() - before
		t.Logf("%s: %d debts, %d KiB by its own reckoning, %d KiB of heap", c.limit, len(g.debts), g.size>>10, bytes>>10)
		if bytes > most*11/10 || bytes < most/2 {
			t.Errorf("%s: %d bytes of heap, want at most %d, and not far less", c.limit, bytes, most)
		}
		runtime.KeepAlive(&g)
	}
}

// What is unsettled takes no more than the same bound. No time passes, so that nothing is settled in the
// background meanwhile.
func TestBytesOfTheUnsettled(t *testing.T) {
	for name, key := range map[string]func(int) string{
		"short keys": func(i int) string { return "k" + strconv.Itoa(i) },
		"long keys":  longKey,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { bytesOfTheUnsettled(t, key) }) })
	}
}

func bytesOfTheUnsettled(t *testing.T, key func(int) string) {
	const most = 4 << 20
	f := Fallback{Store: new(stint.Memory), MaxOwed: most}
	defer f.Close()
	f.init()
	limit, before := stint.MustLimit("4 in_flight"), inUse()
	for i := range 40_000 {
		f.keep(stint.HoldCall{Key: key(i), Limit: limit, Hold: stint.NewHoldID(), Units: 1}, 0)
	}
	bytes := inUse() - before
	n := len(f.ledger.unsettled)
	t.Logf("%d settlements, %d KiB of heap", n, bytes>>10)
	if bytes > most*11/10 || bytes < most/3 {
		t.Errorf("%d bytes of heap, want at most %d, and not far less", bytes, most)
	}
	if some := f.ledger.claimUnsettled(n, time.Since(f.start), func(*stint.Limit, string) bool { return true }); len(some) != n || f.ledger.size != 0 || f.ledger.settles.Load() {
		t.Errorf("%d of %d were taken out, and %d bytes are left", len(some), n, f.ledger.size)
	}
}
