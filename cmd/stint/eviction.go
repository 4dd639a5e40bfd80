package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/rules"
)

// evictionInterval is how often a server is asked for its eviction policy. A test
// shortens it.
var evictionInterval = 5 * time.Second

// evictionTimeout is how long a server may take to answer.
const evictionTimeout = time.Second

func evictionFindings(s redislimit.Server) []rules.Finding {
	if !s.DropsCounts() {
		return nil
	}
	return []rules.Finding{{Code: rules.CodeEviction, Text: "the Redis server has maxmemory-policy " + s.Eviction +
		": when it runs out of memory it drops counts and bans, so that who is refused is allowed again; use noeviction"}}
}

// watchEviction warns of an eviction policy that drops counts: of the one that store's
// server has, and until ctx is done of each that it comes to have.
func watchEviction(ctx context.Context, store stint.Store, log *slog.Logger) {
	s, ok := store.(*redislimit.Store)
	if !ok {
		return
	}
	said := ""
	tell := func(now redislimit.Server) {
		switch {
		case now.Eviction == said:
			return
		case now.DropsCounts():
			logFindings(log, evictionFindings(now), nil)
		case said != "":
			log.Info("the Redis server drops counts no more", "maxmemory_policy", now.Eviction)
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
