package redislimit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/redislimit"
)

// remembering is a Denials over a store, with a Fallback in between, that hears.
func remembering(t *testing.T, url string) *fleet.Denials {
	t.Helper()
	f := &fleet.Fallback{Store: open(t, url), Deadline: 10 * time.Second}
	t.Cleanup(f.Close)
	d := &fleet.Denials{Store: f}
	t.Cleanup(d.Close)
	await.Until(t, "it hears", d.Connected)
	return d
}

// Denials changes nothing but who answers.
func TestDenialsKit(t *testing.T) {
	if testing.Short() {
		t.Skip("the kit over Memory is enough, of a layer and of a Store")
	}
	server := redistest.Start(t)
	var n atomic.Int64
	limittest.Kit{
		New: func(t *testing.T) stint.Store {
			return remembering(t, fmt.Sprint(server.URL(), "?namespace=a", n.Add(1)))
		},
		Fleet: func(t *testing.T) []stint.Store {
			shared := fmt.Sprint(server.URL(), "?namespace=b", n.Add(1))
			return []stint.Store{remembering(t, shared), remembering(t, shared)}
		},
		Steps: 5_000,
	}.Run(t)
}

// What is refunded or forgotten through one instance, or beside it, is heard of by
// another, for keys of any kind, and after the connection was lost.
func TestListen(t *testing.T) {
	server := redistest.Start(t)
	here, there := remembering(t, server.URL()), open(t, server.URL())
	one, two := stint.NewLimiter(here), stint.NewLimiter(there)
	limit := stint.MustLimit("1 per 1h")
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	long := string(make([]byte, 200))
	refuse := func(key string) {
		t.Helper()
		for range 3 {
			if _, err := one.Allow(t.Context(), key, limit); err != nil {
				t.Fatal(err)
			}
		}
		before := here.Remembered()
		if d, err := one.Allow(t.Context(), key, limit); d.Allowed || err != nil || here.Remembered() != before+1 {
			t.Fatalf("%+v, %v: not from memory", d, err)
		}
	}
	passes := func(what, key string) {
		t.Helper()
		await.Until(t, what, func() bool {
			d, err := one.Allow(t.Context(), key, limit)
			return err == nil && d.Allowed
		})
	}
	for _, key := range []string{"k", "a}b:\x00ü", long} {
		refuse(key)
		began := time.Now()
		if err := stint.Refund(t.Context(), two.Store, &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1}}}); err != nil {
			t.Fatal(err)
		}
		passes("refunded", key)
		t.Logf("heard within %s", time.Since(began))
		refuse(key)
		if err := two.Reset(t.Context(), key, limit); err != nil {
			t.Fatal(err)
		}
		passes("reset", key)
	}
	refuse("k")
	if err := there.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	passes("all cleared", "k")
	// A ban.
	for range 3 {
		if _, err := one.Violate(t.Context(), "k", p); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := two.Pardon(t.Context(), "k", p); !found || err != nil {
		t.Fatal(found, err)
	}
	ask := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: stint.MustLimit("9 per 1h sliding_log"), Cost: 1, Penalty: p}}}
	await.Until(t, "pardoned", func() bool {
		d, err := one.Take(t.Context(), &ask, nil)
		return err == nil && d.Allowed
	})
	// A connection that is lost. What was undone meanwhile is not missed.
	refuse("k")
	server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	await.Until(t, "the loss", func() bool { return !here.Connected() })
	if err := two.Reset(t.Context(), "k", limit); err != nil {
		t.Fatal(err)
	}
	if d, err := one.Allow(t.Context(), "k", limit); !d.Allowed || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
	await.Until(t, "it hears again", here.Connected)
	refuse("k")
	if err := stint.Refund(t.Context(), two.Store, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}}); err != nil {
		t.Fatal(err)
	}
	passes("refunded after the loss", "k")
}

// Who may not publish, or not subscribe, hears nothing, and so remembers nothing.
func TestListenWithoutPermission(t *testing.T) {
	server := redistest.Start(t)
	for name, rule := range map[string]string{"mute": "-publish", "deaf": "-subscribe"} {
		server.Do(t, "ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all", rule)
		s := open(t, "redis://"+name+":pw@"+server.Addr)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := s.Notify(ctx, fleet.Listener{Connected: func(yes bool) {
			if yes {
				t.Errorf("%s hears", name)
			}
		}, Invalidated: func(string) { t.Errorf("%s was told", name) }})
		cancel()
		if err != nil {
			t.Error(err)
		}
		l, limit := stint.NewLimiter(s), stint.MustLimit("1 per 1h")
		if _, err := l.Allow(t.Context(), "k", limit); err != nil {
			t.Error(err)
		}
		if err := stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}}); err != nil {
			t.Error(err)
		}
		if err := l.Reset(t.Context(), "k", limit); err != nil {
			t.Error(err)
		}
	}
}

// A client of the user's own cannot listen.
func TestListenWithoutListening(t *testing.T) {
	s, err := redislimit.New(t.Context(), fake(func([]string) (any, error) { return "redis_version:7.0.0\r\n", nil }), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Notify(t.Context(), fleet.Listener{}); err == nil {
		t.Error("it listens")
	}
}

func TestListenCluster(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	d := &fleet.Denials{Store: s}
	defer d.Close()
	await.Until(t, "it hears", d.Connected)
	l, limit := stint.NewLimiter(d), stint.MustLimit("1 per 1h")
	for i := range 20 { // on all nodes
		key := fmt.Sprint(i)
		for range 3 {
			_, _ = l.Allow(t.Context(), key, limit)
		}
		if err := stint.Refund(t.Context(), s, &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1}}}); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "refunded", func() bool {
			d, err := l.Allow(t.Context(), key, limit)
			return err == nil && d.Allowed
		})
	}
}

// BenchmarkDenials is a flood of one key that is refused, over a real server.
func BenchmarkDenials(b *testing.B) {
	server := redistest.Start(b)
	s, err := redislimit.Connect(b.Context(), server.URL(), redislimit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	limit := stint.MustLimit("10 per 1s")
	flood := func(b *testing.B, store stint.Store) {
		l := stint.NewLimiter(store)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := l.Allow(b.Context(), "k", limit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("redis", func(b *testing.B) { flood(b, s) })
	b.Run("denials", func(b *testing.B) {
		d := &fleet.Denials{Store: s}
		defer d.Close()
		for !d.Connected() {
			time.Sleep(time.Millisecond)
		}
		flood(b, d)
		b.ReportMetric(1-float64(d.Remembered())/float64(b.N), "calls/op")
	})
}
