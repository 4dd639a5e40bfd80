// Package yamlnode reads YAML strictly and says where it is wrong: every problem
// is a line "file:line:column: what", and one reading gathers as many of them as
// it can instead of stopping at the first.
//
// A [Reader] holds one file. Its caller walks the file by passing [Reader.Mapping] a table of the
// fields, each with a function that reads it; the typed readers ([Reader.Text], [Reader.Int64], …)
// make such functions. A variable that cannot be read is left as it was and reported, so a caller
// checks [Reader.Err] once, at the end.
//
// Only plain YAML is read: one document, valid UTF-8, no anchors, aliases, merge
// keys or explicit tags. Rules files need none of them, and without them a small file cannot expand
// to a huge one.
package yamlnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Node is a place in a file: a mapping, a list or a scalar.
type Node = yaml.Node

const (
	// MaxFile is the size of the longest file that is read, in bytes.
	MaxFile     = 4 << 20
	maxProblems = 20
	// maxKept is how many problems are kept to be sorted, if nothing in a file is right.
	maxKept = 1000
	// longestProblem is the length of its text, in bytes.
	longestProblem = 1000
)

// Reader reads one file and gathers its problems. Open returns it. Not safe for concurrent use.
type Reader struct {
	file     string
	data     []byte
	lines    []string // the file's lines, split when a position is first needed
	problems []Problem
	more     int    // problems beyond maxKept
	prefix   string // of each problem's text
	// field is the name of the field that Mapping is reading, and value its value.
	field string
	value *Node
	from  map[*Node]string // of values that are not from the file
	// Outside returns the value of a ${...}; see Expand. nil: there are none.
	Outside func(reference string) (string, error)
}

// Problem is one thing wrong with a file.
type Problem struct {
	// Line and Column count from 1, Column in characters.
	Line, Column int
	Text         string
	// From names the source of the value if that is not the file, such as an environment variable;
	// there is no Line then. Empty: the file.
	From string
}

func (p *Problem) in(file string) string {
	if p.From != "" {
		return p.From + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", file, p.Line, p.Column, p.Text)
}

// Error has the problems of a file: at least one, sorted by position.
type Error struct {
	File string
	// Problems holds the first 20.
	Problems []Problem
	// More is how many more there are.
	More int
}

// Error is a line for each problem.
func (e *Error) Error() string {
	var b strings.Builder
	for i := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Problems[i].in(e.File))
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more", e.File, e.More)
	}
	return b.String()
}

// Open parses data, which it keeps, and returns the root, or nil if the file is refused as a whole:
// see Err. file names it in errors. Reading a nil Node reads and reports nothing.
func Open(file string, data []byte) (*Reader, *Node) {
	r := &Reader{file: file, data: bytes.TrimPrefix(data, []byte("\ufeff"))}
	if len(r.data) > MaxFile {
		r.reportAt(1, 1, "the file has %d bytes: at most %d", len(r.data), MaxFile)
		return r, nil
	}
	if !r.characters() {
		return r, nil
	}
	root := r.parse()
	if root == nil || !r.plain(root) {
		return r, nil
	}
	return r, root
}

// Clone returns a Reader of the same file that gathers problems of its own, beside those of r so far.
func (r *Reader) Clone() *Reader {
	c := *r
	c.problems = slices.Clone(r.problems)
	return &c
}

func (r *Reader) parse() *Node {
	d := yaml.NewDecoder(turns{bytes.NewReader(r.data)})
	var doc, second Node
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		r.reportAt(1, 1, "the file is empty")
		return nil
	}
	if err == nil {
		switch err = d.Decode(&second); {
		case errors.Is(err, io.EOF):
			return doc.Content[0]
		case err == nil:
			r.reportAt(second.Line, second.Column, "a second document: there must be only one")
			return nil
		}
	}
	line, text := splitLine(err)
	column := 1
	if at, in := mistakeAt(r.data); at > 0 {
		line, column = at, in
	}
	r.reportAt(line, column, "%s", text)
	return nil
}

// oneLine escapes text of the file for a message: the tag !%0a is a new line.
func oneLine(s string) string { return strings.Trim(strconv.Quote(s), `"`) }

// yamlHints are the probable causes of errors of package yaml, by their texts.
var yamlHints = map[string]string{
	"found character that cannot start any token":    ": indent by spaces, not tabs, and quote a text that begins with @ or `",
	"mapping values are not allowed in this context": `: quote a text that holds ": ", and indent the fields of one mapping alike`,
}

