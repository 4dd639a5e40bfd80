package usage_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/usage"
)

// body is a response in one of the forms that providers and clients choose from.
type body struct {
	text   string
	begins []int // where each document does
	ends   []int // where each is known to be complete
	whole  bool  // it is one value, of which a part counts
	events int64
}

func (b *body) add(before, document, after string) {
	b.text += before
	b.begins = append(b.begins, len(b.text))
	b.text += document
	b.ends = append(b.ends, len(b.text))
	b.text += after
	b.events++
}

// forms render documents, which are objects.
var forms = []struct {
	name, kind string
	render     func(r *rand.Rand, documents []string) *body
}{
	{"an object", "application/json", func(r *rand.Rand, documents []string) *body {
		b := &body{whole: true}
		b.add(pick(r, "", "\ufeff", " \r\n"), styled(r, documents[len(documents)-1]), pick(r, "", "\n"))
		b.events = 0
		return b
	}},
	{"a list", "application/json", func(r *rand.Rand, documents []string) *body {
		b := &body{text: pick(r, "", "\ufeff", "\n") + "[" + pick(r, "", "\n  ")}
		separator := pick(r, ",", ",\n", "\n,\r\n", " , ")
		for i, d := range documents {
			b.add("", styled(r, d), "")
			if i+1 < len(documents) {
				b.text += separator
			}
		}
		b.text += pick(r, "]", "\n]\n")
		return b
	}},
	{"a list with other elements", "application/json; charset=utf-8", func(r *rand.Rand, documents []string) *body {
		b := &body{text: "["}
		for _, d := range documents {
			b.add(pick(r, `1, `, `[{"usage": {"total_tokens": -1}}], `, `null,`), styled(r, d), ",")
		}
		b.text += `"usage"]`
		return b
	}},
	{"lines", "application/x-ndjson", func(r *rand.Rand, documents []string) *body {
		b, eol := new(body), pick(r, "\n", "\r\n", "\n\n")
		for i, d := range documents {
			b.add("", d, eol)
			if i > 0 && r.IntN(4) == 0 {
				b.text += pick(r, "[DONE]", "nothing", `{"usage": {"total_tokens": -1}`, `{"usage":`, ": ping") + eol
			}
		}
		if r.IntN(2) == 0 && b.ends[len(b.ends)-1]+len(eol) == len(b.text) {
			b.text = strings.TrimSuffix(b.text, eol)
		}
		return b
	}},
	{"one after the other", "application/json", func(r *rand.Rand, documents []string) *body {
		b, between, style := new(body), pick(r, "", " ", "\t"), styled
		if r.IntN(2) == 0 {
			between, style = pick(r, "\n", "\r\n\r\n"), func(_ *rand.Rand, d string) string { return indented(d) }
		}
		for _, d := range documents {
			b.add("", style(r, d), between)
		}
		return b
	}},
	{"a text sequence", "application/json-seq", func(r *rand.Rand, documents []string) *body {
		b := new(body)
		for _, d := range documents {
			b.add("\x1e", styled(r, d), "\n")
			if r.IntN(4) == 0 {
				b.text += "\x1e{\"usage\": {\"total_tokens\": -1}\n"
			}
		}
		return b
	}},
	{"events", "text/event-stream; charset=utf-8", func(r *rand.Rand, documents []string) *body {
		b := &body{text: pick(r, "", "\ufeff", "\n", ": hello\n\n", "retry: 10\n")}
		for i, d := range documents {
			b.text += pick(r, "", "event: delta\n", fmt.Sprintf("id: %d\n", i), ": ping\n\n")
			if i > 0 { // at first it could be any text
				b.text += pick(r, "", "id\n", "another\n", "other: {}\n")
			}
			data := pick(r, "data: ", "data:")
			b.add("", data+strings.ReplaceAll(styled(r, d), "\n", "\n"+data)+pick(r, "\n", "\nevent: late\n"), "\n")
			b.ends[i]++ // the empty line
		}
		b.text += pick(r, "", "data: [DONE]\n\n", "data: {\"usage\":\n\n", "event: end\n\n")
		return ending(b, pick(r, "\n", "\r\n", "\r"))
	}},
}

// ending is b with another end of line.
func ending(b *body, eol string) *body {
	longer := func(at int) int { return at + strings.Count(b.text[:at], "\n")*(len(eol)-1) }
	for i := range b.begins {
		b.begins[i], b.ends[i] = longer(b.begins[i]), longer(b.ends[i])
	}
	b.text = strings.ReplaceAll(b.text, "\n", eol)
	return b
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// styled is a document with white space, or without.
func styled(r *rand.Rand, document string) string {
	if r.IntN(2) == 0 {
		return document
	}
	return indented(document)
}

func indented(document string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(document), "", "  "); err != nil {
		panic(err)
	}
	return b.String()
}

