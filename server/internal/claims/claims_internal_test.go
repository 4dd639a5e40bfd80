package claims

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/claims/claimstest"
	"github.com/stintdev/stint/server/rules"
)

// What is remembered of tokens is bounded in bytes, and what is used stays.
func TestSeenTokensAreBounded(t *testing.T) {
	const most = 1 << 20
	var seen seenTokens
	for i := range 3000 {
		seen.put([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, token{notBefore: int64(i)}, 1<<10, most)
		if is, ok := seen.get([32]byte{}, most); !ok || is.notBefore != 0 { // which is shown again and again
			t.Fatalf("forgotten after %d", i)
		}
	}
	if n := len(seen.young) + len(seen.old); n > most>>10 || n < most>>12 {
		t.Errorf("%d remembered", n)
	}
	seen.put([32]byte{1: 255, 2: 255}, token{}, most, most)
	if _, ok := seen.get([32]byte{1: 255, 2: 255}, most); ok {
		t.Error("a token is remembered that takes all the room")
	}
}

// The bytes that tokens are counted by are what their claims take at most.
func TestBytesOfTokens(t *testing.T) {
	var members []string
	for i := range 2000 {
		members = append(members, fmt.Sprintf(`"%d":0`, i))
	}
	for name, payload := range map[string]string{
		"few":    `{"sub":"ann","exp":9999999999}`,
		"many":   "{" + strings.Join(members, ",") + "}",
		"nested": `{"a":` + strings.Repeat(`[`, 500) + strings.Repeat(`]`, 500) + `}`,
		"lists":  `{"a":[` + strings.Repeat(`{},`, 4000) + `{}]}`,
		"long":   `{"a":"` + strings.Repeat("x", 10_000) + `"}`,
	} {
		var before, after runtime.MemStats
		kept := make([]token, 50+500_000/len(payload)) // more of small ones: what else is allocated meanwhile must not count
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range kept {
			var err error
			if kept[i], err = readClaims([]byte(payload)); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(len(kept)); each > bytesOf(kept[0].claims) || each < bytesOf(kept[0].claims)/4 {
			t.Errorf("%s: %d bytes, counted as %d", name, each, bytesOf(kept[0].claims))
		}
		runtime.KeepAlive(kept)
	}
}

// One signed token has one spelling.
func TestTokensAreSpelledOneWay(t *testing.T) {
	for name, k := range claimstest.Keys() {
		r := New(&config.JWT{}, Options{Bytes: 1 << 20, Valid: func() {}, Invalid: func() {}})
		if _, err := r.takeKeys(claimstest.JWKS(t, k)); err != nil {
			t.Fatal(err)
		}
		text := k.Sign(t, `{"sub":"ann","exp":9999999999}`)
		taken := 0
		for i := range len(text) {
			for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=\r\n" {
				other := text[:i] + string(c) + text[i+1:]
				if i < len(text)-1 && text[i+1] != '.' && c != '\n' {
					continue // another bit of what is signed
				}
				if _, err := r.read(other, time.Now()); err == nil {
					taken++
				}
			}
		}
		if dots := strings.Count(text, "."); taken != dots+1 {
			t.Errorf("%s: %d spellings are taken, want %d times the same", name, taken, dots+1)
		}
	}
}

// What a token costs, the first time and from then on.
func BenchmarkTokenOfClient(b *testing.B) {
	for name, k := range claimstest.Keys() {
		r := New(&config.JWT{}, Options{Bytes: 1 << 20, Valid: func() {}, Invalid: func() {}})
		if _, err := r.takeKeys(claimstest.JWKS(b, k)); err != nil {
			b.Fatal(err)
		}
		q := &rules.Request{Header: http.Header{"Authorization": {"Bearer " + k.Sign(b, `{"sub":"ann","iss":"https://id.example.com/","aud":["api","web"],"exp":9999999999,"scope":"read write","roles":["a","b","c"]}`)}}}
		b.Run(name+"/seen", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r.Of(q) == nil {
					b.Fatal("not valid")
				}
			}
		})
		b.Run(name+"/new", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.keys.Load().seen.young = nil
				if r.Of(q) == nil {
					b.Fatal("not valid")
				}
			}
		})
	}
}
