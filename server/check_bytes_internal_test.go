package server

import (
	"runtime"
	"strings"
	"testing"
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
		"checks":    "[" + strings.Repeat(`{"client":"192.0.2.1","request":{"path":"/a?b=c","headers":{"a":"b"}},"attrs":{"a":1}},`, 999) + "{}]",
	} {
		b := new(batch)
		before := heapInUse()
		if _, err := b.read(body); err != nil {
			t.Fatal(name, err)
		}
		took, most := heapInUse()-before, decodedBytes(body)
		if t.Logf("%s: %d bytes take %d, at most %d", name, len(body), took, most); took > most {
			t.Errorf("%s: %d bytes of JSON take %d, want at most %d", name, len(body), took, most)
		}
		runtime.KeepAlive(b)
	}
}