// someDocuments are objects, of which some, and the last, have a total. totals are what is known
// after each of them.
func someDocuments(r *rand.Rand) (documents []string, totals []any) {
	var total any
	n := 2 + r.IntN(4)
	for i := range n {
		d := map[string]any{"text": pick(r, "hello", "data: {\"usage\": 1}\n\n", "]}", "\\\"", "\x1e\r\n[", "\u2028é"), "list": []any{1.5, map[string]any{"usage": nil}}}
		if i == n-1 || r.IntN(3) == 0 {
			total = r.Int64N(1e6)
			d["usage"] = map[string]any{"total_tokens": total, "of": "this"}
		} else if r.IntN(3) == 0 {
			d["usage"] = nil
		}
		documents = append(documents, string(must(json.Marshal(d))))
		totals = append(totals, total)
	}
	return documents, totals
}

var encoders = map[string][]func(io.Writer) flusher{ // in the order in which they are applied
	"":         nil,
	"gzip":     {func(w io.Writer) flusher { return gzip.NewWriter(w) }},
	"deflate":  {func(w io.Writer) flusher { return zlib.NewWriter(w) }},
	"Deflate":  {func(w io.Writer) flusher { return must(flate.NewWriter(w, 6)) }},
	"br":       {func(w io.Writer) flusher { return brotli.NewWriterLevel(w, 4) }},
	"zstd":     {func(w io.Writer) flusher { return newZstd(w, 64<<10) }},
	"gzip, br": {func(w io.Writer) flusher { return gzip.NewWriter(w) }, func(w io.Writer) flusher { return brotli.NewWriterLevel(w, 4) }},
}

// encoded is text as an upstream sends it that flushes now and then; if it is cut, without its end.
func encoded(r *rand.Rand, encoding, text string, cut bool) []byte {
	data := []byte(text)
	for _, by := range encoders[encoding] {
		var out bytes.Buffer
		w := by(&out)
		for len(data) > 0 {
			n := 1 + r.IntN(len(data))
			w.Write(data[:n])
			w.Flush()
			data = data[n:]
		}
		if !cut {
			w.Close()
		}
		data = out.Bytes()
	}
	return data
}

// The usage is found in whatever form, content type and encoding it comes, however it is divided.
// Of a body that is cut, it is what the documents said that had passed.
func TestForms(t *testing.T) {
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	path := []string{"usage", "total_tokens"}
	total := func(data []byte, kind, encoding string, most int, r *rand.Rand) (any, *usage.Reader) {
		reader := usage.New([][]string{path}, kind, encoding)
		feed(t, reader, data, max(most, 1), r)
		v, _ := reader.Value(path)
		return v, reader
	}
	r := rand.New(rand.NewPCG(attack.Seed(t), 0))
	for range rounds {
		documents, totals := someDocuments(r)
		for _, form := range forms {
			b := form.render(r, documents)
			known := append([]any{nil}, totals...)
			if b.whole {
				known = []any{nil, totals[len(totals)-1]}
			}
			want := known[len(known)-1]
			for encoding := range encoders {
				whole := encoded(r, encoding, b.text, false)
				for _, kind := range []string{form.kind, "", "text/plain; charset=utf-8", "application/octet-stream", "application/json", "text/event-stream", "application/x-ndjson", "not a type"} {
					for _, most := range []int{1, 1 + r.IntN(len(whole)), 1 << 20} {
						got, reader := total(whole, kind, encoding, most, r)
						bytes, events := reader.Passed()
						wantEvents := b.events
						if b.whole && kind == "application/x-ndjson" {
							wantEvents = 1
						}
						if got != want || reader.Err() != nil || bytes != int64(len(b.text)) || events != wantEvents {
							t.Fatalf("%s as %q, %q, parts of %d: %v, %v, %d bytes, %d events, want %v, %d bytes, %d events:\n%q", form.name, kind, encoding, most, got, reader.Err(), bytes, events, want, len(b.text), wantEvents, b.text)
						}
					}
					// The client leaves.
					cut := r.IntN(len(b.text) + 1)
					complete, begun := 0, 0
					for i := range b.ends {
						if b.ends[i] <= cut {
							complete++
						}
						if b.begins[i] < cut {
							begun++
						}
					}
					got, reader := total(encoded(r, encoding, b.text[:cut], true), kind, encoding, 1+r.IntN(len(whole)), r)
					if !slices.Contains(known[complete:begun+1], got) || reader.Err() != nil {
						t.Fatalf("%s as %q, %q, cut at %d: %v, %v, want one of %v:\n%q", form.name, kind, encoding, cut, got, reader.Err(), known[complete:begun+1], b.text[:cut])
					}
					got, reader = total(whole[:r.IntN(len(whole)+1)], kind, encoding, 1+r.IntN(len(whole)), r)
					if !slices.Contains(known, got) || reader.Err() != nil {
						t.Fatalf("%s as %q, %q, cut: %v, %v:\n%q", form.name, kind, encoding, got, reader.Err(), b.text)
					}
				}
			}
		}
	}
}

