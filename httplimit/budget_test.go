package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

func byHeader(r *http.Request) string { return r.Header.Get("Key") }

func keyed(key string) *http.Request {
	r := get()
	r.Header.Set("Key", key)
	return r
}

// In-flight limits count the requests that run, and the handler's end frees a place, also by a panic.
func TestByInFlight(t *testing.T) {
	l := stint.NewLimiter(new(stint.Memory))
	begun, end := make(chan bool), make(chan bool)
	h := httplimit.Middleware{Decide: httplimit.By(l, stint.MustLimit("running: 2 in_flight"), byHeader)}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- true
		if !<-end {
			panic(http.ErrAbortHandler)
		}
	}))
	status := func(r *http.Request) int {
		defer func() { _ = recover() }()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for round := range 3 {
		done := make(chan int, 2)
		for range 2 {
			go func() { done <- status(keyed("ann")) }()
			<-begun
		}
		if got := status(keyed("ann")); got != 429 {
			t.Errorf("round %d: a third: %d", round, got)
		}
		end <- true
		end <- round != 1
		<-done
		<-done
	}
	if got := status(get()); got != 400 { // without a key
		t.Error(got)
	}
}

// A Budget charges what a request did cost, or what it held if that is not known.
func TestBudget(t *testing.T) {
	tokens, running, rate := stint.MustLimit("t: 1000 per 24h fixed_window hold"), stint.MustLimit("t: 1 in_flight"), stint.MustLimit("t: 3 per 24h sliding_log")
	l := stint.NewLimiter(new(stint.Memory))
	var body string
	h := httplimit.Middleware{Decide: httplimit.Budget{
		Limiter: l,
		Asks: func(r *http.Request) ([]stint.Ask, error) {
			key := byHeader(r)
			switch key {
			case "":
				return nil, nil
			case "bad":
				return nil, fmt.Errorf("no such key: %w", stint.ErrRequest)
			}
			return []stint.Ask{{Key: key, Limit: tokens, Cost: 400}, {Key: key, Limit: running}, {Key: key, Limit: rate}}, nil
		},
		CostAfter: func(r *httplimit.Response) (int64, bool) {
			n, ok := r.JSON(totalTokens)
			total, isInt := n.(int64)
			return total, ok && isInt
		},
		Usage: [][]string{totalTokens},
	}.Decide()}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, err := l.Peek(context.Background(), "ann", tokens); err != nil || d.Held != 400 && byHeader(r) != "" {
			t.Errorf("%d held while it runs, %v", d.Held, err)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
	}))
	for _, c := range []struct {
		key, body       string
		status          int
		tokensRemaining int64
	}{
		{"ann", `{"usage": {"total_tokens": 30}}`, 200, 970},
		{"ann", `{}`, 200, 570},
		{"ann", `{"usage": {"total_tokens": 700}}`, 200, 0},
		{"ann", ``, 429, 0},
		{"bad", ``, 400, 0},
		{"", ``, 200, 0},
	} {
		body = c.body
		w := httptest.NewRecorder()
		h.ServeHTTP(w, keyed(c.key))
		d, err := l.Peek(context.Background(), "ann", tokens)
		if w.Code != c.status || err != nil || d.Remaining != c.tokensRemaining || d.Held != 0 {
			t.Errorf("%q, %s: %d, %d remain, %d held, want %d and %d", c.key, c.body, w.Code, d.Remaining, d.Held, c.status, c.tokensRemaining)
		}
	}
	if d, err := l.Peek(context.Background(), "ann", rate); err != nil || d.Remaining != 0 {
		t.Errorf("%d requests remain, want 0: a rate counts starts", d.Remaining)
	}
}

// A Budget without Asks is a mistake of the program.
func TestBudgetWithoutAsks(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	httplimit.Budget{}.Decide()
}
