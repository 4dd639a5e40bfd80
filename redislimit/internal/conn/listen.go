package redislimit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
)

// A connection that lives does not show that something would be heard on it: its server
// may have left the Cluster, or be the replica of nobody. So one who listens says hello
// every second, the way that others tell what they undo, and what was said must be heard.

const (
	// helloEvery is how often one who listens says hello.
	helloEvery = time.Second
	// deafAfter is how long after a hello it must have been heard, and how long none may
	// be heard at all, or something else may have been missed, too.
	deafAfter = 3 * time.Second
	// helloTags is how many keys a hello goes by in turn. In a Cluster they lie on all
	// masters, so that each of them is heard now and then.
	helloTags = 1024
)

// greet tells of a hello. The key says which node does so.
var greet = newScript("return redis.call('PUBLISH', ARGV[1], ARGV[2])")

// Listen implements stint.Teller, by a connection of its own, which is made again for
// as long as ctx lives. It says hello to itself every second through the ordinary
// connections. It hears once one has come back, which shows that this user may publish,
// and may be heard; another instance that has a user of fewer permissions cannot be
// heard, and undoes in silence. A hello that is not heard within 3 seconds, or none that
// could be said for so long, means that something may have been missed: then it does not
// hear, and connects again. That it does not hear is logged; see SetLog. A Client of the
// user's own cannot listen.
func (s *Store) Listen(ctx context.Context, e stint.Ear) error {
	c, ok := s.client.(subscriber)
	if !ok {
		return fmt.Errorf("redislimit: listen: %w", stint.ErrUnsupported)
	}
	told := false // that it does not hear
	for failures := 0; ctx.Err() == nil; failures++ {
		l := &listening{store: s, ear: e, again: told, channel: s.namespace + ":{hello}:" + rand.Text(), unheard: map[int]time.Time{}, good: -1}
		why := l.listen(ctx, c)
		if l.heard {
			failures, told = 0, false
		}
		if ctx.Err() == nil && !told && !errors.As(why, new(notConnected)) && !errors.Is(why, rueidis.ErrClosing) {
			told = true
			s.logger().Warn("stint: what other instances undo is not heard; what was remembered is forgotten, and nothing is remembered until it is heard", "error", why)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause(failures)):
		}
	}
	return nil
}

// listening is one attempt to listen.
type listening struct {
	store   *Store
	ear     stint.Ear
	channel string // of its hellos
	again   bool   // it has been logged that nothing is heard

	mu      sync.Mutex // for messages, and for the ear
	over    bool
	heard   bool // a hello
	mayNot  bool // say hello, for want of a permission
	last    time.Time
	good    int               // the key by which a hello was said last; -1: none was
	unheard map[int]time.Time // when hellos were said, by number
}

var (
	errUnheard = errors.New("what this instance has said to itself has not come back")
	errUnsaid  = errors.New("this instance could not say anything to itself")
)

// listen listens until the connection is lost, or something may have been missed, and
// returns why.
func (l *listening) listen(ctx context.Context, c subscriber) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := c.subscribe(ctx, func(channel, message string) { l.hear(ctx, cancel, channel, message) }, l.store.undoing(), l.channel)
	l.end()
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

// hear takes what comes: "" on no channel when the server has confirmed.
func (l *listening) hear(ctx context.Context, giveUp context.CancelCauseFunc, channel, message string) {
	if channel == "" {
		go l.greet(ctx, giveUp)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	key, isKey := strings.CutPrefix(message, toldKey)
	switch {
	case channel == l.channel:
		l.hello(message)
	case message == toldAll:
		l.ear.Undone("")
	case isKey:
		l.ear.Undone(key)
	}
}

// hello takes a hello of its own. The lock is held.
func (l *listening) hello(message string) {
	n, err := strconv.Atoi(message)
	if err != nil {
		return
	}
	delete(l.unheard, n)
	l.last = time.Now()
	if !l.heard {
		l.heard = true
		for before := range l.unheard { // what was lost then was lost to nobody
			if before < n {
				delete(l.unheard, before)
			}
		}
		l.ear.Hears(true)
		if l.again {
			go l.store.logger().Info("stint: what other instances undo is heard again")
		}
	}
}

// end ends it: nothing more is heard.
func (l *listening) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over = true
		l.ear.Hears(false)
	}
}

// greet says hello every second, and gives up when something may have been missed.
func (l *listening) greet(ctx context.Context, giveUp context.CancelCauseFunc) {
	l.mu.Lock()
	l.last = time.Now()
	l.mu.Unlock()
	say := time.NewTicker(helloEvery)
	defer say.Stop()
	for n := 1; ; n++ {
		go l.say(ctx, n)
		for said := false; !said; {
			due, why := l.due()
			if why != nil {
				l.end()
				giveUp(why)
				return
			}
			late := time.NewTimer(time.Until(due))
			select {
			case <-ctx.Done():
				late.Stop()
				return
			case <-say.C:
				said = true
			case <-late.C:
			}
			late.Stop()
		}
	}
}

// due is when it is to be looked again, and why it is over.
func (l *listening) due() (time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.mayNot { // and so nothing was remembered
		return now.Add(deafAfter), nil
	}
	due, why := l.last, errUnsaid
	for _, at := range l.unheard {
		if why = errUnheard; at.Before(due) {
			due = at
		}
	}
	if due = due.Add(deafAfter); due.After(now) {
		return due, nil
	}
	return due, why
}

// say says hello once: by some key and, if that fails, by the last one that did not. Else
// a master of a Cluster that is dead, whose keys nobody can undo anything of, would have
// what is remembered of all others forgotten again and again.
func (l *listening) say(ctx context.Context, n int) {
	tag := mathrand.N(helloTags)
	if l.sayBy(ctx, n, tag) {
		return
	}
	l.mu.Lock()
	good := l.good
	l.mu.Unlock()
	if good >= 0 && good != tag {
		l.sayBy(ctx, n, good)
	}
}

// sayBy says a hello by a key, and tells whether it was said or never will be.
func (l *listening) sayBy(ctx context.Context, n, tag int) bool {
	l.mu.Lock()
	l.unheard[n] = time.Now() // before it can be heard
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, helloEvery)
	defer cancel()
	key := l.store.namespace + ":{hello:" + strconv.Itoa(tag) + "}"
	_, err := greet.eval(ctx, l.store.client, []string{key}, l.channel, strconv.Itoa(n))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.mayNot, l.good = false, tag
		return true
	}
	delete(l.unheard, n) // it need not be heard
	if l.good == tag {
		l.good = -1
	}
	if code(err) != "NOPERM" {
		return false
	}
	if !l.mayNot && !l.heard {
		l.mayNot = true
		go l.store.logger().Warn("stint: what other instances undo is not heard, so nothing is remembered", "error", advise(err))
	}
	return true
}
