package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bus is a Client that passes on what is published, unless it is told to fail, or to
// lose what passes.
type bus struct {
	mu    sync.Mutex
	heard map[string]func(channel, message string)
	fails error
	loses bool
	dead  func(slot uint16) bool // such slots answer nothing
	hangs bool                   // and not even that
	made  int                    // subscriptions
}

func (b *bus) Do(ctx context.Context, args ...string) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead != nil && b.dead(Slot([]byte(args[3][strings.Index(args[3], "{")+1:]))) {
		if b.hangs {
			b.mu.Unlock()
			<-ctx.Done()
			b.mu.Lock()
			return nil, ctx.Err()
		}
		return nil, io.EOF
	}
	if b.fails != nil {
		return nil, b.fails
	}
	channel, message := args[len(args)-2], args[len(args)-1]
	if heard := b.heard[channel]; heard != nil && !b.loses {
		go heard(channel, message)
	}
	return int64(0), nil
}

func (b *bus) subscribe(ctx context.Context, heard func(channel, message string), channels ...string) error {
	b.mu.Lock()
	b.made++
	b.heard = map[string]func(string, string){}
	for _, c := range channels {
		b.heard[c] = heard
	}
	b.mu.Unlock()
	heard("", "")
	<-ctx.Done()
	return ctx.Err()
}

func (b *bus) set(fails error, loses bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails, b.loses = fails, loses
}

// One who listens hears as long as each hello that was said comes back within 3 seconds,
// and one is said at least every 3; else it listens again. Want of a permission is told
// once, and is no reason to connect again.
func TestListenConnected(t *testing.T) {
	for name, c := range map[string]struct {
		fails  error
		loses  bool
		lasts  time.Duration
		hears  bool // all the time
		again  bool // it connects again
		within time.Duration
	}{
		"well":                 {lasts: time.Minute, hears: true},
		"loses all":            {loses: true, lasts: time.Minute, again: true, within: 4 * time.Second},
		"loses one":            {loses: true, lasts: time.Second, again: true, within: 4 * time.Second},
		"cannot say one":       {fails: io.EOF, lasts: 1500 * time.Millisecond, hears: true},
		"cannot say any":       {fails: io.EOF, lasts: time.Minute, again: true, within: 4 * time.Second},
		"may not say any more": {fails: errors.New("NOPERM no"), lasts: time.Minute, again: true, within: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bus{}
				listening := Over(b)
				var mu sync.Mutex
				hears, deafSince := false, time.Time{}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = listening.Listen(ctx, "stint", "messages", Listener{Connected: func(yes bool) {
						mu.Lock()
						defer mu.Unlock()
						if hears && !yes && deafSince.IsZero() {
							deafSince = time.Now()
						}
						hears = yes
					}})
				}()
				time.Sleep(time.Second + time.Millisecond)
				began := time.Now()
				b.set(c.fails, c.loses)
				time.Sleep(c.lasts)
				b.set(nil, false)
				time.Sleep(10 * time.Second)
				mu.Lock()
				if !hears {
					t.Error("it does not hear, though all is well")
				}
				if c.hears != deafSince.IsZero() {
					t.Errorf("it heard all the time: %t", deafSince.IsZero())
				} else if took := deafSince.Sub(began); !c.hears && took > c.within {
					t.Errorf("noticed after %s", took)
				}
				mu.Unlock()
				if (b.made > 1) != c.again || b.made > 25 {
					t.Errorf("%d subscriptions", b.made)
				}
				cancel()
				<-done
			})
		})
	}
}

// Of a Cluster some masters are dead, for as long as it takes. Those that live are heard,
// so that nothing is forgotten.
func TestListenLiveMasters(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		for dead := range 3 {
			t.Run(fmt.Sprintf("%d dead, hangs: %t", dead, hangs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &bus{hangs: hangs, dead: func(slot uint16) bool { return int(slot)/(Slots/3+1) < dead }}
					c := Over(b)
					var lost int
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					hears := false
					_ = c.Listen(ctx, "stint", "messages", Listener{Connected: func(yes bool) {
						if hears && !yes && ctx.Err() == nil {
							lost++
						}
						hears = yes
					}})
					synctest.Wait()
					if lost > 0 {
						t.Errorf("what is remembered was forgotten %d times in an hour", lost)
					}
				})
			})
		}
	}
}

// A user who may not publish is told that once, and keeps one connection.
func TestListenMayNotPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		b := &bus{fails: errors.New("NOPERM this user has no permissions to run the 'publish' command")}
		c := Over(b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = c.Listen(ctx, "stint", "messages", Listener{Connected: func(yes bool) {
			if yes {
				t.Error("it hears")
			}
		}})
		synctest.Wait()
		if b.made != 1 || strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "+publish") && !strings.Contains(log.String(), "PUBLISH") {
			t.Errorf("%d subscriptions; it said\n%s", b.made, log.String())
		}
	})
}
