// Package http2conn bounds what an HTTP/2 client may do with a connection, below any server and above TLS.
package http2conn

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// An HTTP/2 client may send spareFrames without content, such as a PING or empty DATA, and sparePerSecond
// more each second. Each request and each frame of a response earns it framesEarned more, up to mostSpare.
// That is far more than clients need for acknowledgements.
const (
	spareFrames    = 1_000
	sparePerSecond = 100
	framesEarned   = 10
	mostSpare      = 10_000
)

// A client may reset mostResets streams, and resetsPerSecond more each second. Each answer that begins earns
// it one more. So a connection is ended only if most of its streams are reset before their answer begins; a
// client with a short timeout and a slow server may go on for long.
const (
	mostResets      = 10_000
	resetsPerSecond = 1_000
)

// Bounds has the header timeout, and functions that report why a connection was ended.
type Bounds struct {
	HeaderTimeout time.Duration // for a client to send the headers of a request
	// The matching one is called when a connection is ended: its client did not end a request's headers in
	// time, sent too many useless frames, or reset too many streams.
	SlowHeaders, Frames, Resets func()
}

// Preface precedes the first frame of a client.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Conn is an HTTP/2 connection whose frames are counted. Watch makes it.
type Conn struct {
	net.Conn
	bounds Bounds
	read   io.Reader

	// The state of reading. One goroutine at a time uses these.
	preface string // the part of it that has not arrived
	passOn  bool   // the preface
	in      frames
	block   bool      // headers have begun and not ended
	blocks  int       // number of header blocks that began
	timed   int       // the block that the timer is for
	spare   int64     // frames without content that may still come
	resets  int64     // resets that may still come
	refills time.Time // when spare and resets were last refilled by time

	out      frames       // the frames written; one goroutine at a time uses it
	earned   atomic.Int64 // for spare, by frames written
	answered atomic.Int64 // headers that were written

	timer struct {
		sync.Mutex
		*time.Timer
	}
}

// Watch returns c watched, for a server that reads the preface itself. Close must be called when the
// connection has ended; it also ends the watching.
func (b Bounds) Watch(c net.Conn) *Conn {
	w := b.AfterPreface(c, Preface)
	w.passOn = true
	w.read = wire{w} // grpc-go buffers
	return w
}

// AfterPreface is Watch for a server that must not get the preface. preface is the part of Preface that has
// not arrived.
func (b Bounds) AfterPreface(c net.Conn, preface string) *Conn {
	w := &Conn{Conn: c, bounds: b, preface: preface, spare: spareFrames, resets: mostResets, refills: time.Now()}
	w.read = bufio.NewReaderSize(wire{w}, 4<<10) // net/http reads frames in pieces of 9 bytes and the rest
	return w
}

// Read is for net.Conn.
func (w *Conn) Read(b []byte) (int, error) { return w.read.Read(b) }

// Close is for net.Conn.
func (w *Conn) Close() error {
	w.stop()
	return w.Conn.Close()
}

// wire reads from the connection, and counts the frames read.
type wire struct{ w *Conn }

func (r wire) Read(b []byte) (int, error) {
	n, err := r.w.Conn.Read(b)
	k := min(n, len(r.w.preface))
	if k > 0 {
		if string(b[:k]) != r.w.preface[:k] {
			return 0, errPreface
		}
		r.w.preface = r.w.preface[k:]
	}
	if !r.w.came(b[k:n]) {
		return 0, errFrames
	}
	if k > 0 && !r.w.passOn {
		n = copy(b, b[k:n])
	}
	return n, err
}

var (
	errFrames  = errors.New("too many frames without effect, or too many resets")
	errPreface = errors.New("not the HTTP/2 preface")
)

// came counts the frames in b, and reports whether the connection may go on.
func (w *Conn) came(b []byte) bool {
	w.in.read(b, w.frameCame, w.frameEnded)
	w.time()
	w.spare = min(w.spare+w.earned.Swap(0), mostSpare)
	w.resets = min(w.resets+w.answered.Swap(0), mostResets)
	if w.spare >= 0 && w.resets >= 0 {
		return true
	}
	now := time.Now()
	since := min(now.Sub(w.refills), time.Minute)
	w.spare += int64(since * sparePerSecond / time.Second)
	w.resets += int64(since * resetsPerSecond / time.Second)
	w.refills = now
	switch {
	case w.spare < 0:
		w.bounds.Frames()
	case w.resets < 0:
		w.bounds.Resets()
	}
	return w.spare >= 0 && w.resets >= 0
}

// Write is for net.Conn.
func (w *Conn) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	var earned, answered int64
	w.out.read(b[:n], func(f *frames) {
		switch f.head[3] {
		case frameData:
			earned += framesEarned
		case frameHeaders:
			answered++
		}
	}, func(f *frames) {
		// Take back what the headers of a malformed request earned. A request that was answered before its
		// body arrived is reset without an error.
		if f.head[3] == frameReset && f.last != noError {
			earned -= framesEarned + 1
		}
	})
	if earned != 0 {
		w.earned.Add(earned)
	}
	if answered != 0 {
		w.answered.Add(answered)
	}
	return n, err
}

func (w *Conn) frameCame(f *frames) {
	padded := f.has(flagPadded)
	switch f.head[3] {
	case frameData:
		if f.left > 0 && !(padded && f.left <= 256) { // all of it may be padding
			return
		}
	case frameHeaders:
		w.block = true
		w.blocks++
		least := 3 // method, scheme and path
		if f.has(flagPriority) {
			least += 5
		}
		if padded {
			least += 256
		}
		if f.left >= least {
			w.spare += framesEarned
			return
		}
	case frameReset:
		w.resets--
	}
	w.spare--
}

func (w *Conn) frameEnded(f *frames) {
	switch f.head[3] {
	case frameHeaders, frameContinuation:
		if f.has(flagEndHeaders) {
			w.block = false
		}
	}
}

// time starts the timer for headers that have begun and not ended. That is rare: most arrive in one piece.
func (w *Conn) time() {
	switch {
	case w.block && w.timed != w.blocks:
		w.stop()
		w.timed = w.blocks
		w.timer.Lock()
		defer w.timer.Unlock()
		w.timer.Timer = time.AfterFunc(w.bounds.HeaderTimeout, func() {
			w.bounds.SlowHeaders()
			_ = w.Close()
		})
	case !w.block && w.timed != 0:
		w.stop()
		w.timed = 0
	}
}

func (w *Conn) stop() {
	w.timer.Lock()
	defer w.timer.Unlock()
	if w.timer.Timer != nil {
		w.timer.Stop()
	}
}

// Kinds of frames, and their flags; see RFC 9113.
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameContinuation = 9

	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 32

	noError = 0 // of a reset, whose payload is its code: all are below 256
)

// frames finds the frames in a stream of bytes.
type frames struct {
	head [9]byte
	have int  // bytes of head
	left int  // bytes of the frame, after the head
	last byte // of those that have been read
}

func (f *frames) has(flag byte) bool { return f.head[4]&flag != 0 }

// read reads on with b. It calls began when the head of a frame is complete, and ended when the
// whole frame is.
func (f *frames) read(b []byte, began, ended func(*frames)) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			f.left -= n
			f.last = b[n-1]
			if b = b[n:]; f.left == 0 && f.have == len(f.head) {
				f.have = 0
				ended(f)
			}
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have += n
		if b = b[n:]; f.have < len(f.head) {
			return
		}
		f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		if began(f); f.left == 0 {
			f.have = 0
			ended(f)
		}
	}
}