// turns lets other goroutines have a turn at each reading of the decoder, which asks for half a KiB. A file may
// take 100 ms, and while it is read in the background, requests should not wait for the 10 ms after which Go takes
// turns by itself.
type turns struct{ from *bytes.Reader }

func (t turns) Read(to []byte) (int, error) {
	runtime.Gosched()
	return t.from.Read(to)
}

// takeTurns is like turns, for a loop over a list that may be long.
func takeTurns(i int) {
	if i%64 == 63 {
		runtime.Gosched()
	}
}

// splitLine splits an error of package yaml, "yaml: line 3: what". The line may be missing, or that
// of the block.
func splitLine(err error) (int, string) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, what, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				return line, "not YAML: " + what + yamlHints[what]
			}
		}
	}
	return 1, "not YAML: " + text
}

// characters reports the first character that YAML does not allow; package yaml does not tell its
// place.
func (r *Reader) characters() bool {
	line, column := 1, 1
	for rest := r.data; len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		switch {
		case c == utf8.RuneError && size == 1:
			r.reportAt(line, column, "not valid UTF-8")
			return false
		case c < ' ' && c != '\n' && c != '\r' && c != '\t', c >= 0x7f && c < 0xa0 && c != 0x85, c >= 0xfffe && c <= 0xffff, c == 0xfeff:
			r.reportAt(line, column, "the character %U is not allowed", c)
			return false
		case c == '\n':
			line, column = line+1, 0
		}
		column++
		rest = rest[size:]
	}
	return true
}

// plain reports nodes under n that this package does not read.
func (r *Reader) plain(n *Node) bool {
	before := len(r.problems)
	if before == maxKept {
		return false
	}
	switch {
	case n.Kind == yaml.AliasNode:
		r.Report(n, "aliases (*%s) are not allowed", oneLine(n.Value))
	case n.Anchor != "":
		r.Report(n, "anchors (&%s) are not allowed", oneLine(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		r.Report(n, "explicit tags (%s) are not allowed", oneLine(n.Tag))
	}
	for i, child := range n.Content {
		takeTurns(i)
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Tag == "!!merge" {
			r.Report(child, "merge keys (<<) are not allowed")
			continue
		}
		r.plain(child)
	}
	return len(r.problems) == before
}

// Report notes a problem at n. It does nothing if n is nil.
func (r *Reader) Report(n *Node, format string, args ...any) {
	if n == nil {
		return
	}
	before := len(r.problems)
	r.reportAt(n.Line, n.Column, format, args...)
	if from := r.from[n]; from != "" && len(r.problems) > before {
		p := &r.problems[before]
		p.From, p.Line, p.Column = from, 0, 0
	}
}

// ReportWithin notes a problem at the character offset of n's text, as exactly as Position can.
func (r *Reader) ReportWithin(n *Node, offset int, format string, args ...any) {
	line, column := r.Position(n, offset)
	r.reportAt(line, column, format, args...)
}

// Place is the place of n: file:line:column, or its source outside the file.
func (r *Reader) Place(n *Node) string {
	if from := r.from[n]; from != "" {
		return from
	}
	return fmt.Sprintf("%s:%d:%d", r.file, n.Line, n.Column)
}

// File names the file.
func (r *Reader) File() string { return r.file }

// PlaceWithin is the place of a character of n's text, as in ReportWithin.
func (r *Reader) PlaceWithin(n *Node, offset int) string {
	line, column := r.Position(n, offset)
	return fmt.Sprintf("%s:%d:%d", r.file, line, column)
}

func (r *Reader) reportAt(line, column int, format string, args ...any) {
	if len(r.problems) == maxKept {
		r.more++
		return
	}
	text := clip(r.prefix+fmt.Sprintf(format, args...), longestProblem)
	r.problems = append(r.problems, Problem{Line: max(line, 1), Column: max(column, 1), Text: text})
}

// Err is nil if nothing was reported, else an *Error.
func (r *Reader) Err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, byPlace)
	told := min(len(r.problems), maxProblems)
	return &Error{File: r.file, Problems: slices.Clone(r.problems[:told]), More: len(r.problems) - told + r.more}
}

// Problems is how many problems were reported so far.
func (r *Reader) Problems() int { return len(r.problems) + r.more }
