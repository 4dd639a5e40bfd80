package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/config"
)

// Load is a Server with the rules and settings of the file at path, or of the files in a
// directory, in place of those in c, for programs that take the rules within: see
// Server.Wrap. It has read the files that the settings name. Where the settings have a
// store, c must have the Limiter that is over it, and c.Documents for rules of a fleet:
//
//	store, err := redislimit.Connect(ctx, "redis://localhost:6379", redislimit.Options{})
//	...
//	s, err := server.Load("stint.yaml", server.Config{
//		Limiter: stint.NewLimiter(store), Documents: store.Documents(),
//	})
//
// What the file says of listeners is for Server.Run.
func Load(path string, c Config) (*Server, error) {
	files, err := rules.Read(path)
	if err != nil {
		return nil, err
	}
	if c.Settings, c.Rules, err = config.Read(files, nil); err != nil {
		return nil, err
	}
	if c.Settings.Store != "memory" && c.Limiter == nil { // the address may hold a password
		return nil, errors.New("server: the store in the file is not memory: open it, and pass its Limiter to Load")
	}
	if c.Settings.RulesFrom == config.FromFleet && c.Documents == nil {
		return nil, errors.New("server: the file has rules: fleet: pass the fleet's Documents to Load")
	}
	s := New(c)
	if err := s.Open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Wrap is next behind the rules: all that the gateway does but for passing requests on.
// A request that is refused never reaches next; one that is to be shaped is held; headers
// tell clients how they stand; statuses that next writes count as violations where a rule
// has on_status; and requests under way count among those of Settings.Instance.
//
// request.route is the pattern of the http.ServeMux that the request takes, such as
// "POST /login" or "GET /users/{id}": of next, if that is a mux, else of the mux that has
// found this handler. So one may wrap a whole mux, or handlers one by one.
//
// A handler of h2c must be around this one, and not within: requests in a connection that
// it has taken over would not come by here.
//
// What is changed at run time, and files that change, are taken over while Server.Follow
// runs; of the rules file itself, which rules.Watcher watches, by Server.SetRules. Close
// ends what runs in the background.
func (s *Server) Wrap(next http.Handler) http.Handler {
	return httplimit.GRPC(s.withExchange(httplimit.Middleware{
		Decide:   s.decideFor(next),
		Dialect:  s.settings.Dialect,
		MaxHeld:  int(s.settings.MaxHeld),
		MaxHold:  s.settings.MaxHold,
		Client:   s.clientOf,
		Degraded: s.settings.DegradedHeader,
	}.Wrap(next)))
}

// decideFor is decideHTTP for a handler, whose responses are seen here.
func (s *Server) decideFor(next http.Handler) httplimit.Decide {
	return func(r *http.Request, hold time.Duration) (httplimit.Answer, error) {
		x := exchangeOf(r)
		x.wrapped, x.pattern = true, patternOf(next, r)
		a, err := s.decideHTTP(r, hold)
		if len(x.watching) > 0 {
			a.OnStatus = func(ctx context.Context, status int) { s.responded(ctx, x, status) }
		}
		return a, err
	}
}

// patternOf is the pattern that r takes to, or has taken; empty: there is no mux.
func patternOf(next http.Handler, r *http.Request) string {
	if mux, ok := next.(interface {
		Handler(*http.Request) (http.Handler, string)
	}); ok {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern
		}
	}
	return r.Pattern
}
