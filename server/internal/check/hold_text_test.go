package check

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

func manyHeld() *checkHold {
	h := &checkHold{id: stint.HoldID{1, 2, 3, 11: 12}, last: 90 * time.Second}
	for i, text := range []string{"tokens: 200000 per 1m fixed_window hold", "tokens@gold: 4 in_flight hold 5s", "a:b: 1 per 1s hold retry 2s debt 0", "7 per 1d sliding_window buckets 12 hold"} {
		h.asks = append(h.asks, heldAsk{key: []string{"ann", "ann", "\x00\xff}{", "ann"}[i], limit: stint.MustLimit(text), units: 1 << (17 * i), by: stint.Source(i % 2), shadow: i == 2})
	}
	return h
}

func same(a, b *checkHold) bool {
	if a.id != b.id || a.last != b.last || len(a.asks) != len(b.asks) {
		return false
	}
	for i := range a.asks {
		x, y := a.asks[i], b.asks[i]
		if x.key != y.key || x.limit.ID() != y.limit.ID() || x.limit.String() != y.limit.String() || x.units != y.units || x.by != y.by || x.shadow != y.shadow {
			return false
		}
	}
	return true
}

// What is read back is what was written, and nothing else is read.
func TestHoldText(t *testing.T) {
	h := manyHeld()
	text := h.text()
	var r holdReader
	got, err := r.read(text)
	if err != nil || !same(got, h) {
		t.Fatalf("%+v, %v; want %+v", got, err, h)
	}
	if n := base64.RawURLEncoding.DecodedLen(len(text)); n > h.size() {
		t.Errorf("%d bytes, and size is %d", n, h.size())
	}
	data, _ := base64.RawURLEncoding.DecodeString(text)
	for i := range data {
		if _, err := r.read(base64.RawURLEncoding.EncodeToString(data[:i])); err == nil {
			t.Errorf("the first %d bytes are a hold", i)
		}
	}
	for name, change := range map[string]func(*checkHold){
		"no identity":      func(h *checkHold) { h.id = stint.HoldID{} },
		"too short":        func(h *checkHold) { h.last = time.Microsecond },
		"too long":         func(h *checkHold) { h.last = 25 * time.Hour },
		"no asks":          func(h *checkHold) { h.asks = nil },
		"no key":           func(h *checkHold) { h.asks[0].key = "" },
		"a long key":       func(h *checkHold) { h.asks[0].key = strings.Repeat("k", stint.MaxKey+1) },
		"no units":         func(h *checkHold) { h.asks[0].units = 0 },
		"2^52 units":       func(h *checkHold) { h.asks[0].units = 1 << 52 },
		"by lease":         func(h *checkHold) { h.asks[0].by = stint.ByLease },
		"one record twice": func(h *checkHold) { h.asks = append(h.asks, h.asks[0]) },
		"a limit not held": func(h *checkHold) { h.asks[0].limit = stint.MustLimit("5 per 1m") },
		"more than 500":    func(h *checkHold) { h.asks = repeat(h.asks[0], 501) },
		"more than 48 KiB": func(h *checkHold) {
			h.asks = repeat(heldAsk{strings.Repeat("k", 4000), h.asks[0].limit, 1, 0, false}, 20)
		},
	} {
		h := manyHeld()
		change(h)
		if _, err := r.read(h.text()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "not base64": "%%%", "padding": text + "=", "more": text + "AA", "standard": "+/+/",
		"another version":      base64.RawURLEncoding.EncodeToString(append([]byte{2}, data[1:]...)),
		"a number in excess":   base64.RawURLEncoding.EncodeToString(append(append([]byte{}, data[:len(data)-1]...), 0x80, 0)),
		"a bit that is lost":   lastBit(text),
		"a number without end": base64.RawURLEncoding.EncodeToString(append(append([]byte{}, data[:13]...), 0x80, 0x80)),
		"a number too large":   base64.RawURLEncoding.EncodeToString(append(append([]byte{}, data[:13]...), bytes.Repeat([]byte{0xff}, 12)...)),
		"a text too long":      base64.RawURLEncoding.EncodeToString(append(append([]byte{}, data[:19]...), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)),
	} {
		if _, err := r.read(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func repeat(a heldAsk, n int) []heldAsk {
	all := make([]heldAsk, n)
	for i := range all {
		all[i] = a
		all[i].key += strings.Repeat("x", i)
	}
	return all
}

// lastBit is text with a bit set that base64 ignores unless it is strict, or empty.
func lastBit(text string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	if len(text)%4 == 0 {
		return ""
	}
	last := strings.IndexByte(digits, text[len(text)-1])
	return text[:len(text)-1] + digits[last|1:last|1+1]
}

// Keys that are too long together are refused before anything is held.
func TestHoldFits(t *testing.T) {
	limit := stint.MustLimit("tokens: 4 in_flight")
	var asks []stint.Ask
	for range 11 {
		asks = append(asks, stint.Ask{Key: strings.Repeat("k", stint.MaxKey), Limit: limit})
	}
	if err := FitsHold(asks); err != nil {
		t.Error(err)
	}
	if err := FitsHold(append(asks, asks[0])); err == nil {
		t.Error("12 of 4 KiB fit")
	}
}

// Whatever is read is what is written for it, and is within its bounds.
func FuzzHold(f *testing.F) {
	h := manyHeld()
	data, _ := base64.RawURLEncoding.DecodeString(h.text())
	f.Add(data)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var r holdReader
		text := base64.RawURLEncoding.EncodeToString(data)
		h, err := r.read(text)
		if err != nil {
			return
		}
		if h.text() != text {
			t.Errorf("%x is read as %+v, which is written in another way", data, h)
		}
		request := stint.Request{}
		for _, c := range h.calls(stint.HoldSettle) {
			if !c.Limit.IsHeld() || c.By > stint.ByLocal || c.Units < 1 || c.For < time.Millisecond || c.For > 24*time.Hour {
				t.Errorf("%x: %+v", data, c)
			}
			request.Asks = append(request.Asks, stint.Ask{Key: c.Key, Limit: c.Limit, Cost: c.Units})
		}
		if err := stint.Internal(friend.Of{}).Check(&request); err != nil {
			t.Errorf("%x: %v", data, err)
		}
	})
}
