package check

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/door"
)

// What becomes of a body takes no more than what was reckoned for it, whatever it holds.
func TestBytesOfBodies(t *testing.T) {
	fill := func(before, piece, after string) string {
		return before + strings.Repeat(piece+",", (1<<20-len(before)-len(after))/(len(piece)+1)) + piece + after
	}
	for name, body := range map[string]string{
		"lists":     fill(`{"attrs":{"a":[`, `[]`, `]}}`),
		"maps":      fill(`{"attrs":{"a":[`, `{}`, `]}}`),
		"full maps": fill(`{"attrs":{"a":[`, `{"":0}`, `]}}`),
		"numbers":   fill(`{"attrs":{"a":[`, `300`, `]}}`),
		"nulls":     fill(`{"attrs":{"a":[`, `0`, `]}}`),
		"texts":     fill(`{"attrs":{"a":[`, `"\n"`, `]}}`),
		"deep":      `{"attrs":{"a":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}}`,
		"headers":   fill(`{"request":{"path":"/","headers":{"a":[`, `""`, `]}}}`),
		"entries":   fill(`{"domain":"d","descriptors":[{"entries":[`, `{"key":"k"}`, `]}]}`),
		"calls":     fill(`{"domain":"d","descriptors":[`, `{"limit":{"unit":"day","requests_per_unit":1},"entries":[{"key":"k"}]}`, `]}`),
		"checks":    "[" + strings.Repeat(`{"client":"192.0.2.1","request":{"path":"/a?b=c","headers":{"a":"b"}},"attrs":{"a":1}},`, 999) + "{}]",
	} {
		took, most := int64(math.MaxInt64), door.DecodedBytes(body)
		for range 3 { // others may take some meanwhile
			b := new(batch)
			before := heapInUse()
			if _, err := b.read(body); err != nil {
				t.Fatal(name, err)
			}
			took = min(took, heapInUse()-before)
			runtime.KeepAlive(b)
		}
		if t.Logf("%s: %d bytes take %d, at most %d", name, len(body), took, most); took > most {
			t.Errorf("%s: %d bytes of JSON take %d, want at most %d", name, len(body), took, most)
		}
	}
}

// What becomes of settlements takes no more than what was reckoned for them, and for what they hold.
func TestBytesOfSettlements(t *testing.T) {
	hold := func(n int, key string) string {
		h := checkHold{id: stint.NewHoldID(), last: time.Minute}
		for i := range n {
			h.asks = append(h.asks, heldAsk{key: fmt.Sprint(key, i), limit: stint.MustLimit("1 in_flight"), units: 1})
		}
		return h.text()
	}
	limits := func(from int) string {
		h := checkHold{id: stint.NewHoldID(), last: time.Minute}
		for i := range 500 {
			h.asks = append(h.asks, heldAsk{key: "k", limit: stint.MustLimit(fmt.Sprint(from+i, ": 1 in_flight")), units: 1})
		}
		return h.text()
	}
	var all []string
	for i := range 20 {
		all = append(all, `{"hold":"`+limits(i*500)+`"}`)
	}
	for name, c := range map[string]struct {
		one  string
		asks int
	}{
		"one ask":     {`{"hold":"` + hold(1, "") + `"}`, 1},
		"500 asks":    {`{"hold":"` + hold(500, "") + `"}`, 500},
		"long keys":   {`{"hold":"` + hold(10, strings.Repeat("k", 4000)) + `"}`, 10},
		"many limits": {`{"hold":"` + limits(0) + `"}`, 500},
		"own limits":  {strings.Join(all, ","), 10_000},
		"costs":       {`{"hold":"` + limits(0) + `","costs":{"7":1}}`, 500},
	} {
		body := "[" + strings.Repeat(c.one+",", min(999, (2<<20)/(len(c.one)+1)-1, maxCalls/c.asks-1)) + c.one + "]"
		e := holdEnds{action: stint.HoldSettle}
		before := heapInUse()
		if _, err := e.read(body); err != nil {
			t.Fatal(name, err)
		}
		took, most := heapInUse()-before, door.DecodedBytes(body)+int64(len(e.calls))*heldBytes
		if t.Logf("%s: %d bytes and %d calls take %d, at most %d", name, len(body), len(e.calls), took, most); took > most {
			t.Errorf("%s: %d bytes of JSON take %d, want at most %d", name, len(body), took, most)
		}
		runtime.KeepAlive(&e)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
