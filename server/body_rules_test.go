package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
)

// byBody counts by what is in the body, and costs what it says.
const byBody = `rules:
  - name: tokens
    match: request.path == "/v1"
    key: '"all"'
    cost: 'has(body.max_tokens) ? int(body.max_tokens) : 7'
    limits: [1000000 per 1h fixed_window hold]
`

// mirrored answers with the request's body and its length, and trailers.
func mirrored(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "Sum")
	w.Header().Set("Length", fmt.Sprint(r.ContentLength))
	body, _ := io.ReadAll(r.Body)
	_, _ = w.Write(body)
	w.Header().Set("Sum", fmt.Sprint(len(body), r.Trailer.Get("Late")))
}

// A body that rules read passes on byte by byte, with its length and its trailers.
func TestBodyPassesUnchanged(t *testing.T) {
	var m stint.Memory
	g := start(t, newServer(t, byBody, over(&m), everythingTo(upstream(t, mirrored))))
	long := `{"pad": "` + strings.Repeat("x", 900<<10) + `", "max_tokens": 5}`
	for _, body := range []string{`{"max_tokens": 5}`, " \n{\"max_tokens\":\t5}  ", long, `not JSON`, `{"max_tokens"`, strings.Repeat("y", 3<<20), ""} {
		for _, kind := range []string{"text/plain", "application/json", "multipart/form-data; boundary=x"} {
			for _, chunked := range []bool{false, true} {
				r, _ := http.NewRequest("POST", "http://"+g.gateway+"/v1", strings.NewReader(body))
				r.Header.Set("Content-Type", kind)
				if chunked {
					r.ContentLength, r.Trailer = -1, http.Header{"Late": {"trailer"}}
				}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if kind == "application/json" && (!json.Valid([]byte(body)) && body != "" || len(body) > 1<<20) {
					if resp.StatusCode != 400 {
						t.Errorf("%.20q as JSON: %s", body, resp.Status)
					}
					continue
				}
				if kind == "text/plain" && strings.HasPrefix(body, `{"max_tokens"`) && !strings.HasSuffix(body, "}") {
					if resp.StatusCode != 400 {
						t.Errorf("%.20q: %s", body, resp.Status)
					}
					continue
				}
				wantSum, wantLength := fmt.Sprint(len(body)), fmt.Sprint(len(body))
				if chunked && body != "" {
					wantSum, wantLength = wantSum+"trailer", "-1"
				}
				if resp.StatusCode != 200 || err != nil || string(got) != body {
					t.Fatalf("%.20q as %s, chunked %t: %s, %d bytes of %d, %v", body, kind, chunked, resp.Status, len(got), len(body), err)
				}
				if sum, length := resp.Trailer.Get("Sum"), resp.Header.Get("Length"); sum != wantSum || length != wantLength {
					t.Errorf("%.20q as %s, chunked %t: sum %q, length %q, want %q and %q", body, kind, chunked, sum, length, wantSum, wantLength)
				}
			}
		}
	}
}

