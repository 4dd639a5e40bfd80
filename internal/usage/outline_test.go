package usage_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stintdev/stint/internal/usage"
)

func outline(t testing.TB, body string) *usage.Outline {
	t.Helper()
	o, err := usage.ReadOutline(strings.NewReader(body), 1000)
	if err != nil {
		t.Fatalf("%.80s: %v", body, err)
	}
	return o
}

// magicOf is how files of a kind begin.
var magicOf = map[string]string{
	"image/png": "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/jpeg": "\xff\xd8\xff\xe0\x00\x10JFIF", "image/gif": "GIF89a",
	"image/webp": "RIFF\x10\x20\x30\x00WEBPVP8 ", "image/heic": "\x00\x00\x00\x18ftypheic\x00\x00", "image/avif": "\x00\x00\x00\x1cftypavif",
	"audio/wav": "RIFF\x10\x20\x30\x00WAVEfmt ", "audio/mpeg": "ID3\x04\x00\x00\x00", "audio/mp3": "\xff\xfb\x90\x64\x00", "audio/ogg": "OggS\x00\x02",
	"audio/flac": "fLaC\x00\x00\x00\x22", "audio/mp4": "\x00\x00\x00\x1cftypM4A \x00", "audio/aac": "\xff\xf1\x50\x80",
	"video/mp4": "\x00\x00\x00\x20ftypisom\x00", "video/webm": "\x1aE\xdf\xa3\x01\x00", "application/pdf": "%PDF-1.7\n",
}

// fileOf is a file of a kind and a size.
func fileOf(rng *rand.Rand, kind string, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	copy(b, magicOf[kind])
	return b
}

// mediaShapes are requests of the providers around data, which says whether it is an URL.
var mediaShapes = map[string]struct {
	url  bool
	body string
}{
	"chat, image_url":        {true, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"%s"}}]}],"stream":true}`},
	"chat, input_audio":      {false, `{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"%s","format":"wav"}}]}]}`},
	"chat, file":             {true, `{"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"%s"}}]}]}`},
	"responses, input_image": {true, `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"%s"}]}]}`},
	"anthropic":              {false, `{"max_tokens":10,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%s"}}]}]}`},
	"gemini":                 {false, `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"%s"}},{"text":"hi"}]}]}`},
}

// Data in base64 counts by its kind, in the forms of all providers, and everything else is text.
func TestOutlineFindsMedia(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	escapes := map[string]func(string) string{
		"plain":   func(s string) string { return s },
		"slashes": func(s string) string { return strings.ReplaceAll(s, "/", `\/`) },
		"unicode": func(s string) string { return strings.NewReplacer("+", `\u002B`, "=", `\u003d`).Replace(s) },
		"letters": func(s string) string {
			return strings.NewReplacer("o", `\u006f`, "K", `\u004B`, "/", `\u002F`, "J", `\u004a`).Replace(s)
		},
		"lines":    func(s string) string { return s[:400] + `\r\n` + s[400:] },
		"base64":   func(s string) string { return s }, // with URL's alphabet, below
		"unpadded": func(s string) string { return strings.TrimRight(s, "=") },
	}
	for kind := range magicOf {
		for name, shape := range mediaShapes {
			for _, size := range []int{400, 20_000, 1_500_000} {
				if size > 20_000 && name != "anthropic" {
					continue // they take their time
				}
				data := fileOf(rng, kind, size)
				for escape, by := range escapes {
					text := base64.StdEncoding.EncodeToString(data)
					if escape == "base64" {
						text = base64.URLEncoding.EncodeToString(data)
					}
					if shape.url {
						text = "data:" + kind + []string{"", ";charset=utf-8", ";name=a.b"}[rng.IntN(3)] + ";base64," + text
					}
					body := fmt.Sprintf(shape.body, by(text))
					o := outline(t, body)
					want := usage.MediaTokens(kind, int64(size))
					if rest := int64(len(shape.body) - 2); o.Text != rest || o.Media < want-1 || o.Media > want+1 || o.Len != int64(len(body)) {
						t.Errorf("%s, %s, %d bytes, %s: text %d, media %d, length %d; want %d, %d, %d", kind, name, size, escape, o.Text, o.Media, o.Len, rest, want, len(body))
					}
				}
			}
		}
	}
}