// What is not JSON among several values is passed over, as far as it can be told from the others.
func TestBrokenValues(t *testing.T) {
	u := func(n int) string { return fmt.Sprintf(`{"usage":{"total_tokens":%d}}`, n) }
	for _, c := range []struct {
		kind, text string
		want       any
		err        bool
	}{
		{"application/jsonl", "oops\n" + u(1) + "\n", int64(1), false},
		{"application/jsonl", "no\n\n" + u(1), int64(1), false},
		{"application/jsonl", `{"usage":{"total_tokens":1}` + "\n" + u(2) + "\n", int64(2), false},
		{"application/jsonl", `{"usage":"1` + "\n" + u(2) + "\n", int64(2), false},
		{"application/jsonl", u(1) + " x\n" + u(2) + "\n{", int64(2), false},
		{"application/jsonl", u(1) + " x\n", nil, false},
		{"application/jsonl", u(1) + u(2) + " x\n" + u(3), int64(3), false},
		{"application/jsonl", u(1) + "\n" + u(2) + u(3) + "\n" + u(4) + " x", int64(3), false},
		{"application/jsonl", "[" + u(1) + ",\n" + u(2) + ",\n" + u(3), int64(3), false},
		{"application/json", u(1) + "\noops\n" + u(2), int64(2), false},
		{"application/json", u(1) + "\n" + `{"usage":` + "\n" + u(2) + "\n", int64(2), false},
		{"application/json", u(1) + "\noops", nil, true},
		{"application/json", u(1) + "\n" + `{"usage":{"total_tokens":2`, int64(1), false},
		{"application/json", u(1) + `{"usage":{"total_tokens":2`, int64(1), false},
		{"application/json", "{\n" + u(1)[1:] + "\n" + u(2) + "\n}", int64(2), false},
		{"application/json", u(1) + u(2) + "}" + u(3) + "\n" + u(4), int64(4), false},
		{"application/json", u(1) + "oops\n" + u(2), nil, true},
		{"application/json", "\x1e" + u(1) + "\n\x1e{\n\x1e" + u(2)[:20], int64(1), false},
		{"text/event-stream", " data: " + u(1) + "\n\n", nil, false},
		{"text/event-stream", "unknown\ndata: " + u(1) + "\ndata: " + u(2) + "\n\n", int64(2), false},
		{"text/plain", "\n data: " + u(1) + "\ndata: " + u(2) + "\n\n", int64(2), false},
		{"text/plain", "database: " + u(1) + "\n\n", nil, true},
		{"text/plain", "5 answers: " + u(1) + "\n\n", nil, true},
	} {
		for seed := range uint64(10) {
			got, err := read(t, []byte(c.text), c.kind, "", seed)
			if got[0] != c.want || (err != nil) != c.err {
				t.Errorf("%s, %q: %v, %v, want %v", c.kind, c.text, got[0], err, c.want)
				break
			}
		}
	}
}

// A path may begin with the index of an element of a list, or with the name of a member of each.
func TestElements(t *testing.T) {
	for _, c := range []struct {
		text, path string
		want       any
		events     int64
	}{
		{`[{"usage": 1}, {"usage": 2}]`, "0 usage", int64(1), 2},
		{`[{"usage": 1}, {"usage": 2}]`, "1 usage", int64(2), 2},
		{`[{"usage": 1}, {"usage": 2}]`, "usage", int64(2), 2},
		{`[{"usage": 1}, {"usage": null}, {}]`, "usage", int64(1), 3},
		{`[{"usage": 1}, [{"usage": 2}], {"x": {"usage": 3}}]`, "usage", int64(1), 2},
		{`[[3, 4], 5]`, "0 1", int64(4), 0},
		{`[[3, 4], 5]`, "1", int64(5), 0},
		{`[[{"0": 1}], 5]`, "0", []any{map[string]any{"0": int64(1)}}, 0},
		{`[{"0": 1, "a": 2}]`, "0 a", int64(2), 1},
		{`[{"0": {"a": 1}}, {"a": 2}]`, "0 a", int64(1), 2},
		{`[{"a": 2, "0": {"a": 1}}]`, "0 a", int64(1), 1},
		{`[{"0": {"a": 1}, "a": 2}]`, "0 a", int64(2), 1},
		{`[{"usage": 1}, {"usage": 2`, "usage", int64(1), 1},
		{`[{"usage": 1}, {"usage": 2`, "1 usage", nil, 1},
		{`[5`, "0", nil, 0},
		{`[]`, "0", nil, 0},
		{"data: [{\"usage\": 1}, {\"usage\": 2}]\n\ndata: []\n\n", "usage", int64(2), 3},
		{"{}\n[{\"usage\": 1}, {\"usage\": 2}]", "usage", int64(2), 3},
	} {
		for most := range 20 {
			path := strings.Fields(c.path)
			r := usage.New([][]string{{"0", "0"}, path, {"other", "usage"}}, "application/json", "")
			feed(t, r, []byte(c.text), most+1, rand.New(rand.NewPCG(uint64(most), 0)))
			got, _ := r.Value(path)
			if _, events := r.Passed(); !reflect.DeepEqual(got, c.want) || events != c.events || r.Err() != nil {
				t.Errorf("%s, %s: %v of %d events, %v, want %v of %d", c.text, c.path, got, events, r.Err(), c.want, c.events)
				break
			}
		}
	}
}
