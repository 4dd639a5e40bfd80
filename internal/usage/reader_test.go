package usage_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/usage"
)

var paths = [][]string{
	{"usage", "total_tokens"},
	{"usage", "input_tokens"},
	{"message", "usage", "input_tokens"},
	{"usage", "output_tokens"},
	{"usage"},
	{"data", "1", "n"},
}

// read feeds data in parts of random sizes, and returns the values of paths.
func read(t testing.TB, data []byte, contentType, encoding string, seed uint64) ([]any, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	most := 1 + random.IntN(len(data)+1)
	r := usage.New(paths, contentType, encoding)
	feed(t, r, data, most, random)
	return valuesOf(r), r.Err()
}

// feed gives data to r in parts of at most most bytes, and closes it.
func feed(t testing.TB, r *usage.Reader, data []byte, most int, random *rand.Rand) {
	part := make([]byte, most)
	for rest := data; len(rest) > 0; {
		n := copy(part, rest[:min(len(rest), 1+random.IntN(most))])
		if m, err := r.Write(part[:n]); m != n || err != nil {
			t.Fatalf("Write = %d, %v", m, err)
		}
		clear(part) // the Reader may keep nothing of it
		rest = rest[n:]
	}
	r.Close()
}

func valuesOf(r *usage.Reader) []any {
	values := make([]any, len(paths))
	for i, p := range paths {
		values[i], _ = r.Value(p)
	}
	return values
}

const openAI = `data: {"id":"1","choices":[{"delta":{"content":"The \"usage\": {\"total_tokens\": 1} of \\"}}],"usage":null}

data: {"id":"1","choices":[{"delta":{"content":" it"}}],"usage":null}

data: {"id":"1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}

data: [DONE]

`

const anthropic = `event: message_start
data: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,"output_tokens":1}}}

event: ping
data: {"type": "ping"}

: a comment

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},
data: "usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

`

// The wire forms of two providers, with each end of line, in all encodings and however divided.
func TestStreams(t *testing.T) {
	object := func(text string) (v map[string]any) {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		for name, n := range v {
			v[name] = int64(n.(float64))
		}
		return v
	}
	for _, c := range []struct {
		name, kind, body string
		want             []any
	}{
		{"OpenAI", "text/event-stream; charset=utf-8", openAI, []any{int64(21), nil, nil, nil, object(`{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}`), nil}},
		{"Anthropic", "text/event-stream", anthropic, []any{nil, nil, int64(25), int64(15), object(`{"output_tokens":15}`), nil}},
		{"JSON", "application/json", ` {"data": [{"n": 1}, {"n": "two"}], "usage": {"total_tokens": 8, "input_tokens": 5.5}} `,
			[]any{int64(8), 5.5, nil, nil, map[string]any{"total_tokens": int64(8), "input_tokens": 5.5}, "two"}},
		{"lines", "application/x-ndjson", "{\"usage\":{\"total_tokens\":1}}\n{\"usage\":{\"total_tokens\":3}}\n{\"usage\":", []any{int64(3), nil, nil, nil, object(`{"total_tokens":3}`), nil}},
	} {
		for _, eol := range []string{"\n", "\r\n", "\r"} {
			body := []byte(strings.ReplaceAll(c.body, "\n", eol))
			for encoding, zip := range encodings {
				for seed := range uint64(8) {
					got, err := read(t, zip(body), c.kind, encoding, seed)
					if err != nil || !reflect.DeepEqual(got, c.want) {
						t.Fatalf("%s, %q, %s, seed %d: %v, %v, want %v", c.name, eol, encoding, seed, got, err, c.want)
					}
				}
			}
		}
	}
}

// encodings are keyed by Content-Encoding, in some spelling.
var encodings = map[string]func([]byte) []byte{
	"":         func(b []byte) []byte { return b },
	"Identity": func(b []byte) []byte { return b },
	"gzip": func(b []byte) []byte {
		return zipped(b, func(w io.Writer) flusher { return gzip.NewWriter(w) })
	},
	"X-GZIP": func(b []byte) []byte { // of several members
		half := func(b []byte) []byte { return zipped(b, func(w io.Writer) flusher { return gzip.NewWriter(w) }) }
		return append(half(b[:len(b)/2]), half(b[len(b)/2:])...)
	},
	"deflate": func(b []byte) []byte {
		return zipped(b, func(w io.Writer) flusher { return zlib.NewWriter(w) })
	},
	" deflate": func(b []byte) []byte {
		return zipped(b, func(w io.Writer) flusher { f, _ := flate.NewWriter(w, 5); return f })
	},
	"br":   brotlied,
	"zstd": zstded,
	"Gzip, identity,, BR": func(b []byte) []byte {
		return brotlied(zipped(b, func(w io.Writer) flusher { return gzip.NewWriter(w) }))
	},
	"br,zstd": func(b []byte) []byte { return zstded(brotlied(b)) },
}

func brotlied(b []byte) []byte {
	return zipped(b, func(w io.Writer) flusher { return brotli.NewWriterLevel(w, 3) })
}

