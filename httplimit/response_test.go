package httplimit_test

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// ended is what OnEnd is told.
type ended struct {
	status     int
	bytes      int64
	total      any
	unreadable bool
}

var totalTokens = []string{"usage", "total_tokens"}

// tellsEnds serves h, and sends each end of a request to the channel.
func tellsEnds(t *testing.T, h http.HandlerFunc) (*httptest.Server, <-chan ended) {
	ends := make(chan ended, 10)
	a := httplimit.Answer{Unlimited: true, Usage: [][]string{totalTokens}, OnEnd: func(ctx context.Context, r *httplimit.Response) {
		if _, ok := ctx.Deadline(); !ok || ctx.Err() != nil {
			t.Error("the context has ended, or will not")
		}
		total, _ := r.JSON(totalTokens)
		ends <- ended{r.Status, r.Bytes, total, r.Unreadable() != nil}
	}}
	s := httptest.NewUnstartedServer(httplimit.Middleware{Decide: always(a, nil)}.Wrap(h))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s, ends
}

// A request ends when its handler returns, and what passed is known then, in HTTP/1 and HTTP/2.
func TestOnEnd(t *testing.T) {
	const events = "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":42}}\n\ndata: [DONE]\n\n"
	for _, c := range []struct {
		about   string
		handler http.HandlerFunc
		want    ended
	}{
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, ended{200, 0, nil, false}},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, ended{204, 0, nil, false}},
		{"text after early hints", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); fmt.Fprint(w, "hello") }, ended{200, 5, nil, true}},
		{"JSON", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(201)
			fmt.Fprint(w, `{"usage":{"total_tokens":7}}`)
		}, ended{201, 28, int64(7), false}},
		{"JSON that is copied", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader(`{"usage":{"total_tokens":8}}`), 100))
		}, ended{200, 28, int64(8), false}},
		{"events", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for part := range strings.SplitAfterSeq(events, "s") {
				fmt.Fprint(w, part)
				w.(http.Flusher).Flush()
			}
		}, ended{200, int64(len(events)), int64(42), false}},
		{"zipped events", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "gzip")
			z, _ := gzip.NewWriterLevel(w, gzip.NoCompression)
			fmt.Fprint(z, events)
			z.Close()
		}, ended{200, 101, int64(42), false}},
		{"lines in two encodings, without a type", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header()["Content-Encoding"] = []string{"deflate", "GZIP"}
			z, _ := gzip.NewWriterLevel(w, gzip.NoCompression)
			f, _ := flate.NewWriter(z, flate.NoCompression)
			fmt.Fprint(f, "{}\n{\"usage\":{\"total_tokens\":42}}\n")
			f.Close()
			z.Close()
		}, ended{200, 71, int64(42), false}},
		{"a panic before the header", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ended{0, 0, nil, false}},
		{"a panic amid events", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, events[:len(events)-14])
			panic(http.ErrAbortHandler)
		}, ended{200, int64(len(events)) - 14, int64(42), false}},
	} {
		s, ends := tellsEnds(t, c.handler)
		h2 := &http.Transport{Protocols: new(http.Protocols)}
		h2.Protocols.SetUnencryptedHTTP2(true)
		defer h2.CloseIdleConnections()
		for _, transport := range []http.RoundTripper{http.DefaultTransport, h2} {
			r, _ := http.NewRequest("GET", s.URL, nil)
			r.Header.Set("Accept-Encoding", "identity")
			if resp, err := transport.RoundTrip(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if got := <-ends; !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %+v, want %+v", c.about, got, c.want)
			}
		}
		if len(ends) > 0 {
			t.Errorf("%s: ended twice: %+v", c.about, <-ends)
		}
	}
}

// Trailers are known by their names, announced or not, and come after the headers of the same.
func TestOnEndTrailers(t *testing.T) {
	var got http.Header
	a := httplimit.Answer{Unlimited: true, OnEnd: func(_ context.Context, r *httplimit.Response) { got = r.Header }}
	httplimit.Middleware{Decide: always(a, nil), Dialect: httplimit.NoHeaders}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain")
		h.Set("X-Cost", "1")
		h.Set("Trailer", "X-Announced")
		fmt.Fprint(w, "hello")
		h.Set("X-Announced", "1")
		h.Set(http.TrailerPrefix+"X-Cost", "2")
		h.Set(http.TrailerPrefix+"x-late", "3")
	})).ServeHTTP(httptest.NewRecorder(), get())
	if want := (http.Header{"Content-Type": {"text/plain"}, "Trailer": {"X-Announced"}, "X-Announced": {"1"}, "X-Cost": {"1", "2"}, "X-Late": {"3"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A client that hangs up ends its request with what it was sent until then.
func TestOnEndOfAHangUp(t *testing.T) {
	s, ends := tellsEnds(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"usage\":{\"total_tokens\":3}}\n\ndata: {\"usage\":{\"total_tokens\":4")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := bufio.NewReader(conn).ReadString('4'); err != nil {
		t.Fatal(err)
	}
	if len(ends) > 0 {
		t.Error("it ended while the client was there")
	}
	conn.Close()
	if got, want := <-ends, (ended{200, 68, int64(3), false}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The request of a hijacked connection goes on when its handler has returned, until the
// connection is closed.
func TestOnEndOfAHijackedConnection(t *testing.T) {
	conns := make(chan net.Conn, 1)
	s, ends := tellsEnds(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(buffer, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		buffer.Flush()
		conns <- conn
	})
	returned, inner := make(chan bool, 1), s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r)
		returned <- true
	})
	client, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	conn := <-conns
	fmt.Fprint(conn, "hello")
	got := make([]byte, 36+5)
	if _, err := io.ReadFull(client, got); err != nil || string(got[36:]) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	<-returned
	if len(ends) > 0 {
		t.Error("it ended with its handler")
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	conn.Close()
	conn.Close()
	if got, want := <-ends, (ended{101, 41, nil, false}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(ends) > 0 {
		t.Error("it ended twice")
	}
}

// A hijacked connection may be closed while another goroutine writes to it, as a ReverseProxy does
// after an upgrade. The end is final: what is written later does not change what OnEnd gets.
func TestOnEndDuringAWrite(t *testing.T) {
	writers := make(chan *sync.WaitGroup, 1)
	s, ends := tellsEnds(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		var writing sync.WaitGroup
		begun := make(chan bool)
		writing.Go(func() {
			_, err := fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			close(begun)
			for err == nil {
				_, err = conn.Write(make([]byte, 1000))
			}
		})
		<-begun
		conn.Close()
		writers <- &writing
	})
	for range 20 {
		client, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		(<-writers).Wait()
		if got := <-ends; got.status != 101 || got.bytes < 36 {
			t.Errorf("%+v", got)
		}
		client.Close()
	}
	if len(ends) > 0 {
		t.Error("a request ended twice")
	}
}

// Requests that do not pass have no end; what they took is refunded.
func TestOnEndOfRefusals(t *testing.T) {
	never := func(context.Context, *httplimit.Response) { t.Error("a refused request ended") }
	serve(httplimit.Middleware{Decide: always(httplimit.Answer{OnEnd: never}, nil)}, get())
	serve(httplimit.Middleware{Decide: always(httplimit.Answer{Blocked: true, Unlimited: true, OnEnd: never}, nil)}, get())
	serve(httplimit.Middleware{Decide: always(httplimit.Answer{OnEnd: never}, stint.ErrFull)}, get())
}
