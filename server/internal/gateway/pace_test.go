package gateway

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/watch"
)

// A client is cut off in the instant in which it has kept us waiting for patience more
// than its bytes refund, however they are divided.
func TestPace(t *testing.T) {
	const patience = 30 * time.Second
	for _, c := range []struct {
		name  string
		bytes int           // of each read
		after time.Duration // that each takes
		want  time.Duration // until it is cut off; 0: never
	}{
		{"nothing comes", 0, time.Hour, patience},
		{"a byte every 29 s", 1, 29 * time.Second, 30*time.Second + 2*time.Millisecond},
		{"a byte a second", 1, time.Second, 30*time.Second + 60*time.Millisecond},
		{"499 bytes a second", 499, time.Second, 14_501 * time.Second},
		{"500 bytes a second", 500, time.Second, 0},
		{"in bursts", 15_000, 29 * time.Second, 0},
		{"far ahead, then nothing", 100 << 20, 31 * time.Second, patience},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, cut := time.Now(), time.Duration(0)
				p := newPace(patience, func() { cut = time.Since(start) })
				for range 20_000 {
					p.wait()
					time.Sleep(c.after)
					if p.isExpired() {
						break
					}
					p.moved(c.bytes)
					time.Sleep(time.Minute) // an upstream that takes its time
					start = start.Add(time.Minute)
				}
				p.stop()
				if (cut == 0) != (c.want == 0) || cut < c.want-time.Second || cut > c.want+time.Second {
					t.Errorf("cut off after %s, want %s", cut, c.want)
				}
			})
		})
	}
}

// Random waits agree with the definition: left is patience, less the time of
// waiting, plus that of the bytes, and never more than patience.
func TestPaceIsTheModel(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			patience := time.Duration(1+random.IntN(60)) * time.Second
			p := newPace(patience, func() {})
			defer p.stop()
			left := patience
			for step := range 100 {
				bytes, waits := random.IntN(4096), time.Duration(random.Int64N(int64(12*time.Second)))
				p.wait()
				time.Sleep(waits)
				cut := p.isExpired()
				if want := waits > left; cut != want {
					t.Fatalf("seed %d, step %d: cut %t after %s of %s", seed, step, cut, waits, left)
				}
				if cut {
					return
				}
				p.moved(bytes)
				left = min(patience, left-waits+time.Duration(bytes)*2*time.Millisecond)
			}
		})
	}
}

// Nothing is cut after stop.
func TestPaceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(time.Second, func() { t.Error("cut off") })
		p.wait()
		p.stop()
		p.wait()
		time.Sleep(time.Hour)
		p.moved(1)
	})
}

// closedAtEnd is the body of a request of HTTP/1 whose answer begins when its last byte was read: net/http has
// closed it then.
type closedAtEnd struct {
	rest *strings.Reader
	late int // reads after the end
}

func (b *closedAtEnd) Close() error { return nil }

func (b *closedAtEnd) Read(to []byte) (int, error) {
	if b.rest.Len() == 0 {
		b.late++
		return 0, errors.New("http: invalid Read on closed Body")
	}
	return b.rest.Read(to)
}

// A body ends with its last byte, so that an upstream that answers at once is not cut off: of HTTP/1 by its
// length, else by itself.
func TestUploadEndsOnce(t *testing.T) {
	settings := config.Default()
	g := New(&door.Door{Settings: &settings, Watch: watch.New(watch.Options{Log: slog.New(slog.DiscardHandler)})}, Options{})
	for _, known := range []bool{true, false} {
		body := &closedAtEnd{rest: strings.NewReader("some text")}
		r := &http.Request{ProtoMajor: 1, Body: body, ContentLength: -1, URL: new(url.URL)}
		if known {
			r.ContentLength = int64(body.rest.Len())
		}
		x := new(exchange)
		g.keepPace(new(config.Route), x, httptest.NewRecorder(), r)
		got, err := io.ReadAll(r.Body)
		_, again := r.Body.Read(make([]byte, 1))
		if known && (string(got) != "some text" || err != nil || again != io.EOF || body.late > 0 || !x.upload.ended.Load()) {
			t.Errorf("%q, %v, then %v; %d reads after the end, ended: %t", got, err, again, body.late, x.upload.ended.Load())
		}
		if !known && err == nil {
			t.Error("a body without a length has ended before it said so")
		}
	}
}
