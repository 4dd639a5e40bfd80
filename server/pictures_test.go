package server_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/server"
)

// pictureOf is a PNG of so many bytes as a data URL.
func pictureOf(size int) string {
	b := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(b)
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n"), b...))
}

// chatWith is a chat about a picture, or about a text.
func chatWith(content string, fields string) string {
	return `{"model":"m",` + fields + `"messages":[{"role":"user","content":[{"type":"text","text":"What is this, für Anna?"},{"type":"image_url","image_url":{"url":"` + content + `"}}]}]}`
}

// sentAs is how a body is sent.
type sentAs struct{ codings, charset string }

var (
	codingsOfBodies = []string{"", "gzip", "deflate", "br", "zstd", "gzip, br"}
	charsets        = []string{"", "utf-8", "iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-32"}
)

// sent is text as it is sent.
func (as sentAs) sent(t testing.TB, text string) []byte {
	t.Helper()
	var err error
	switch as.charset {
	case "iso-8859-1":
		text, err = charmap.ISO8859_1.NewEncoder().String(text)
	case "windows-1252":
		text, err = charmap.Windows1252.NewEncoder().String(text)
	case "utf-16":
		text, err = unicode.UTF16(unicode.BigEndian, unicode.UseBOM).NewEncoder().String(text)
	case "utf-16le":
		text, err = unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewEncoder().String(text)
	case "utf-32":
		text, err = utf32.UTF32(utf32.LittleEndian, utf32.UseBOM).NewEncoder().String(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := []byte(text)
	for coding := range strings.SplitSeq(as.codings, ", ") {
		var out bytes.Buffer
		var w io.WriteCloser
		switch coding {
		case "":
			continue
		case "gzip":
			w = gzip.NewWriter(&out)
		case "deflate":
			w = zlib.NewWriter(&out)
		case "br":
			w = brotli.NewWriterLevel(&out, 2)
		case "zstd":
			w, _ = zstd.NewWriter(&out)
		}
		_, _ = w.Write(b)
		w.Close()
		b = out.Bytes()
	}
	return b
}

func (as sentAs) contentType() string {
	if as.charset == "" {
		return "application/json"
	}
	return "application/json; charset=" + as.charset
}

// request is a request with a body.
func (as sentAs) request(url string, body []byte, chunked bool) *http.Request {
	var from io.Reader = bytes.NewReader(body)
	if chunked {
		from = struct{ io.Reader }{from}
	}
	r := httptest.NewRequest("POST", url, from)
	r.Header.Set("Content-Type", as.contentType())
	if as.codings != "" {
		r.Header.Set("Content-Encoding", as.codings)
	}
	return r
}

// aModel is an upstream that says what it used as OpenAI does: 1,104 tokens and 48, or nothing.
func aModel(silent bool, seen func(*http.Request, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen(r, body)
		var v struct {
			Stream  bool
			Options struct {
				Include bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		_ = json.Unmarshal(body, &v)
		const said = `"usage":{"prompt_tokens":1104,"completion_tokens":48}`
		switch {
		case !v.Stream:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"choices":[{"message":{"content":"A cat."}}]`, map[bool]string{false: "," + said}[silent], `}`)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"A cat.\"}}]}\n\n", 3))
			if v.Options.Include && !silent {
				fmt.Fprint(w, "data: {\"choices\":[],", said, "}\n\n")
			}
			fmt.Fprint(w, "data: [DONE]\n\n")
		}
	}
}

// used sends a request, and returns what it held and what it was charged, of a million.
func used(t testing.TB, rule string, r *http.Request, model func(func(*http.Request, []byte)) http.HandlerFunc) (status int, held, charged int64) {
	t.Helper()
	var m stint.Memory
	var s *server.Server
	s = newServer(t, `rules: [{name: r, key: '"all"', `+rule+`, limits: [1000000 per 24h fixed_window hold]}]`, over(&m),
		everythingTo(upstream(t, model(func(*http.Request, []byte) { held = heldBy(t, s, &m) }))))
	w := httptest.NewRecorder()
	s.Gateway().ServeHTTP(w, r)
	wantHeld(t, s, &m, 0)
	return w.Code, held, 1_000_000 - left(t, s, &m)
}

// A streamed chat about a picture of 1.5 MB is charged what the upstream says, and holds about that.
func TestPictureIsNoText(t *testing.T) {
	for _, as := range []sentAs{{}, {"gzip", ""}, {"br", ""}, {"zstd", ""}, {"", "utf-16"}, {"gzip", "utf-16le"}, {"", "iso-8859-1"}} {
		body := as.sent(t, chatWith(pictureOf(1_500_000*3/4), `"stream":true,"max_tokens":100,`))
		for _, chunked := range []bool{false, true} {
			for _, silent := range []bool{false, true} {
				for _, unsettled := range []string{"keep", "give_back"} {
					if testing.Short() && as != (sentAs{}) && (chunked || silent || unsettled == "keep") {
						continue // they take their time
					}
					status, held, charged := used(t, "tokens: openai, max_hold: 1%, unsettled: "+unsettled, as.request("/v1/chat/completions", body, chunked),
						func(seen func(*http.Request, []byte)) http.HandlerFunc { return aModel(silent, seen) })
					about := fmt.Sprintf("%v, chunked %t, silent %t, %s", as, chunked, silent, unsettled)
					if status != 200 || held < 2100 || held > 2200 {
						t.Errorf("%s: %d, holds %d, want about 50 for the text, 1,600 for the picture and 500", about, status, held)
					}
					switch want := held - 500 + 4*5; { // 3 events, and the end
					case !silent && charged != 1344:
						t.Errorf("%s: charged %d, want 1344", about, charged)
					case silent && unsettled == "keep" && charged != held, silent && unsettled == "give_back" && (charged > want || charged < want-10):
						t.Errorf("%s: held %d, charged %d", about, held, charged)
					}
				}
			}
		}
	}
}

// The usage of a stream is asked for whatever the size of the request, its coding and its charset, and
// nothing else of it changes. What does not stream passes as it came.
func TestUsageIsAskedForWhateverTheBody(t *testing.T) {
	var sentOn []byte
	var header http.Header
	var length int64
	s := newServer(t, `rules: [{name: r, key: '"all"', tokens: openai, max_hold: 1%, limits: [100000000 per 24h fixed_window hold]}]`,
		everythingTo(upstream(t, aModel(false, func(r *http.Request, body []byte) { sentOn, header, length = body, r.Header, r.ContentLength }))))
	send := func(as sentAs, text string, chunked bool) []byte {
		t.Helper()
		body := as.sent(t, text)
		w := httptest.NewRecorder()
		s.Gateway().ServeHTTP(w, as.request("/v1/chat/completions", body, chunked))
		if w.Code != 200 || chunked != (length < 0) || !chunked && length != int64(len(sentOn)) {
			t.Fatalf("%v, %d bytes, chunked %t: %d, length %d of %d", as, len(text), chunked, w.Code, length, len(sentOn))
		}
		return body
	}
	const asked = `"stream_options":{"include_usage":true},`
	for _, size := range []int{100, 800_000, 15_000_000} {
		for _, codings := range codingsOfBodies {
			for _, charset := range charsets {
				as := sentAs{codings, charset}
				if all := []sentAs{{}, {"gzip", ""}, {"", "utf-16"}}; size > 1000 && (codings != "" && charset != "" || testing.Short() && !slices.Contains(all, as)) || size > 1_000_000 && !slices.Contains(all, as) {
					continue // they take their time
				}
				picture, chunked := pictureOf(size), len(codings)%2 == 0
				text := chatWith(picture, `"stream":true,`)
				want := []byte(strings.Replace(text, "{", "{"+asked, 1))
				if strings.HasPrefix(charset, "iso") || strings.HasPrefix(charset, "win") {
					want = sentAs{"", charset}.sent(t, string(want))
				}
				send(as, text, chunked)
				wide := strings.HasPrefix(charset, "utf-16") || strings.HasPrefix(charset, "utf-32")
				wantType := as.contentType()
				if wide {
					wantType = "application/json; charset=utf-8"
				}
				if !bytes.Equal(sentOn, want) || header.Get("Content-Encoding") != "" || header.Get("Content-Type") != wantType {
					t.Errorf("%v, %d bytes: %d bytes passed on, want %d: %.80q, %q, %q", as, size, len(sentOn), len(want), sentOn, header.Get("Content-Encoding"), header.Get("Content-Type"))
				}
				for _, same := range []string{chatWith(picture, ""), chatWith(picture, `"stream":true,`+asked)} {
					if body := send(as, same, !chunked); !bytes.Equal(sentOn, body) || header.Get("Content-Encoding") != codings || header.Get("Content-Type") != as.contentType() {
						t.Errorf("%v, %d bytes: %d bytes passed on, want %d as they came", as, size, len(sentOn), len(body))
					}
				}
			}
		}
	}
	for _, options := range [][2]string{{`null`, `{"include_usage":true}`}, {`{ }`, `{"include_usage":true}`}, {`{"a":1}`, `{"include_usage":true,"a":1}`}, {`{"a":[{}],"include_usage":false}`, `{"a":[{}],"include_usage":true}`}} {
		send(sentAs{"gzip", "utf-16"}, chatWith("x", `"stream":true,"stream_options":`+options[0]+`,`), false)
		if want := chatWith("x", `"stream":true,"stream_options":`+options[1]+`,`); string(sentOn) != want {
			t.Errorf("%s: %s", options[0], sentOn)
		}
	}
	many := `{` + strings.Repeat(`"a":1,`, 1001) + `"include_usage":false}` // too many to look into
	for _, fields := range []string{`"stream":true,"stream_options":` + many + `,`, `"stream":1,`, `"stream":1.0,`, `"stream":"True",`, `"stream":"on",`} {
		send(sentAs{}, chatWith("x", fields), false)
		if !bytes.Contains(sentOn, []byte(`"stream_options":{"include_usage":true},`)) {
			t.Errorf("%.60s: %.200s", fields, sentOn)
		}
	}
	for _, fields := range []string{`"stream":0,`, `"stream":"false",`, `"stream":null,`, `"stream":2,`} {
		if body := send(sentAs{}, chatWith("x", fields), false); !bytes.Equal(sentOn, body) {
			t.Errorf("%s: %s", fields, sentOn)
		}
	}
}

// Digests of a body pass on with the body that they are of.
func TestDigestsOfChangedBodies(t *testing.T) {
	var header http.Header
	s := newServer(t, `rules: [{name: r, key: '"all"', tokens: openai, limits: [100000000 per 24h fixed_window hold]}]`,
		everythingTo(upstream(t, aModel(false, func(r *http.Request, _ []byte) { header = r.Header }))))
	for fields, want := range map[string]string{`"stream":true,`: "", ``: "x"} {
		r := sentAs{}.request("/v1/chat/completions", []byte(chatWith("x", fields)), false)
		names := []string{"Content-Digest", "Content-MD5", "Digest", "Repr-Digest"}
		for _, name := range names {
			r.Header.Set(name, "x")
		}
		s.Gateway().ServeHTTP(httptest.NewRecorder(), r)
		for _, name := range names {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s: %q", fields, name, got)
			}
		}
	}
}

// A field that is given twice or in another case is refused, however the body is sent and however long it
// is.
func TestAttackFieldsTwiceInEncodedBodies(t *testing.T) {
	for _, fields := range []string{`"max_tokens":1,"max_tokens":5000,`, `"max_tokens":1,"Max_Tokens":5000,`, `"MAX_TOKENS":5000,`, `"stream":true,"stream":false,`, `"Stream":true,`, `"stream":true,"messages":[],`, `"stream":true,"Messages":[],`, `"stream_options":{"include_usage":true,"Include_usage":false},`} {
		for _, codings := range codingsOfBodies {
			for _, charset := range charsets {
				as := sentAs{codings, charset}
				for _, content := range []string{"x", pictureOf(1_000_000)} {
					if as != (sentAs{}) && len(content) > 1 {
						break
					}
					if status, _, _ := used(t, "tokens: openai", as.request("/v1/chat/completions", as.sent(t, chatWith(content, fields)), false), func(seen func(*http.Request, []byte)) http.HandlerFunc {
						return aModel(false, seen)
					}); status != 400 {
						t.Errorf("%s, %v: %d", fields, as, status)
					}
				}
			}
		}
	}
}

// Expressions read a body as strictly as ever, also where tokens of another rule have read more.
func TestExpressionsStayStrict(t *testing.T) {
	const both = `rules:
  - {name: tokens, key: '"all"', tokens: openai, limits: [1000000 per 24h fixed_window hold]}
  - {name: model, key: body.model, limits: [1000 per 24h]}
`
	turned := "rules:\n" + strings.Join(func() []string {
		lines := strings.Split(strings.TrimSpace(both), "\n")[1:]
		slices.Reverse(lines)
		return lines
	}(), "\n") + "\n"
	for file, name := range map[string]string{both: "tokens first", turned: "tokens last"} {
		s := newServer(t, file, everythingTo(upstream(t, aModel(false, func(*http.Request, []byte) {}))))
		for _, c := range []struct {
			as      sentAs
			content string
			want    int
		}{
			{sentAs{}, "x", 200},
			{sentAs{}, pictureOf(500_000), 200},
			{sentAs{}, pictureOf(1_000_000), 400},
			{sentAs{"gzip", ""}, "x", 400},
			{sentAs{"", "iso-8859-1"}, "x", 400},
			{sentAs{"", "utf-16"}, "x", 400},
		} {
			for _, chunked := range []bool{false, true} {
				w := httptest.NewRecorder()
				s.Gateway().ServeHTTP(w, c.as.request("/", c.as.sent(t, chatWith(c.content, `"stream":true,`)), chunked))
				if w.Code != c.want {
					t.Errorf("%s, %v, %d bytes, chunked %t: %d %s", name, c.as, len(c.content), chunked, w.Code, w.Body)
				}
			}
		}
	}
}

// zeros are so many bytes that take no memory.
type zeros struct{ n int }

// Read is for io.Reader.
func (z *zeros) Read(p []byte) (int, error) {
	if z.n == 0 {
		return 0, io.EOF
	}
	n := min(z.n, len(p))
	for i := range n {
		p[i] = 'A'
	}
	z.n -= n
	return n, nil
}

// A form with files is no text, and what is no JSON is estimated by its length.
func TestBodiesThatAreNoJSON(t *testing.T) {
	file := string(make([]byte, 1_000_000))
	for _, c := range []struct {
		kind, body string
		chunked    bool
		held       int64
	}{
		{"multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n" + file + "\r\n--x--", false, 2000 + 5120},
		{"multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n" + file + "\r\n--x--", true, 2097 + 5120},
		{"multipart/form-data; boundary=x", `{"max_tokens": 100}`, false, 5 + 500},
		{"audio/wav", file, false, 250_000 + 5120},
		{"application/json", "{" + file, false, 250_001 + 5120},
		{"application/json", "{" + file, true, 250_001 + 5120},
		{"application/json; charset=shift_jis", `{"max_tokens": 100}`, false, 5 + 5120},
		{"application/json; charset=oops; charset=utf-8", `{"max_tokens": 100}`, false, 5 + 500},
		{"application/json", "", false, 0},
	} {
		var from io.Reader = strings.NewReader(c.body)
		if c.chunked {
			from = struct{ io.Reader }{from}
		}
		r := httptest.NewRequest("POST", "/v1/chat/completions", from)
		r.Header.Set("Content-Type", c.kind)
		if status, held, charged := used(t, "tokens: openai", r, func(seen func(*http.Request, []byte)) http.HandlerFunc { return aModel(true, seen) }); status != 200 || held != c.held || charged != c.held {
			t.Errorf("%.20q as %s, chunked %t: %d, held %d, charged %d, want %d", c.body, c.kind, c.chunked, status, held, charged, c.held)
		}
	}
	r := sentAs{"compress", ""}.request("/", []byte(`{"max_tokens": 100}`), false)
	if _, held, _ := used(t, "tokens: openai", r, func(seen func(*http.Request, []byte)) http.HandlerFunc { return aModel(true, seen) }); held != 1<<18+5120 {
		t.Errorf("in a coding that is not known: held %d", held)
	}
}

// What no response says is charged at most what was held and what passed of the answer; what one says is
// charged as it says.
func TestChargedNoMoreThanHeld(t *testing.T) {
	rng := rand.New(rand.NewPCG(attack.Seed(t), 11))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	n := 300
	if testing.Short() {
		n = 60
	}
	for range n {
		as := sentAs{codingsOfBodies[rng.IntN(len(codingsOfBodies))], charsets[rng.IntN(len(charsets))]}
		content := pick("x", strings.Repeat("some text ", 1+rng.IntN(50_000)), pictureOf(rng.IntN(900_000)), "data:application/pdf;base64,"+strings.Repeat("QUJD", rng.IntN(100_000)))
		body := as.sent(t, chatWith(content, pick("", `"stream":true,`)+pick("", `"max_tokens":50,`)))
		if rng.IntN(8) == 0 {
			body = body[:len(body)*rng.IntN(10)/10] // which cannot be read
		}
		weight := []int64{1, 5}[rng.IntN(2)]
		rule := fmt.Sprintf("tokens: {api: openai, output_weight: %d, include_usage: %s}, max_hold: %s, unsettled: %s", weight, pick("true", "false"), pick("1%", "10%", "100%"), pick("keep", "give_back"))
		said, cut, events := rng.IntN(3) == 0, rng.IntN(4) == 0, rng.IntN(5)
		answer := strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"A cat.\"}}]}\n\n", events)
		kind := "text/event-stream"
		if rng.IntN(3) == 0 {
			kind, events, answer = "application/json", 0, `{"choices":["`+strings.Repeat("A cat. ", rng.IntN(100))+`"]}`
			if said {
				answer = `{"usage":{"prompt_tokens":1104,"completion_tokens":48}}`
			}
		} else if said {
			answer += "data: {\"usage\":{\"prompt_tokens\":1104,\"completion_tokens\":48}}\n\n"
		}
		cut = cut && !said
		status, held, charged := used(t, rule, as.request("/v1/chat/completions", body, rng.IntN(2) == 0), func(seen func(*http.Request, []byte)) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				seen(r, nil)
				w.Header().Set("Content-Type", kind)
				fmt.Fprint(w, answer)
				if cut {
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
			}
		})
		passed := max(int64(events), int64(len(answer))/4)
		switch about := fmt.Sprintf("%v, %d bytes of %.30q, %s, %s %.60q, cut %t: %d, held %d, charged %d", as, len(body), content, rule, kind, answer, cut, status, held, charged); {
		case status != 200:
			t.Error(about)
		case said && len(body) > 0 && charged != 1104+48*weight:
			t.Errorf("%s: want what the response says", about)
		case !said && charged > held+passed*weight:
			t.Errorf("%s: that is too much", about)
		}
	}
}
