package redislimit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// A Store that is closed while a server is frozen leaves no goroutine and no socket,
// whether the server ever wakes or not. Connections that are being made then are what
// rueidis forgets: the server, awake again, would accept them for good.
func TestCloseWhileFrozen(t *testing.T) {
	for _, of := range []string{"single", "Cluster", "Sentinel"} {
		t.Run(of, func(t *testing.T) {
			if of == "Sentinel" && brief() {
				t.Skip("the master's failover takes seconds")
			}
			var address string
			var server *redistest.Server
			start := func() {
				switch of {
				case "single":
					server = redistest.Start(t)
					address = server.URL()
				case "Cluster":
					// Its address names another master, so that the one which decides is
					// first met when it is frozen.
					c := redistest.StartReplicated(t, 3, 0)
					_, owner := slotOf(t, c)
					server, address = c.Masters[owner], "redis+cluster://"+c.Masters[(owner+1)%3].Addr
				case "Sentinel":
					w := redistest.StartWatched(t, 1, 1)
					server, address = w.Master, w.URL()
				}
			}
			start()
			closeWhileFrozen(t, address, server, true)
			if of == "Sentinel" {
				start() // another master was elected
			}
			closeWhileFrozen(t, address, server, false)
		})
	}
}

func closeWhileFrozen(t *testing.T, address string, server *redistest.Server, wakes bool) {
	goes(t, 0)
	sockets := openSockets()
	s, err := redislimit.Connect(t.Context(), address, redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	thaw := server.Freeze(t)
	l := start(s, 32, 20*time.Millisecond, nil)
	await.Until(t, "100 calls have failed", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.maybe+l.refused >= 100
	})
	s.Close()
	if wakes {
		thaw()
	}
	close(l.stop)
	l.callers.Wait()
	goes(t, sockets)
}

// goes wants all goroutines of Stores and their clients gone, soon, and no more
// sockets than so many.
func goes(t *testing.T, sockets int) {
	t.Helper()
	var goroutines []string
	var open int
	if !await.So(func() bool {
		goroutines, open = storesGoroutines(), openSockets()
		return len(goroutines) == 0 && (sockets == 0 || open <= sockets)
	}) {
		t.Fatalf("%d sockets, %d before, and %d goroutines:\n%s", open, sockets, len(goroutines), strings.Join(goroutines, "\n\n"))
	}
}

// storesGoroutines are the stacks of what Stores and their clients run. Functions tell
// whose a goroutine is: the lines with files, which begin with a tab, have the name of the
// folder that the checkout is in.
func storesGoroutines() (stacks []string) {
	all := make([]byte, 4<<20)
	for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(stack, "testing.(*T).Parallel(") {
			continue // a test that has not begun
		}
		for line := range strings.Lines(stack) {
			if !strings.HasPrefix(line, "\t") && ofStores.MatchString(line) {
				stacks = append(stacks, stack)
				break
			}
		}
	}
	return stacks
}

var ofStores = regexp.MustCompile(`github\.com/(redis/rueidis\.|stintdev/stint/redislimit[./])`)

// openSockets is how many sockets the process has, where the system tells.
func openSockets() (n int) {
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
