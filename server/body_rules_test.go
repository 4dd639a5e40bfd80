package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
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
	t.Run("refuse", func(t *testing.T) { bodyPasses(t, byBody, false) })
	t.Run("default", func(t *testing.T) { bodyPasses(t, byBody+"    unreadable_body: default\n", true) })
}

func bodyPasses(t *testing.T, file string, lenient bool) {
	var m stint.Memory
	g := start(t, newServer(t, file, over(&m), everythingTo(upstream(t, mirrored))))
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
				if !lenient && body != "" && (!json.Valid([]byte(body)) || len(body) > 1<<20) {
					if resp.StatusCode != 400 {
						t.Errorf("%.20q as %s: %s", body, kind, resp.Status)
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

// What a request costs is read in its body, whatever its type says, because upstreams differ in which
// types they look at. What is no JSON in UTF-8 takes the rule's road.
func TestCostOfBodies(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, `{"max_tokens": 100}`)
	z.Close()
	wide := func(order binary.AppendByteOrder, text string) string {
		var b []byte
		for _, c := range utf16.Encode([]rune("\ufeff" + text)) {
			b = order.AppendUint16(b, c)
		}
		return string(b)
	}
	const unreadable = -1
	for _, c := range []struct {
		body, kind, encoding string
		want                 int64 // 0: 400
	}{
		{`{"max_tokens": 100}`, "application/json", "", 100},
		{`{"max_tokens": 100}`, "application/json; charset=UTF-8", "", 100},
		{`{"max_tokens": 100}`, "application/json", "identity", 100},
		{"\n {\"max_tokens\": 100}", "application/x-www-form-urlencoded", "", 100},
		{"\ufeff{\"max_tokens\": 100}", "application/json", "", 100},
		{`{"max_tokens": 100}`, "", "", 100},
		{`{"max_tokens": 100}`, "image/png", "", 100},
		{`{"max_tokens": 100}`, "application/grpc", "", 100},
		{`{"max_tokens": 100}`, "multipart/form-data; boundary=x", "", 100},
		{``, "application/json", "", 7},
		{``, "image/png", "gzip", 7},
		{`[1]`, "application/json", "", 7},
		{`"text"`, "application/json", "", 7},
		{`{"max_tokens": 100, "max_tokens": 1}`, "application/json", "", 0},
		{`{"max_tokens": 100, "MAX_TOKENS": 1}`, "application/json", "", 0},
		{`{"Max_Tokens": 100}`, "application/json", "", 0},
		{"{\"max_token\u017f\": 100}", "application/json", "", 0},
		{`{"max_tokens": -1}`, "application/json", "", 0},
		{`{"max_tokens": 1e999}`, "application/json", "", 0},
		{`max_tokens=100`, "application/x-www-form-urlencoded", "", unreadable},
		{`{"max_tokens": 100`, "application/json", "", unreadable},
		{`{"max_tokens": 100} `, "application/json; charset=utf-7", "", unreadable},
		{`{"max_tokens": 100} `, "application/json; charset=utf-16; charset=utf-8", "", unreadable},
		{wide(binary.LittleEndian, `{"max_tokens": 100}`), "application/json", "", unreadable},
		{wide(binary.BigEndian, `{"max_tokens": 100}`), "application/json", "", unreadable},
		{"\xff", "application/json", "", unreadable},
		{`{"max_tokens": 100, "pad": "` + strings.Repeat("x", 1<<20) + `"}`, "application/json", "", unreadable},
		{zipped.String(), "application/json", "gzip", unreadable},
		{zipped.String(), "text/plain", "gzip", unreadable},
		{`{"max_tokens": 100}`, "text/plain", "br", unreadable},
	} {
		for road, cost := range map[string]int64{"": 0, "unreadable_body: refuse": 0, "unreadable_body: default": 7, "unreadable_body: 5000": 5000} {
			want := c.want
			if want == unreadable {
				want = cost
			}
			for _, chunked := range []bool{false, true} {
				if got := costOfBody(t, byBody+"    "+road+"\n", c.body, c.kind, c.encoding, chunked); got != want {
					t.Errorf("%.40q as %s %s, chunked %t, %s: costs %d, want %d", c.body, c.kind, c.encoding, chunked, road, got, want)
				}
			}
		}
	}
}

// costOfBody is what a request is charged whose body this is; 0: it is refused as malformed.
func costOfBody(t *testing.T, file, body, kind, encoding string, chunked bool) int64 {
	t.Helper()
	var m stint.Memory
	var held int64
	var s *server.Server
	s = newServer(t, file, over(&m), everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) { held = heldBy(t, s, &m) })))
	var from io.Reader = strings.NewReader(body)
	if chunked {
		from = struct{ io.Reader }{from}
	}
	r := httptest.NewRequest("POST", "/v1", from)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	w := httptest.NewRecorder()
	s.Gateway().ServeHTTP(w, r)
	if w.Code != 200 && w.Code != 400 {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	return held
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

// Requests whose rules do not look at bodies are not read before they pass on: the upstream may
// speak first.
func TestBodiesThatNoRuleReads(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		_, _ = io.Copy(w, r.Body)
	})
	g := start(t, newServer(t, byBody, everythingTo(up)))
	in, out := io.Pipe()
	r, _ := http.NewRequestWithContext(context.Background(), "POST", "http://"+g.gateway+"/other", in)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r) // returns before the body is sent
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Fprint(out, "hello")
	out.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != "hello" {
		t.Errorf("%q", got)
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
