package chaos

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/fleet"
)

// witness tells when this machine was too busy for a store that is there to answer
// in time. It sleeps, once for each instance, and it asks the servers, over the way
// that the instances go, by connections on which nothing of Stint's is at work; so
// what is wrong with Stint makes it no later.
type witness struct {
	takes   time.Duration // of a round trip, where nothing is late
	ends    []func()
	running sync.WaitGroup

	mu    sync.Mutex
	spans []span
}

// span is from when to when something went on.
type span struct {
	from, to time.Time
	why      error
}

func (s span) String() string {
	return milliseconds(s.to.Sub(s.from)) + " from " + s.from.Format("05.0000") + " on"
}

// startWitness starts one that asks the servers at these addresses, where answers are
// so long on their way.
func startWitness(t *testing.T, takes time.Duration, addresses ...string) *witness {
	t.Helper()
	w := &witness{takes: takes}
	for range instances {
		stop := make(chan struct{})
		w.ends = append(w.ends, func() { close(stop) })
		w.running.Go(func() { w.sleep(stop) })
		for _, address := range addresses {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			w.ends = append(w.ends, func() { c.Close() })
			w.running.Go(func() { w.ask(c) })
		}
	}
	return w
}

func (w *witness) sleep(stop chan struct{}) {
	for {
		from := time.Now()
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		w.saw(span{from: from, to: time.Now()}, time.Millisecond)
	}
}

func (w *witness) ask(c net.Conn) {
	r := bufio.NewReader(c)
	for ; ; time.Sleep(time.Millisecond) {
		from := time.Now()
		_, err := c.Write([]byte("PING\r\n"))
		if err == nil {
			_, err = r.ReadString('\n')
		}
		// One that the end cuts off was late, too: calls may have failed of what it waits for.
		w.saw(span{from: from, to: time.Now()}, w.takes)
		if err != nil {
			return
		}
	}
}

// saw notes what was late by half of the time that an answer has to spare, or more.
// The other half is the margin: one who is asked at another instant, on another
// connection, and by less code, is not late by as much.
func (w *witness) saw(s span, takes time.Duration) {
	if s.to.Sub(s.from)-takes < (fleet.DefaultDeadline-w.takes)/2 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spans = append(w.spans, s)
}

func (w *witness) end() {
	for _, end := range w.ends {
		end()
	}
	w.running.Wait()
}

// around is how long before and after something was late a call may be so, too: it needs
// the processor several times, and the witness sees each of these at most.
const around = 4 * fleet.DefaultDeadline

// explains tells whether something was late around the time that s went on.
func (w *witness) explains(s span) bool {
	return slices.ContainsFunc(w.spans, func(late span) bool {
		return late.from.Before(s.to.Add(around)) && s.from.Before(late.to.Add(around))
	})
}

// explain wants of each call that failed that the machine was too busy to answer it
// in time, but for those that a fault may cost, and in the short form for 2 % of all. It
// wants nothing else decided without the store but while a breaker was open which such
// calls had opened.
func (w *witness) explain(t *testing.T, f *fault, l *load) {
	t.Helper()
	failed := 0
	var unexplained []span
	for n, i := range l.fleet {
		failed += len(i.failed)
		for _, call := range i.failed {
			var late net.Error
			if !errors.As(call.why, &late) || !late.Timeout() {
				t.Errorf("the store was there, and instance %d had from it: %v", n, call.why)
			} else if !w.explains(call) {
				unexplained = append(unexplained, call)
			}
		}
	}
	missed := f.missed
	if !long() { // beside other tests, the machine can be late where the witness is not
		missed += 2
	}
	if len(unexplained)*100 > missed*len(l.took) {
		t.Errorf("the store was there and the machine not late, and these calls were: %v", unexplained)
	}
	if l.local > failed && !l.opened() {
		t.Errorf("%d were decided without the store, which failed %d times and was asked all the while", l.local, failed)
	}
	t.Logf("%d calls failed, %d of them for no reason seen; the machine was late %d times", failed, len(unexplained), len(w.spans))
}

// A server that stands still at the end, and so answers nobody any more, was late.
func TestWitnessOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = theirs.Read(make([]byte, 64)) }()
		w := &witness{ends: []func(){func() { ours.Close() }}}
		w.running.Go(func() { w.ask(ours) })
		time.Sleep(fleet.DefaultDeadline)
		w.end()
		if now := time.Now(); !w.explains(span{from: now.Add(-fleet.DefaultDeadline), to: now}) {
			t.Errorf("nothing was late: %v", w.spans)
		}
	})
}
