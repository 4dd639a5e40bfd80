package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/redislimit"
)

// load is callers that keep asking one limit while trouble comes and goes, and
// the account of what they were told.
type load struct {
	limiter *stint.Limiter
	limit   *stint.Limit
	key     string
	penalty *stint.Penalty // asked, too, where set
	patient time.Duration  // how long a caller waits for an answer

	stop    chan struct{}
	callers sync.WaitGroup

	mu       sync.Mutex
	admitted int64            // calls that were told allowed
	maybe    int64            // calls whose error leaves open whether they were charged
	refused  int64            // calls that were certainly not charged
	errors   map[string]int64 // by kind
	late     []time.Duration  // how long after its deadline a call came back
	last     time.Time        // when a call last succeeded
}

// amount is more than any test asks for.
const amount = 100_000_000

// start starts so many callers, who rest a little between calls.
func start(s *redislimit.Store, callers int, patient time.Duration, penalty *stint.Penalty) *load {
	l := &load{limiter: stint.NewLimiter(s), limit: stint.MustLimit(fmt.Sprintf("%d per 24h sliding_log", amount)), key: "a", patient: patient, penalty: penalty,
		stop: make(chan struct{}), errors: map[string]int64{}}
	for range callers {
		l.callers.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(time.Millisecond):
					l.call()
				}
			}
		})
	}
	return l
}

func (l *load) call() {
	ctx := context.Background()
	r := stint.Request{Asks: []stint.Ask{{Key: l.key, Limit: l.limit, Cost: 1, Penalty: l.penalty}}}
	deadline := time.Now().Add(l.patient)
	if rand.IntN(2) == 0 {
		r.Deadline = l.patient
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	d, err := l.limiter.Take(ctx, &r, nil)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, max(0, now.Sub(deadline)))
	switch kind, maybe := kindOf(err); {
	case err == nil && d.Allowed:
		l.admitted++
		l.last = now
	case err == nil:
		l.errors["a refusal without need"]++
	case maybe:
		l.maybe++
		l.errors[kind]++
	default:
		l.refused++
		l.errors[kind]++
	}
}

// unknown is the kind of an error that package redislimit does not document.
const unknown = "UNKNOWN: "

// kindOf tells which of the errors that the package documents err is, and whether
// it leaves open that the call was charged.
func kindOf(err error) (kind string, maybe bool) {
	if err == nil {
		return "", false
	}
	var server *rueidis.RedisError
	var dial *net.OpError
	var network net.Error
	switch {
	case errors.Is(err, stint.ErrFull):
		return "OOM", false
	case errors.Is(err, fleet.ErrNotCharged) && errors.Is(err, context.DeadlineExceeded):
		return "not sent", false
	case errors.As(err, &server):
		code, _, _ := strings.Cut(server.Error(), " ")
		if strings.Contains(" READONLY OOM LOADING MASTERDOWN CLUSTERDOWN BUSY TRYAGAIN ", " "+code+" ") {
			return code, false
		}
	case strings.Contains(err.Error(), "calls wait for the server"), errors.Is(err, rueidis.ErrNoSlot):
		return "not sent", false
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline", true
	case errors.As(err, &dial) && dial.Op == "dial":
		return "no connection", false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, rueidis.ErrClosing), errors.Is(err, net.ErrClosed), errors.As(err, &network):
		return "connection lost", true
	}
	return unknown + err.Error(), true
}

// account ends the load, settles what was charged by way of a Store that no fault
// concerns, and tells it all in a line. Where no server has lost counts, nobody
// was admitted without a charge.
func (l *load) account(t *testing.T, name string, direct *redislimit.Store, keeps bool) {
	t.Helper()
	close(l.stop)
	l.callers.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var d stint.Decision
	var err error
	for range 100 { // connections that lay idle may have been closed meanwhile
		if d, err = stint.NewLimiter(direct).Peek(ctx, l.key, l.limit); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("%s: what was charged cannot be told: %v", name, err)
	}
	charged := amount - d.Remaining
	slices.Sort(l.late)
	calls := len(l.late)
	p999 := l.late[min(calls-1, calls*999/1000)]
	var kinds []string
	for kind, n := range l.errors {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
		if strings.HasPrefix(kind, unknown) {
			t.Errorf("%s: an error that is not documented, %d times: %s", name, n, kind)
		}
	}
	slices.Sort(kinds)
	t.Logf("| %s | %d | %d | %s | %d | %d | %d | %s |", name, calls, calls-int(l.maybe+l.refused), p999.Round(10*time.Microsecond), l.admitted, charged, l.maybe, strings.Join(kinds, ", "))
	if n := l.errors["a refusal without need"]; n > 0 {
		t.Errorf("%s: %d calls were refused", name, n)
	}
	// Gross, for slow machines: what hangs would hang for seconds.
	if worst := l.late[calls-1]; worst > 1500*time.Millisecond {
		t.Errorf("%s: a call came back %s after its deadline", name, worst)
	}
	if keeps && charged < l.admitted {
		t.Errorf("%s: %d were admitted, %d charged", name, l.admitted, charged)
	}
	if charged > l.admitted+l.maybe {
		t.Errorf("%s: %d charged, but only %d admitted and %d in doubt: some were charged twice", name, charged, l.admitted, l.maybe)
	}
}

// recovers wants callers to succeed again soon after trouble is over.
func (l *load) recovers(t *testing.T, name string) {
	t.Helper()
	over := time.Now()
	for {
		l.mu.Lock()
		last := l.last
		l.mu.Unlock()
		if last.After(over) {
			t.Logf("%s: recovered after %s", name, last.Sub(over).Round(time.Millisecond))
			return
		}
		if time.Since(over) > 5*time.Second {
			t.Errorf("%s: no call has succeeded in 5 s after it was over", name)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// settles wants the goroutines of before back, soon.
func settles(t *testing.T, before int) {
	t.Helper()
	if !await.So(func() bool {
		now := runtime.NumGoroutine()
		return now <= before || brief() && now-delayed() <= before
	}) {
		b := make([]byte, 1<<16)
		t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
	}
}

// delayed is how many goroutines wait, for 5 s each, before rueidis closes connections to
// nodes that have left its topology, or that a slot has left. The Store has closed these connections before.
func delayed() (n int) {
	all := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(stack, "time.Sleep(") && strings.Contains(stack, "rueidis.(*clusterClient).") {
			n++
		}
	}
	return n
}

// during runs a load through a store at an address while trouble lasts, and takes
// its account. keeps tells that the trouble loses no counts.
func during(t *testing.T, name, address, direct string, patient time.Duration, keeps bool, trouble func()) {
	t.Helper()
	for _, s := range []string{address, direct} {
		warm, err := redislimit.Connect(t.Context(), s, redislimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		warm.Close()
	}
	time.Sleep(20 * time.Millisecond)
	before := runtime.NumGoroutine()
	s, err := redislimit.Connect(t.Context(), address, redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := redislimit.Connect(t.Context(), direct, redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := start(s, 16, patient, nil)
	l.recovers(t, name+", before")
	trouble()
	l.recovers(t, name)
	l.account(t, name, d, keeps)
	s.Close()
	d.Close()
	settles(t, before)
}

// spell is how long each trouble lasts.
func spell() time.Duration {
	if brief() {
		return 400 * time.Millisecond
	}
	return 3 * time.Second
}

// brief tells whether faults last just long enough to show what goes wrong; with
// STINT_FAULTS they last long enough to measure, as in make chaos.
func brief() bool { return testing.Short() || os.Getenv("STINT_FAULTS") == "" }