func zstded(b []byte) []byte {
	return zipped(b, func(w io.Writer) flusher { return newZstd(w, 64<<10) })
}

func newZstd(w io.Writer, window int) *zstd.Encoder {
	return must(zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithEncoderLevel(zstd.SpeedFastest)))
}

type flusher interface {
	io.WriteCloser
	Flush() error
}

func zipped(b []byte, by func(io.Writer) flusher) []byte {
	var out bytes.Buffer
	w := by(&out)
	w.Write(b[:len(b)/3])
	w.Flush()
	w.Write(b[len(b)/3:])
	w.Close()
	return out.Bytes()
}

// A stream that is flushed is read as it comes: a client that leaves settles by what it saw.
func TestSeenSoFar(t *testing.T) {
	for name, cut := range map[string]int{"after the second usage": strings.Index(anthropic, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\n"), "within a number": strings.Index(anthropic, "5}}\n\nevent: message_stop")} {
		for encoding, by := range map[string]func(io.Writer) flusher{
			"gzip":    func(w io.Writer) flusher { return gzip.NewWriter(w) },
			"deflate": func(w io.Writer) flusher { return zlib.NewWriter(w) },
			"br":      func(w io.Writer) flusher { return brotli.NewWriter(w) },
			"zstd":    func(w io.Writer) flusher { return newZstd(w, 8<<20) }, // the largest
		} {
			var out bytes.Buffer
			w := by(&out)
			io.WriteString(w, anthropic[:cut])
			w.Flush() // and no end
			got, err := read(t, out.Bytes(), "text/event-stream", encoding, 1)
			if err != nil || got[2] != int64(25) || got[3] != int64(7) {
				t.Errorf("%s, %s: %v, %v", name, encoding, got, err)
			}
		}
	}
	// Of a whole JSON value, too, but no half of a number.
	got, err := read(t, []byte(`{"usage": {"total_tokens": 21, "input_tokens": 12`), "application/json", "", 1)
	if err != nil || got[0] != int64(21) || got[1] != nil {
		t.Errorf("JSON that ends early: %v, %v", got, err)
	}
}

func TestUnreadable(t *testing.T) {
	spaces := bytes.Repeat([]byte{' '}, 20<<20)
	bomb := encodings["gzip"](spaces)
	var wide bytes.Buffer
	z := newZstd(&wide, 16<<20)
	z.Write([]byte(`{"usage":{"total_tokens":1}}`))
	z.Flush()
	z.Close()
	for _, c := range []struct{ name, kind, encoding, body, err string }{
		{"another type", "text/html", "", `<p>{"usage":{"total_tokens":1}}`, "content type"},
		{"no type", "", "", `The "usage": {"usage":{"total_tokens":1}}`, "content type"},
		{"a picture", "image/png", "", "\x89PNG\r\n\x1a\n{}", "content type"},
		{"another encoding", "application/json", "compress", "x", "content encoding"},
		{"many encodings", "application/json", "gzip, gzip, gzip, gzip, gzip", "x", "content encoding"},
		{"one of two encodings", "application/json", "gzip, gzip", string(encodings["gzip"]([]byte(`{"usage":{"total_tokens":1}}`))), "compressed body"},
		{"not JSON at the end", "application/json", "", `{"usage":{"total_tokens":1}}}`, "not JSON"},
		{"not JSON after it", "application/json", "", `{"usage":{"total_tokens":1}} {]`, "not JSON"},
		{"not JSON in the next line", "application/json", "", "{\"usage\":{\"total_tokens\":1}}\n}", "not JSON"},
		{"a list that is not JSON", "application/json", "", `[{"usage":{"total_tokens":1}}, x]`, "not JSON"},
		{"not JSON in a declared form", "application/json", "", `The end`, "not JSON"},
		{"not brotli", "application/json", "br", "\xff\xff\xff\xff\xff\xff\xff\xff\xff", "compressed body"},
		{"not zstd", "application/json", "zstd", `{"usage":{"total_tokens":1}}`, "compressed body"},
		{"not JSON", "application/problem+json", "", `{"usage":{"total_tokens":1},}`, "not JSON"},
		{"not gzip", "application/json", "gzip", `{"usage":{"total_tokens":1}}`, "compressed body"},
		{"damaged gzip", "text/event-stream", "gzip", string(encodings["gzip"]([]byte("x"))[:10]) + "\xff\xff\xff\xff\xff", "compressed body"},
		{"a bomb", "application/json", "gzip", string(bomb), "grows"},
		{"a bomb of brotli", "application/json", "br", string(encodings["br"](spaces)), "grows"},
		{"a bomb of zstd", "application/json", "zstd", string(encodings["zstd"](spaces)), "grows"},
		{"a bomb in a bomb", "application/json", "gzip, gzip", string(encodings["gzip"](bomb)), "grows"},
		{"a large window", "application/json", "zstd", wide.String(), "compressed body"},
		{"deep", "application/json", "", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "deep"},
	} {
		got, err := read(t, []byte(c.body), c.kind, c.encoding, 7)
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.err)
		}
		if got[0] != nil {
			t.Errorf("%s: read %v", c.name, got[0])
		}
	}
}

