package stint

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// longKey is a key of the length that is allowed at most.
func longKey(i int) string {
	n := strconv.Itoa(i)
	return strings.Repeat("k", MaxKey-len(n)) + n
}

// A record under a penalty takes the bytes that docs/bounds.md promises, however long the
// key is that a client invents.
func TestBytesOfARecord(t *testing.T) {
	const n = 50_000
	p, err := NewPenalty(PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]func(int) string{
		"long":  longKey,
		"short": func(i int) string { return strings.Repeat("k", longSubject-6) + strconv.Itoa(100_000+i) },
	} {
		m := &Memory{MaxKeys: 2 * n}
		m.init()
		before := inUse()
		for i := range n {
			if d, err := NewLimiter(m).Violate(context.Background(), key(i), p); err != nil || d.BanLeft == 0 {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		bytes := float64(inUse()-before) / n
		if t.Logf("%s keys: %.1f bytes a record", name, bytes); bytes > bytesOfRecord {
			t.Errorf("%s keys: %.1f bytes a record, want at most %d", name, bytes, bytesOfRecord)
		}
		runtime.KeepAlive(m)
	}
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
		l := MustLimit(c.limit)
		g := ledger{most: most}
		before := inUse()
		began := time.Now().UnixMicro()
		for spell := range int64(periodSpells) {
			now := began + spell*int64(time.Hour/periodSpells/time.Microsecond)
			for i := range n {
				g.note(&Ask{Key: c.key(i), Limit: l, Cost: 1}, now, 0, 1)
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
