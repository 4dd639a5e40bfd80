package server

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// Config is what a Server is made of.
type Config struct {
	Settings Settings
	// Rules must be given.
	Rules *rules.Set
	// Limiter decides. nil: one in memory.
	Limiter *stint.Limiter
	// Documents is where the fleet keeps what is changed at run time. nil: this
	// instance keeps it by itself, until it ends.
	Documents Documents
	// Log is told of failures. nil: slog.Default.
	Log *slog.Logger
	// Program names what runs, with its version, for the admin API.
	Program string
	// Findings is what was found while all this was made, for Server.Findings.
	// nil: nothing.
	Findings []rules.Finding
}

// Server decides requests by rules. It is made by New and may be used from many
// goroutines at once.
type Server struct {
	settings   Settings
	set        atomic.Pointer[served]
	live       live
	documents  Documents
	shared     bool // documents are others' too
	bans       bans
	started    time.Time
	metrics    *metrics
	limiter    *stint.Limiter
	local      *stint.Limiter // decides where limiter does not; nil: nothing does
	timeout    time.Duration  // of a decision; 0: none
	transport  *http.Transport
	log        *slog.Logger
	errorLog   *log.Logger
	complaints stint.Limiter // of s.log, see complain
	stopping   atomic.Bool
	found      []rules.Finding // at the start
	program    string

	files        sync.Mutex // guards what follows while files are read; see Open
	opened       bool
	certificates []*certificate // of the listeners with TLS; set by Open
	tokens       atomic.Pointer[Tokens]
}

// New is a Server.
func New(c Config) *Server {
	s := &Server{
		settings:  c.Settings,
		limiter:   c.Limiter,
		documents: c.Documents,
		shared:    c.Documents != nil,
		log:       c.Log,
		transport: newTransport(&c.Settings),
		started:   time.Now(),
		found:     c.Findings,
		program:   c.Program,
	}
	if !s.shared {
		s.documents = new(memoryDocuments)
	}
	s.metrics = newMetrics(s)
	s.live.controls = followed{name: controlsDocument, take: s.takeControls}
	s.live.rules = followed{name: rulesDocument, take: s.takeFleetRules}
	s.live.followed = []*followed{&s.live.controls}
	if c.Settings.RulesFrom == FromFleet {
		s.live.followed = append(s.live.followed, &s.live.rules)
	}
	s.live.take(c.Rules, 0)
	s.install()
	if s.limiter == nil {
		s.limiter = stint.NewLimiter(&stint.Memory{MaxKeys: int(c.Settings.MaxKeys)})
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.errorLog = log.New(errorLines{s}, "", 0)
	if _, ok := s.limiter.Store.(*stint.Memory); !ok && s.limiter.Store != nil {
		// Memory answers at once, and where it does not, it is full: another
		// one beside it would hand out fresh limits.
		s.timeout = c.Settings.DecisionTimeout
		s.local = stint.NewLimiter(&stint.Memory{MaxKeys: int(c.Settings.MaxKeys)})
	}
	return s
}

// readyLimit is asked, and never charged, to see whether the store decides.
var readyLimit = stint.MustLimit("1 per 1s")

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if _, err := s.limiter.Peek(ctx, "readyz", readyLimit); err != nil {
		s.log.Warn("the store does not decide", "error", err)
		if s.needsStore() {
			http.Error(w, "the store does not decide", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready, without the store\n"))
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// needsStore tells whether requests would be refused for want of the store. Where
// none would, a load balancer must not take this instance out, and with it, since
// they all lose the same store, every other.
func (s *Server) needsStore() bool {
	return slices.ContainsFunc(s.Rules().Rules, func(r *rules.Rule) bool {
		return r.Mode == rules.Enforce && r.OnStoreError == rules.Deny
	})
}
