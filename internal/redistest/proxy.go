package redistest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Toxic is what a Proxy does to its traffic. The zero Toxic does nothing.
type Toxic struct {
	Latency   time.Duration // delay of each piece of a reply
	Jitter    time.Duration // random change of Latency, up or down
	Bandwidth int           // bytes a second, each way
	Cut       int           // a connection is closed after this many bytes of replies, also within one
	SlowClose time.Duration // delay until a side learns that the other has closed
	Stall     bool          // nothing passes, and nothing is closed
	Deafen    bool          // subscribers receive nothing any more, and nothing is closed
	Refuse    bool          // new connections are closed at once
	// Lie changes a piece of a reply.
	Lie func(piece []byte) []byte
}

// Proxy is between a client and a server, on loopback. Its toxics affect existing connections as
// well as new ones.
type Proxy struct {
	Addr string

	listener net.Listener
	open     sync.WaitGroup
	asked    atomic.Int64

	mu      sync.Mutex
	target  string
	toxic   Toxic
	changed chan struct{} // closed when toxic changes
	links   map[*link]bool
	done    bool
}

// link is a connection through the Proxy.
type link struct {
	client, server *net.TCPConn
	subscribed     atomic.Bool
}

// StartProxy starts a Proxy in front of an address; it ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, changed: make(chan struct{}), links: map[*link]bool{}}
	p.open.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is the Proxy's address for redislimit.Open.
func (p *Proxy) URL() string { return "redis://" + p.Addr }

// Set changes the Proxy's Toxic from now on.
func (p *Proxy) Set(x Toxic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toxic = x
	close(p.changed)
	p.changed = make(chan struct{})
}

// Point leads new connections elsewhere, as if the address now stood for another server.
func (p *Proxy) Point(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Asked is how many bytes clients have sent, plus one for each connection.
func (p *Proxy) Asked() int64 { return p.asked.Load() }

// Reset ends all connections with a TCP reset, to both sides.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		_, _ = l.client.SetLinger(0), l.server.SetLinger(0)
		_, _ = l.client.Close(), l.server.Close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Set(Toxic{})
	p.Reset()
	p.open.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		client := c.(*net.TCPConn)
		p.asked.Add(1)
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		s, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.SetLinger(0)
			_ = client.Close()
			continue
		}
		l := &link{client: client, server: s.(*net.TCPConn)}
		p.mu.Lock()
		if p.done || p.toxic.Refuse {
			_, _ = l.client.Close(), l.server.Close()
		} else {
			p.links[l] = true
			p.open.Go(func() { p.serve(l) })
		}
		p.mu.Unlock()
	}
}

// serve passes data both ways until both sides are closed.
func (p *Proxy) serve(l *link) {
	var both sync.WaitGroup
	both.Go(func() { p.pass(l, l.client, l.server, false) })
	both.Go(func() { p.pass(l, l.server, l.client, true) })
	both.Wait()
	_, _ = l.client.Close(), l.server.Close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

type piece struct {
	bytes []byte
	due   time.Time
}

// pass passes data one way. Delays do not add up: many pieces are under way at once.
func (p *Proxy) pass(l *link, from, to *net.TCPConn, replies bool) {
	line := make(chan piece, 4096)
	var writer sync.WaitGroup
	writer.Go(func() { p.write(l, to, line, replies) })
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if n > 0 {
			if !replies {
				p.asked.Add(int64(n))
				if bytes.Contains(b[:n], []byte("SUBSCRIBE\r\n")) {
					l.subscribed.Store(true)
				}
			}
			x, _ := p.now()
			late := time.Duration(0)
			if replies {
				late = x.Latency
				if x.Jitter > 0 {
					late = max(0, late+rand.N(2*x.Jitter)-x.Jitter)
				}
			}
			line <- piece{b[:n], time.Now().Add(late)}
		}
		if err != nil {
			break
		}
	}
	close(line)
	writer.Wait()
}

func (p *Proxy) now() (Toxic, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.toxic, p.changed
}

func (p *Proxy) write(l *link, to *net.TCPConn, line <-chan piece, replies bool) {
	written := 0
	var failed error
	for a := range line {
		if failed != nil {
			continue // drain, so that the reader ends
		}
		time.Sleep(time.Until(a.due))
		x := p.passable(l)
		if replies && x.Lie != nil {
			a.bytes = x.Lie(a.bytes)
		}
		if replies && x.Cut > 0 && written+len(a.bytes) >= x.Cut {
			_, _ = to.Write(a.bytes[:max(0, x.Cut-written)])
			_, _ = l.client.Close(), l.server.Close()
			failed = io.ErrClosedPipe
			continue
		}
		written += len(a.bytes)
		failed = p.slowly(to, a.bytes)
		if failed != nil {
			_, _ = l.client.Close(), l.server.Close()
		}
	}
	x, changed := p.now()
	if x.SlowClose > 0 {
		select {
		case <-time.After(x.SlowClose):
		case <-changed:
		}
	}
	_ = to.CloseWrite()
}

func (p *Proxy) passable(l *link) Toxic {
	for {
		x, changed := p.now()
		if !x.Stall && !(x.Deafen && l.subscribed.Load()) {
			return x
		}
		<-changed
	}
}

// slowly writes at the current bandwidth.
func (p *Proxy) slowly(to *net.TCPConn, b []byte) error {
	for len(b) > 0 {
		x, changed := p.now()
		n := len(b)
		if x.Bandwidth > 0 {
			n = min(n, max(1, x.Bandwidth/50))
		}
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
		if x.Bandwidth > 0 {
			select {
			case <-time.After(time.Duration(n) * time.Second / time.Duration(x.Bandwidth)):
			case <-changed:
			}
		}
	}
	return nil
}
