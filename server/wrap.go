package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Load returns a Server with the rules and settings of the file at path, or of all files in
// that directory, in place of those in c. It is for programs that use the rules in their
// own handlers: see Server.Wrap. Load also reads the files that the settings name.
//
// Without a Limiter in c, Load opens the store that the settings name, as Config.OpenStore does, and
// Server.Close closes it. With a Limiter, the store in the file has no effect, and c also needs Documents if
// the fleet shares rules. Addresses of listeners in the file have no effect.
//
// Bans, overrides, switches and rules that are changed at run time, at any instance of the fleet, and
// files that change take effect until Close: Load calls Server.Follow, unless c says NoFollow. It waits up to
// a second for each store, and up to a second for the fleet's shared documents. If Load returns an error,
// nothing runs in the background.
func Load(path string, c Config) (*Server, error) {
	files, err := rules.Read(path)
	if err != nil {
		return nil, err
	}
	if c.Settings, c.Rules, err = config.Read(files, nil); err != nil {
		return nil, err
	}
	done := func() {}
	if c.Limiter == nil {
		if done, err = c.OpenStore(nil); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
	} else if c.Settings.RulesFrom == config.FromFleet && c.Documents == nil {
		return nil, errors.New("server: the file has rules: fleet: pass the fleet's Documents to Load")
	}
	s := New(c)
	s.closeStore = done
	if err := s.Open(); err != nil {
		s.Close()
		return nil, err
	}
	if !c.NoFollow {
		s.Follow(context.Background())
	}
	return s, nil
}

// Wrap returns next behind the rules. It does everything that the gateway does, except for upstreams: it
// answers refused requests itself, delays requests of rules that shape, writes the headers about limits,
// counts a violation when next writes a status of on_status, and counts requests in flight for
// Settings.Instance.
//
// request.route is the http.ServeMux pattern that the request matches, such as "POST /login" or "GET
// /users/{id}": of next if that is a mux, else of the mux that called this handler. So you can wrap a whole
// mux or single handlers.
//
// An h2c handler must be around this one, not inside: requests in a connection that it takes over would not
// pass through here.
//
// Changes made at run time, and files that change, take effect while Server.Follow runs: Load
// calls it, New does not. For the rules file itself, use rules.Watcher and Server.SetRules.
func (s *Server) Wrap(next http.Handler) http.Handler {
	m := s.middleware(s.decideFor(next))
	m.CORS = s.cors.Stated()
	return s.cors.Handler(httplimit.GRPC(inErrorFormat(s.Rules, s.withExchange(s.watch.Tracing.Requests("limited", s.door.BelievesCaller, m.Wrap(next))))))
}

// decideFor is decideHTTP for a handler whose responses the middleware sees.
func (s *Server) decideFor(next http.Handler) httplimit.Decide {
	return func(r *http.Request, maxDelay time.Duration) (httplimit.Answer, error) {
		x := exchangeOf(r)
		x.wrapped, x.pattern = true, patternOf(next, r)
		a, err := s.decideHTTP(r, maxDelay)
		if len(x.watching) > 0 {
			a.OnStatus = func(ctx context.Context, status int) { s.responded(ctx, x, status) }
		}
		return a, err
	}
}

// patternOf is the mux pattern that r matches or has matched; empty: there is no mux.
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