// What is no data, or of no kind, is text.
func TestOutlineLeavesText(t *testing.T) {
	png := base64.StdEncoding.EncodeToString(fileOf(rand.New(rand.NewPCG(1, 2)), "image/png", 3000))
	for name, c := range map[string]struct {
		text        string
		size, media int64 // of the string; 0: its length
	}{
		"prose":                 {strings.Repeat("The cat sat on the mat. ", 100), 0, 0},
		"base64 of no kind":     {strings.Repeat("QUJD", 500), 0, 0},
		"a short picture":       {png[:200], 0, 0},
		"prose after a picture": {png + " and so on", 0, 0},
		"prose in a picture":    {png[:2000] + "ä" + png[2000:], 0, 0},
		"an URL within prose":   {"See data:image/png;base64," + png, 0, 0},
		"an URL not in base64":  {"data:text/plain," + strings.Repeat("a", 1000), 0, 0},
		"an URL of text":        {"data:text/csv;base64," + strings.Repeat("QUJD", 500), 1500, 0},
		"an URL of any kind":    {"DATA:application/zip;base64," + strings.Repeat("QUJD", 1000), -1, 75},
		"an URL of no kind":     {"data:;base64," + strings.Repeat("QUJD", 1000), -1, 75},
	} {
		body := `{"content":["` + c.text + `","x"]}`
		want := int64(len(body) - len(c.text))
		switch {
		case c.size == 0:
			want = int64(len(body))
		case c.size > 0:
			want += c.size
		}
		if o := outline(t, body); o.Text != want || o.Media != c.media {
			t.Errorf("%s: text %d, media %d, want %d, %d", name, o.Text, o.Media, want, c.media)
		}
	}
}

func TestMediaTokens(t *testing.T) {
	for _, c := range []struct {
		kind       string
		size, want int64
	}{
		{"image/png", 300, 85}, {"image/png", 150_000, 400}, {"image/jpeg", 20_000_000, 1600},
		{"audio/wav", 960_000, 1920}, {"video/mp4", 300_000, 300}, {"application/pdf", 100_000, 2500},
		{"multipart/form-data", 1 << 20, 2097}, {"application/zip", 400, 10}, {"", 0, 1},
	} {
		if got := usage.MediaTokens(c.kind, c.size); got != c.want {
			t.Errorf("%d bytes of %s: %d, want %d", c.size, c.kind, got, c.want)
		}
	}
}

