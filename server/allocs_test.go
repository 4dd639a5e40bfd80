//go:build !race

package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// What is allocated for each check of a list is the text of its client's address and
// the word that hands it to the rules; all else is for the list as a whole.
func TestAllocationsOfList(t *testing.T) {
	h := newServer(t, benchRules).Check()
	const one = `{"client":"192.0.2.1","request":{"method":"GET","path":"/v1/users?page=7","host":"example.com","headers":{"user-agent":"curl"}}}`
	of := func(n int) float64 {
		body := "[" + strings.Repeat(one+",", n-1) + one + "]"
		return testing.AllocsPerRun(200, func() {
			r, _ := http.NewRequest("POST", "/v1/check", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(nowhere{http.Header{}}, r)
		})
	}
	if few, many := of(10), of(110); many-few > 210 {
		t.Errorf("%v allocations for 10 checks, %v for 110", few, many)
	}
}