// What a request costs is read in its body, of any type that may be JSON.
func TestCostOfBodies(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	var m stint.Memory
	s := newServer(t, byBody, over(&m), everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) { begun <- true; <-end })))
	g := start(t, s)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, `{"max_tokens": 100}`)
	z.Close()
	for _, c := range []struct {
		body, kind, encoding string
		want                 int64 // 0: 400
	}{
		{`{"max_tokens": 100}`, "application/json", "", 100},
		{`{"max_tokens": 100}`, "application/json; charset=utf-8", "", 100},
		{"\n {\"max_tokens\": 100}", "application/x-www-form-urlencoded", "", 100},
		{`{"max_tokens": 100}`, "", "", 100},
		{`{"max_tokens": 100}`, "multipart/form-data; boundary=x", "", 7},
		{`max_tokens=100`, "application/x-www-form-urlencoded", "", 7},
		{``, "application/json", "", 7},
		{`[1]`, "application/json", "", 7},
		{`{"max_tokens": 100, "max_tokens": 1}`, "application/json", "", 0},
		{`{"max_tokens": 100, "MAX_TOKENS": 1}`, "application/json", "", 0},
		{`{"max_tokens": -1}`, "application/json", "", 0},
		{zipped.String(), "application/json", "gzip", 0},
		{zipped.String(), "text/plain", "gzip", 7},
	} {
		done := make(chan int, 1)
		go func() {
			r, _ := http.NewRequest("POST", "http://"+g.gateway+"/v1", strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.kind)
			if c.encoding != "" {
				r.Header.Set("Content-Encoding", c.encoding)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				close(done)
				return
			}
			resp.Body.Close()
			done <- resp.StatusCode
		}()
		select {
		case status := <-done:
			if status != 400 || c.want != 0 {
				t.Errorf("%q as %s: %d, want cost %d", c.body, c.kind, status, c.want)
			}
			continue
		case <-begun:
		}
		if got := heldBy(t, s, &m); got != c.want {
			t.Errorf("%q as %s costs %d, want %d", c.body, c.kind, got, c.want)
		}
		end <- true
		<-done
	}
}

// A client that sends its body slowly is cut off while the body is read for rules, as it is when
// the body is sent to an upstream; and what it was counted for is not held.
func TestStalledBodyForRules(t *testing.T) {
	var m stint.Memory
	s := newServer(t, byBody, over(&m), patient(50*time.Millisecond), everythingTo(upstream(t, mirrored)))
	g := start(t, s)
	c := dial(t, g.gateway)
	defer c.Close()
	fmt.Fprint(c, "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{")
	if got := c.answer(t, "POST"); got.StatusCode != 408 || !got.Close {
		t.Errorf("%s, close %t", got.Status, got.Close)
	}
	c = dial(t, g.gateway)
	defer c.Close()
	fmt.Fprint(c, "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	if got := c.answer(t, "POST"); got.StatusCode != 400 || !got.Close {
		t.Errorf("%s, close %t", got.Status, got.Close)
	}
	if got := heldBy(t, s, &m); got != 0 {
		t.Errorf("%d held", got)
	}
}

// Requests whose rules do not look at bodies are not read before they pass on, and neither are
// those of gRPC, in which the upstream may speak first.
func TestBodiesThatNoRuleReads(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		_, _ = io.Copy(w, r.Body)
	})
	g := start(t, newServer(t, byBody, everythingTo(up)))
	for _, target := range []string{"/other", "/v1"} {
		in, out := io.Pipe()
		r, _ := http.NewRequestWithContext(context.Background(), "POST", "http://"+g.gateway+target, in)
		r.Header.Set("Content-Type", "application/json")
		if target == "/v1" {
			r.Header.Set("Content-Type", "application/grpc")
		}
		resp, err := http.DefaultClient.Do(r) // returns before the body is sent
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(out, "hello")
		out.Close()
		if got, _ := io.ReadAll(resp.Body); string(got) != "hello" {
			t.Errorf("%s: %q", target, got)
		}
		resp.Body.Close()
	}
}

// The memory of bodies is free again when a request ends, also if it is refused and nobody reads on.
func TestBodiesAreFreed(t *testing.T) {
	s := newServer(t, `rules: [{name: models, match: body.model != "x", key: body.model, limits: [1 per 24h]}]`,
		bounded(config.Instance{InFlight: 10, Bytes: 64 << 20}), everythingTo(upstream(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })))
	for i, want := range []int{200, 429, 429, 400} {
		body := `{"model":"large","text":"` + strings.Repeat("x", 100<<10) + `"}`
		if want == 400 {
			body = body[:1000]
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		s.Gateway().ServeHTTP(w, r)
		if n := s.Holds()["bytes"]; w.Code != want || n != 0 {
			t.Errorf("request %d: %d, want %d; %d bytes are still taken", i, w.Code, want, n)
		}
	}
}