// The fields of a body are found as strictly as in a Document, and where they lie.
func TestOutlineFields(t *testing.T) {
	many := func(n int) string {
		return `{"b": {` + strings.Repeat(`"x": 0, `, n) + `"c": 1}, "a": 5}`
	}
	for _, c := range []struct {
		body, path string
		want       any
		err        error
	}{
		{` {"a": 5} `, "a", int64(5), nil},
		{"\ufeff{\"a\": \"x\"}", "a", "x", nil},
		{`{"a": {"b": {"c": true, "d": [1]}}}`, "a b c", true, nil},
		{`{"a": {"b": {"c": {"d": 1}}}}`, "a b c d", int64(1), nil},
		{`{"a": {"b": {"c": {"d": {"e": 1}}}}}`, "a b c d e", nil, errUnknown},
		{`{"a": [{"b": 1}]}`, "a b", nil, nil},
		{`{"a": 1e999}`, "a", nil, usage.ErrTooLarge},
		{`{"a": 1` + strings.Repeat("0", 1<<17) + `}`, "a", nil, usage.ErrTooLarge},
		{`{"a": 1, "a": 2}`, "a", nil, usage.ErrTwice},
		{`{"a": 1, "\u0041": 2}`, "a", nil, usage.ErrTwice},
		{`{"b": {"A": 1}}`, "b a", nil, usage.ErrCase},
		{`{"B": {"a": 1}}`, "b a", nil, usage.ErrCase},
		{`{"a": "` + strings.Repeat("long", 1<<16) + `"}`, "a", "", nil},
		{"{\"a\": \"\xff\", \"b\": 3}", "b", int64(3), nil}, // some other charset
		{`[1, {"a": 2}]`, "a", nil, nil},
		{`{"` + strings.Repeat("n", 1<<17) + `": 1, "a": 2}`, "a", int64(2), nil},
		{many(999), "b c", int64(1), nil},
		{many(1000), "b c", nil, errUnknown},
		{many(20_000), "a", int64(5), nil},
	} {
		for _, buffer := range []int64{1, 7, 1 << 20} {
			if len(c.body) > 1<<16 && buffer == 1 {
				continue
			}
			o, err := usage.ReadOutline(strings.NewReader(c.body), buffer)
			if err != nil {
				t.Errorf("%.60s: %v", c.body, err)
				continue
			}
			got, ok, err := o.Lookup(strings.Fields(c.path))
			if c.err == errUnknown && err != nil {
				err = errUnknown
			}
			if !errors.Is(err, c.err) || got != c.want || ok != (c.want != nil) {
				t.Errorf("%.60s, %s: %v, %t, %v, want %v, %v", c.body, c.path, got, ok, err, c.want, c.err)
			}
			if from, to, _, ok := o.Span(strings.Fields(c.path)); ok && c.want == int64(5) && c.body[from:to] != "5" {
				t.Errorf("%.60s, %s: lies at %d to %d", c.body, c.path, from, to)
			}
		}
	}
	for _, body := range []string{``, ` `, `{`, `{"a"`, `{"a": "`, `{"a": 1} x`, `{"a": 1,}`, "{\"a\": \"\n\"}", `{"a": "\x"}`, `{"a": "\u00g0"}`, `[`, "{" + strings.Repeat(`"x": 0, `, 10_000) + `"a": 1}`, strings.Repeat("[", 2000)} {
		if o, err := usage.ReadOutline(strings.NewReader(body), 100); err == nil || o != nil {
			t.Errorf("%.60s: %v", body, err)
		}
	}
	if _, err := usage.ReadOutline(iotest.ErrReader(io.ErrClosedPipe), 100); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

var errUnknown = errors.New("it is not known")

// However long a body is, little of it is kept, and no more than what Bytes says.
func TestOutlineKeepsLittle(t *testing.T) {
	for name, body := range map[string]func(n int) string{
		"a picture": func(n int) string { return `{"a": "data:image/png;base64,` + strings.Repeat("QUJD", n/4) + `"}` },
		"texts":     func(n int) string { return `{"a": [` + strings.Repeat(`"a text", `, n/10) + `0]}` },
		"members": func(n int) string {
			var b strings.Builder
			for i := range 9999 {
				fmt.Fprintf(&b, `"%060d": "%060d", `, i, i)
			}
			return "{" + b.String() + `"a": "` + strings.Repeat("x", n) + `"}`
		},
		"objects": func(n int) string {
			return `{"a": {` + strings.Repeat(`"b": {`+strings.Repeat(`"c": 1, `, 200)+`"d": 1}, `, n/2000) + `"e": 1}}`
		},
	} {
		text := body(16 << 20)
		from := strings.NewReader(text)
		before := inUse()
		o, err := usage.ReadOutline(from, 32<<10)
		if err != nil {
			t.Fatal(name, err)
		}
		took := inUse() - before
		if t.Logf("%s: %d bytes take %d, at most %d", name, len(text), took, o.Bytes()); took > o.Bytes()+4096 || o.Bytes() > 8<<20 {
			t.Errorf("%s: %d bytes take %d, want at most %d", name, len(text), took, o.Bytes())
		}
		runtime.KeepAlive(o)
		runtime.KeepAlive(text)
	}
}

func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An Outline has what a Document has, or an error.
func FuzzOutline(f *testing.F) {
	for _, body := range []string{`{"a":{"b":1}}`, `{"a":{"b":[1,2.5],"B":1}}`, ` [1]`, `{"a":{"b":"\ud800"}}`, "\ufeff{\"a\":\"data:;base64,\\/\"}", `{"a":1e999,"b":-0.5e-3}`} {
		f.Add([]byte(body), byte(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, buffer byte) {
		o, err := usage.ReadOutline(bytes.NewReader(body), int64(buffer))
		d, docErr := usage.Parse(body)
		if docErr == nil != (err == nil) && (err != nil || !strings.Contains(docErr.Error(), "UTF-8")) {
			t.Fatalf("%v, but a Document has %v", err, docErr)
		}
		if err != nil {
			return
		}
		if o.Len != int64(len(body)) || o.Text > o.Len || o.Text < 0 || o.Media < 0 {
			t.Fatalf("length %d, text %d, media %d of %d bytes", o.Len, o.Text, o.Media, len(body))
		}
		if docErr != nil {
			return
		}
		for _, path := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}} {
			got, ok, err := o.Lookup(path)
			want, has, docErr := d.Lookup(path)
			if fmt.Sprint(err) != fmt.Sprint(docErr) && !strings.Contains(fmt.Sprint(err), "too large") || ok != has && err == nil {
				t.Fatalf("%q: %v, %t, %v, want %v, %t, %v", path, got, ok, err, want, has, docErr)
			}
			switch got := got.(type) {
			case nil, bool, int64, float64:
				if ok && !reflect.DeepEqual(got, want) {
					t.Fatalf("%q: %v, want %v", path, got, want)
				}
			default:
				if reflect.TypeOf(got) != reflect.TypeOf(want) {
					t.Fatalf("%q: a %T, want a %T", path, got, want)
				}
			}
			from, to, _, lies := o.Span(path)
			first, last, has := d.Span(path)
			if lies != has && err == nil || lies && has && (from != int64(first) || to != int64(last) || !json.Valid(body[from:to])) {
				t.Fatalf("%q lies at %d to %d, want %d to %d", path, from, to, first, last)
			}
		}
	})
}

