package redislimit

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// forget deletes keys and tells of it.
var forget = newScript(algo.ResetScript)

// What is told on the channel begins with one of these: a key follows, nothing, or
// the name of who wants to hear itself.
const (
	toldKey   = "k"
	toldAll   = "a"
	toldHello = "h"
)

// undoing is where it is told that something of a key was undone.
func (s *Store) undoing() string { return s.namespace + ":{undone}" }

// telling is argv for a script that tells of r's keys, each once. Each message
// crosses the bus of a whole Cluster, so that wherever an instance listens it hears.
func (s *Store) telling(r *stint.Request, argv ...string) []string {
	argv = append(argv, s.undoing())
	told := argv[len(argv):]
	for i := range r.Asks {
		if m := toldKey + r.Asks[i].Key; !slices.Contains(told, m) {
			told = append(told, m)
		}
	}
	return append(argv, told...)
}

// helloEvery is how often one who listens and does not hear itself says hello again.
const helloEvery = time.Second

// Listen implements stint.Teller, by a connection of its own, which is made again for
// as long as ctx lives. It hears once a message of its own has come back, which shows
// that this user may publish, and may be heard; another instance that has a user of
// fewer permissions cannot be heard, and undoes in silence. A connection that is cut
// without a word is noticed within about 3 seconds, as any other. A Client of the
// user's own cannot listen.
func (s *Store) Listen(ctx context.Context, e stint.Ear) error {
	c, ok := s.client.(subscriber)
	if !ok {
		return fmt.Errorf("redislimit: listen: %w", stint.ErrUnsupported)
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		if s.listenOnce(ctx, c, e) {
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause(failures)):
		}
	}
	return nil
}

// listenOnce listens until the connection is lost, and tells whether it ever heard.
func (s *Store) listenOnce(ctx context.Context, c subscriber, e stint.Ear) (hears bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // for a message may come when the connection is given up
	over := false
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		e.Hears(false)
	}()
	hello := toldHello + rand.Text()
	heard := make(chan struct{}, 1)
	_ = c.subscribe(ctx, s.undoing(), func(m string) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		key, isKey := strings.CutPrefix(m, toldKey)
		switch {
		case m == "":
			go func() {
				if !s.sayHello(ctx, hello, heard) {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if !over {
					hears = true
					e.Hears(true)
				}
			}()
		case m == hello:
			put(heard)
		case m == toldAll:
			e.Undone("")
		case isKey:
			e.Undone(key)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	return hears
}

// sayHello publishes until it was heard, or false: until ctx is done.
func (s *Store) sayHello(ctx context.Context, hello string, heard <-chan struct{}) bool {
	for {
		bounded, cancel := context.WithTimeout(ctx, helloEvery)
		_, _ = s.client.Do(bounded, "PUBLISH", s.undoing(), hello)
		cancel()
		select {
		case <-ctx.Done():
			return false
		case <-heard:
			return true
		case <-time.After(helloEvery):
		}
	}
}
