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