func BenchmarkOutline(b *testing.B) {
	picture := []byte(`{"stream":true,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0K", 1<<18) + `"}}]}]}`)
	text := []byte(`{"stream":true,"messages":[` + strings.Repeat(`{"role":"user","content":"The cat sat on the mat, and the dog sat on the cat."},`, 1<<14) + `0]}`)
	for name, body := range map[string][]byte{"picture": picture, "text": text, "short": text[:200:200]} {
		if name == "short" {
			body = []byte(`{"stream":true,"messages":[{"role":"user","content":"The cat sat on the mat."}],"max_tokens":100}`)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := usage.ReadOutline(bytes.NewReader(body), min(int64(len(body)), 32<<10)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The elements of a list are those of a Document, wherever the list lies and whatever is beside it.
func TestReadElements(t *testing.T) {
	for _, c := range []struct {
		body, path, want string
	}{
		{`{"a": [{"n": 1}, {"n": 2}, {"m": 3}, 4, "x", null, [{"n": 5}], {"n": {"n": 6}}]}`, "a", "1 2 - - - - - {}"},
		{`{"b": [{"n": 9}], "a": [{"n": 1}], "c": {"a": [{"n": 9}]}}`, "a", "1"},
		{`{"a": {"a": [{"n": 9}], "b": {"c": {"d": [{"n": 1}, {"n": 2}]}}}, "d": [{"n": 9}]}`, "a b c d", "1 2"},
		{`{"a": {"b": [{"n": 1}]}}`, "a", ""},
		{`{"a": [[{"n": 1}]]}`, "a", "-"},
		{`{"a": []}`, "a", ""},
		{`{"\u0061": [{"n": 1}]}`, "a", "1"},
		{`[{"a": [{"n": 1}]}]`, "a", ""},
		{`{"a": [` + strings.Repeat(`{"x": {"y": 1}, "n": 1},`, 20_000) + `{"n": 2}]}`, "a", strings.Repeat("1 ", 20_000) + "2"},
	} {
		for _, buffer := range []int64{1, 7, 1 << 15} {
			if buffer == 1 && len(c.body) > 1000 {
				continue
			}
			var got []string
			err := usage.ReadElements(strings.NewReader(c.body), buffer, strings.Fields(c.path), func(o *usage.Outline) error {
				switch v, ok, err := o.Lookup([]string{"n"}); {
				case err != nil:
					return err
				case !ok:
					got = append(got, "-")
				default:
					got = append(got, strings.ReplaceAll(fmt.Sprint(v), "map[]", "{}"))
				}
				return nil
			})
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("%.80s, %s, by %d: %.80q, %v", c.body, c.path, buffer, got, err)
			}
		}
	}
	stop := errors.New("stop")
	calls := 0
	if err := usage.ReadElements(strings.NewReader(`{"a": [{}, {}]}`), 100, []string{"a"}, func(*usage.Outline) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
