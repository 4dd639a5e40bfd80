package claims

import (
	"net/http"
	"testing"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/claims/claimstest"
)

// What is remembered of tokens is bounded.
func TestSeenTokensAreBounded(t *testing.T) {
	var seen seenTokens
	for i := range 3 * mostSeen {
		seen.put([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, token{notBefore: int64(i)})
		if is, ok := seen.get([32]byte{}); !ok || is.notBefore != 0 { // which is shown again and again
			t.Fatalf("forgotten after %d", i)
		}
	}
	if n := len(seen.young) + len(seen.old); n > 2*mostSeen {
		t.Errorf("%d remembered", n)
	}
}

// What a token costs, the first time and from then on.
func BenchmarkTokenOfClient(b *testing.B) {
	for name, k := range claimstest.Keys() {
		r := New(&config.JWT{}, Options{Valid: func() {}, Invalid: func() {}})
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
