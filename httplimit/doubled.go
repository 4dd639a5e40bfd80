package httplimit

import (
	"context"
	"net/http"
	"sync"

	"github.com/stintdev/stint"
)

// asked is what was asked about a request so far, by the Middleware that has
// Doubled and those within it.
type asked struct {
	tell *handler

	mu   sync.Mutex // a handler may serve parts of its request side by side
	seen map[counter]bool
}

type counter struct{ limit, key string }

type askedKey struct{}

// note adds what a was asked to what is known of r, and returns r with that.
func (h *handler) note(r *http.Request, a *Answer) *http.Request {
	all, _ := r.Context().Value(askedKey{}).(*asked)
	if all == nil {
		if h.Doubled == nil {
			return r
		}
		all = &asked{tell: h, seen: map[counter]bool{}}
		r = r.WithContext(context.WithValue(r.Context(), askedKey{}, all))
	}
	var twice []stint.Ask
	all.mu.Lock()
	if len(a.Each) == 0 {
		twice = all.add(twice, &a.Decision)
	}
	for i := range a.Each {
		twice = all.add(twice, &a.Each[i])
	}
	all.mu.Unlock()
	for _, ask := range twice {
		if _, told := all.tell.told.LoadOrStore(ask.Limit.ID(), true); !told {
			all.tell.Doubled(r, ask.Limit, ask.Key)
		}
	}
	return r
}

// add appends what d answers to twice if that has been asked before.
func (all *asked) add(twice []stint.Ask, d *stint.Decision) []stint.Ask {
	if d.Limit == nil {
		return twice
	}
	c := counter{d.Limit.ID(), d.Key}
	if all.seen[c] {
		return append(twice, stint.Ask{Limit: d.Limit, Key: d.Key})
	}
	all.seen[c] = true
	return twice
}
