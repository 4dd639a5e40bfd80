package redislimit_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// A server that says that it is not to be asked is left for the one to which its name
// leads by now, through all connections, with callers or without any; one that loads its
// data is given a while.
func TestReconnectsFromRefusingServer(t *testing.T) {
	for name, refusal := range map[string]string{
		"READONLY":   "-READONLY You can't write against a read only replica.\r\n",
		"MASTERDOWN": "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
		"NOAUTH":     "-NOAUTH Authentication required.\r\n",
		"LOADING":    "-LOADING Redis is loading the dataset in memory\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			old := redistest.StartProxy(t, server.Addr)
			service := redistest.StartProxy(t, old.Addr)
			s := open(t, service.URL()+"?connections=2")
			ask := asks(t, s)
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			old.Set(redistest.Toxic{Lie: func([]byte) []byte { return []byte(refusal) }})
			service.Point(server.Addr)
			began := time.Now()
			await.Until(t, "it has noticed", func() bool { return ask() != nil })
			await.Until(t, "the store answers again", func() bool {
				for range 100 { // by whichever connection
					if ask() != nil {
						return false
					}
				}
				return true
			})
			t.Logf("it decides again after %s", time.Since(began))
		})
	}
}

// A server that refuses for long is asked for new connections ever less often, however
// many callers there are.
func TestRefusingServerBackoff(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	made := func() int {
		n, err := strconv.Atoi(server.Info("stats", "total_connections_received"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	host, port, _ := net.SplitHostPort(redistest.StartProxy(t, "127.0.0.1:1").Addr)
	before := made()
	server.Do(t, "REPLICAOF", host, port)
	l := start(s, 16, 20*time.Millisecond, nil)
	time.Sleep(time.Second)
	close(l.stop)
	l.callers.Wait()
	// Attempts begin 25 to 50 ms apart and double: 6 in a second, of up to 4
	// connections each; and those of this test.
	if n := made() - before; n < 2 || n > 40 {
		t.Errorf("%d connections in a second", n)
	}
	server.Do(t, "REPLICAOF", "NO", "ONE")
	await.Until(t, "the store answers", func() bool { return asks(t, s)() == nil })
}

// Behind a Fallback, a service whose name leads elsewhere is followed by its probes.
func TestFallbackFollowsName(t *testing.T) {
	first, second := redistest.Start(t), redistest.Start(t)
	service := redistest.StartProxy(t, first.Addr)
	s, err := connectLater(service.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, limit := stint.NewLimiter(s.WithFallback()), stint.MustLimit("1000000 per 1s")
	by := func() stint.Source {
		d, err := l.Allow(t.Context(), "a", limit)
		if err != nil {
			t.Fatal(err)
		}
		return d.By
	}
	await.Until(t, "the store decides", func() bool { return by() == stint.ByStore })
	host, port, _ := net.SplitHostPort(second.Addr)
	first.Do(t, "REPLICAOF", host, port)
	time.Sleep(500 * time.Millisecond) // a failover takes its time before the name follows
	for range 20 {
		by()
	}
	service.Point(second.Addr)
	began := time.Now()
	await.Until(t, "the store decides again", func() bool { return by() == stint.ByStore })
	t.Logf("the new primary decides after %s", time.Since(began))
}
