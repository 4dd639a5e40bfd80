package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/httplimit"
)

// asClient sends a request as if from an address, by a trusted proxy if one is given.
func asClient(h http.Handler, client, proxy string) int {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(client), 1).String()
	if proxy != "" {
		r.Header.Set("X-Forwarded-For", client)
		r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(proxy), 1).String()
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// One client has three quarters of MaxInFlight, and all of it is for several. Behind a
// trusted proxy, clients are those that it names; behind another, it is one.
func TestMaxInFlightIsShared(t *testing.T) {
	for _, c := range []struct {
		name, proxy string
		trusted     []netip.Prefix
		client      func(*http.Request) netip.Addr
		other       int // status
	}{
		{"direct", "", nil, nil, 200},
		{"trusted", "10.0.0.1", behindTen, nil, 200},
		{"not trusted", "10.0.0.1", nil, nil, 503},
		{"said by Client", "10.0.0.1", nil, httplimit.Clients{Trusted: behindTen}.Addr, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan bool)
				h := httplimit.Middleware{
					Decide:  always(httplimit.Answer{Unlimited: true}, nil),
					Clients: &httplimit.Clients{Trusted: c.trusted}, Client: c.client, MaxInFlight: 8,
				}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-goOn }))
				var mu sync.Mutex
				statuses := map[int]int{}
				begin := func(client string) {
					go func() {
						status := asClient(h, client, c.proxy)
						mu.Lock()
						defer mu.Unlock()
						statuses[status]++
					}()
					synctest.Wait()
				}
				for range 8 {
					begin("192.0.2.1")
				}
				if statuses[503] != 2 {
					t.Errorf("one client: %v", statuses)
				}
				begin("192.0.2.2")
				if got := statuses[503] == 2; got != (c.other == 200) {
					t.Errorf("another client: %v", statuses)
				}
				close(goOn)
				synctest.Wait()
			})
		})
	}
}

// One client has three quarters of MaxDelayed, under whatever keys.
func TestMaxDelayedIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.Middleware{MaxDelayed: 8, Decide: func(_ *http.Request, hold time.Duration) (httplimit.Answer, error) {
			a := httplimit.Answer{Shape: true}
			a.Allowed, a.Delay = hold > 0, time.Second
			return a, nil
		}}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		var mu sync.Mutex
		statuses := map[string]int{}
		send := func(client string) {
			go func() {
				if asClient(h, client, "") == 200 {
					mu.Lock()
					defer mu.Unlock()
					statuses[client]++
				}
			}()
			synctest.Wait()
		}
		for range 8 {
			send("192.0.2.1")
		}
		for range 2 {
			send("2001:db8::1")
		}
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if statuses["192.0.2.1"] != 6 || statuses["2001:db8::1"] != 1 {
			t.Errorf("held: %v", statuses)
		}
	})
}
