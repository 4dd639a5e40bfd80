package main

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// taker takes over rules that have changed: those of the files, and those that a management server has
// sent.
type taker struct {
	s      *server.Server
	log    *slog.Logger
	loaded func([]rules.File, error) // is told of each attempt with files; nil: nothing is
	given  []config.Given            // goes before all files: without it, they may lack what they need
	before config.Settings           // in force

	mu         sync.Mutex
	own, other []rules.File // in force, of files and of the management server
	refused    bool         // the last ones were
}

// ownChanged takes over the rules of files, or of none if there is err. On an error it logs, and the
// rules stay, and it returns false.
func (t *taker) ownChanged(files []rules.File, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	settings, err := t.take(files, t.other, err, t.loaded)
	if err != nil {
		return false
	}
	t.own = files
	if !settings.Equal(&t.before) {
		t.log.Warn("the section server has changed; that takes a restart")
	}
	return !t.refused
}

// sent takes over what a management server has sent. loaded is told.
func (t *taker) sent(files []rules.File, loaded func([]rules.File, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.take(t.own, files, nil, loaded)
	if err == nil {
		t.other = files
	}
	return err
}

func (t *taker) take(own, other []rules.File, wrong error, loaded func([]rules.File, error)) (settings config.Settings, err error) {
	files, err := orEmpty(slices.Concat(own, other)), wrong
	var set *rules.Set
	if err == nil {
		settings, set, err = (&config.Source{Files: files, Given: t.given, CheckStore: redislimit.CheckAddress}).Read()
	}
	t.refused = !takeRules(t.s, set, err, t.log, t.refused, func() {
		if loaded != nil {
			loaded(files, err)
		}
	})
	return settings, err
}

// takeRules takes over set, or logs why it is not, and returns false. err says what is wrong with it.
// If the last ones were refused, the line that ends this has the level of a warning. It calls done
// before it logs: who reads that rules are taken may ask at once.
func takeRules(s *server.Server, set *rules.Set, err error, log *slog.Logger, refused bool, done func()) bool {
	if err != nil {
		s.RulesRefused(err)
		done()
		log.Error("rules not taken; the previous ones stay in force", "version", s.Rules().Version, "error", err)
		return false
	}
	known := s.Findings()
	taken, err := s.SetRules(set)
	done()
	switch {
	case err != nil:
		log.Error("rules not taken; the previous ones stay in force", "version", s.Rules().Version, "error", err)
		return false
	case taken:
		collect(set)
		level := slog.LevelInfo
		if refused {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "rules taken", "version", set.Version, "count", len(set.Rules))
	default:
		log.Warn("the file's rules were not taken, because the fleet has rules: change those with stint rules push", "version", s.Rules().Version)
	}
	logFindings(log, set.Findings, known)
	return true
}

// collectFrom is from how many rules on collect does something.
const collectFrom = 1000

// collect runs the collector if many rules have been read, beside requests, and gives memory back: what they were
// read from, and the former rules, take several times their memory. By itself the collector would run when the
// heap has doubled, or after 2 minutes, and would keep for long what it has freed.
func collect(set *rules.Set) {
	if len(set.Rules) >= collectFrom {
		go debug.FreeOSMemory()
	}
}

const mostLogged = 20

// logFindings logs new findings. One that has moved to another line is known.
func logFindings(log *slog.Logger, findings, known []rules.Finding) {
	told := 0
	for _, f := range findings {
		if slices.ContainsFunc(known, func(k rules.Finding) bool { return k.Code == f.Code && k.Text == f.Text }) {
			continue
		}
		if told++; told > mostLogged {
			log.Warn("there are more findings: see \"stint rules check\"", "findings", len(findings))
			return
		}
		where := []any{"code", f.Code}
		if f.Where != "" {
			where = append(where, "where", f.Where)
		}
		log.Warn(f.Text, where...)
	}
}

// evictionInterval is shortened by a test.
var evictionInterval = 5 * time.Second

const evictionTimeout = time.Second

// watchEviction warns of each eviction policy of the store's server that drops counts.
func watchEviction(ctx context.Context, store stint.Store, log *slog.Logger) {
	s, ok := stint.As[*redislimit.Store](store)
	if !ok {
		return
	}
	said := ""
	tell := func(now redislimit.Server) {
		switch {
		case now.Eviction == said:
			return
		case now.DropsCounts():
			logFindings(log, server.EvictionFindings(now), nil)
		case said != "":
			log.Info("the Redis server no longer drops counts", "maxmemory_policy", now.Eviction)
		}
		said = now.Eviction
	}
	tell(s.Server())
	every := time.NewTicker(evictionInterval)
	go func() {
		defer every.Stop()
		for {
			asking, cancel := context.WithTimeout(ctx, evictionTimeout)
			now, err := s.RefreshServer(asking)
			cancel()
			if err == nil { // else the store tells by itself what is wrong with it
				tell(now)
			}
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
		}
	}()
}