// Whatever passes, the Reader keeps little: neither large values nor what is in between.
func TestKeepsLittle(t *testing.T) {
	large := bytes.Repeat([]byte{'x'}, 1<<20)
	var before, after runtime.MemStats
	r := usage.New([][]string{{"text"}, {"usage", "total_tokens"}}, "application/json", "")
	r.Write([]byte(`{"text": "`))
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 64 {
		r.Write(large)
	}
	runtime.ReadMemStats(&after)
	r.Write([]byte(`", "usage": {"total_tokens": 5}}`))
	r.Close()
	if _, ok := r.Value([]string{"text"}); ok {
		t.Error("a text of 64 MiB was kept")
	}
	if v, _ := r.Value([]string{"usage", "total_tokens"}); v != int64(5) {
		t.Errorf("total_tokens after a long text: %v", v)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

// A Reader that is closed leaves no goroutine, wherever its body ended.
func TestCloseEndsTheCoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for encoding, zip := range encodings {
		b := zip([]byte(anthropic))
		for i := 0; i < len(anthropic); i += 7 {
			r := usage.New(paths, "text/event-stream", encoding)
			r.Write(b[:min(i, len(b))])
			r.Close()
			r.Close()
			if n, err := r.Write([]byte("late")); n != 4 || err != nil {
				t.Fatal("Write after Close")
			}
		}
	}
	await.Until(t, "no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before })
}

func FuzzReader(f *testing.F) {
	for _, body := range []string{openAI, anthropic, `{"usage":{"total_tokens":1}}`, `[1e5,-0.5,"\ud834\udd1e",true,false,null]`, "data\ndata:5\n\n", "{\"usage\":1}\r\n{}",
		`[{"usage":1},{"usage":{"total_tokens":2}},[]]`, `{"usage":1}{"usage":2} [3]`, "{\n\"usage\":1}\n{}", "\x1e{\"usage\":1}\n\x1e{\"usage\":2}\n", "\n data: 1\ndata: {\"usage\":2}\n"} {
		f.Add([]byte(body), uint64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		if bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > 900 {
			t.Skip()
		}
		for _, kind := range []string{"text/event-stream", "application/jsonl", "application/json", "text/plain"} {
			encoding := "" // mostly: the others are slow
			if names := slices.Sorted(maps.Keys(encodings)); seed%8 == 0 {
				encoding = names[seed/8%uint64(len(names))]
			}
			r := usage.New(paths, kind, encoding)
			random := rand.New(rand.NewPCG(seed, 1))
			feed(t, r, encodings[encoding](body), 1+random.IntN(len(body)+1), random)
			got := valuesOf(r)
			want, wantEvents, known := modelBody(body, kind, paths)
			if _, events := r.Passed(); known && (!reflect.DeepEqual(got, want) || events != wantEvents) {
				t.Fatalf("%s, %q: %v of %d events, want %v of %d", kind, encoding, got, events, want, wantEvents)
			}
			if r.Err() != nil && !reflect.DeepEqual(got, make([]any, len(paths))) {
				t.Fatalf("%s, %q: %v: values %v of what is no JSON", kind, encoding, r.Err(), got)
			}
			if r.Err() != nil && json.Valid(body) {
				t.Fatalf("%s, %q: JSON was not read: %v", kind, encoding, r.Err())
			}
		}
		// What is read of an arbitrary body that claims to be compressed matters less; it must
		// end.
		for _, encoding := range []string{"gzip", "deflate", "br", "zstd"} {
			read(t, body, "text/event-stream", encoding, seed)
		}
	})
}

func BenchmarkEvents(b *testing.B) {
	r := usage.New(paths, "text/event-stream", "")
	event := []byte(`data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		r.Write(event)
	}
	r.Close()
}

func BenchmarkWhole(b *testing.B) {
	body := []byte(`{"data":[` + strings.Repeat(`{"embedding":[0.0023064255,-0.009327292,-0.0028842222],"index":0},`, 1000) + `0],"usage":{"prompt_tokens":8,"total_tokens":8}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r := usage.New(paths, "application/json", "")
		r.Write(body)
		r.Close()
		if v, _ := r.Value(paths[0]); v != int64(8) {
			b.Fatal(v)
		}
	}
}

func BenchmarkEncodings(b *testing.B) {
	body := []byte(`{"text":"` + strings.Repeat("Hello, hello. ", 100) + `","usage":{"prompt_tokens":8,"total_tokens":8}}`)
	for _, encoding := range []string{"gzip", "deflate", "br", "zstd"} {
		b.Run(encoding, func(b *testing.B) {
			sent := encodings[encoding](body)
			b.ReportAllocs()
			for b.Loop() {
				r := usage.New(paths, "application/json", encoding)
				r.Write(sent)
				r.Close()
				if v, _ := r.Value(paths[0]); v != int64(8) {
					b.Fatal(v)
				}
			}
		})
	}
}
