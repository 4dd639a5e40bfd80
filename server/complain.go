package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/internal/auth"
)

// complaints log what callers can bring about, and failures that go on: of each kind the
// first one at once, and then one in complainEvery, with how many were not logged before
// it. What a caller can cause must not be logged each time: a client of a thousand
// requests would write as many lines, and hide others among them.
//
// Kinds are fixed texts and names of the settings, never what a request holds. The zero
// complaints are ready for use, from many goroutines at once.
type complaints struct {
	mu    sync.Mutex
	kinds map[string]*kindOfComplaint
}

type kindOfComplaint struct {
	logged   time.Time // the last one
	unlogged int64     // since then
}

// complainEvery is how often a kind of complaint is logged.
const complainEvery = 10 * time.Second

// may tells whether a complaint is to be logged now, and how many of its kind were not
// since the last one that was.
func (c *complaints) may(kind string) (unlogged int64, ok bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[kind]
	switch {
	case k == nil:
		if c.kinds == nil {
			c.kinds = map[string]*kindOfComplaint{}
		}
		k = new(kindOfComplaint)
		c.kinds[kind] = k
	case now.Sub(k.logged) < complainEvery:
		k.unlogged++
		return 0, false
	}
	unlogged = k.unlogged
	k.logged, k.unlogged = now, 0
	return unlogged, true
}

// complainAt logs a complaint of a kind, now and then.
func (s *Server) complainAt(level slog.Level, kind, what string, args ...any) {
	unlogged, ok := s.complaints.may(kind)
	if !ok {
		return
	}
	if unlogged > 0 {
		args = append(args, "unlogged", unlogged)
	}
	s.log.Log(context.Background(), level, what, args...)
}

// tellAmbiguous logs, now and then, which header or parameter a request was refused for,
// which its client is not told.
func (s *Server) tellAmbiguous(err error) {
	var a *rules.AmbiguousError
	if errors.As(err, &a) {
		s.complainAt(slog.LevelInfo, "ambiguous", "a request is refused, for servers read it in different ways", "error", a)
	}
}

// complain logs, now and then, that the store failed.
func (s *Server) complain(err error) {
	s.complainOf("the store does not decide, so on_store_error does", err)
}

// complainOf logs, now and then, a failure that goes on.
func (s *Server) complainOf(what string, err error) {
	s.complainAt(slog.LevelError, what, what, "error", err)
}

// complainOfCaller logs, now and then, that a caller of an API was refused.
func (s *Server) complainOfCaller(a *auth.Authenticator, r *http.Request, who auth.Caller, err error) {
	what := "the " + a.API() + " API refused a caller"
	args := []any{"address", r.RemoteAddr, "why", err}
	if who.Name != "" {
		args = append(args, "name", who.Name)
	}
	s.complainAt(slog.LevelWarn, what, what, args...)
}
