package accesslog

import (
	"errors"
	"fmt"
	"strings"
)

// template reads the lines of a format: texts that are always the same, and between them a piece for each
// variable.
//
// A piece ends where the text after it begins. Servers escape quotes in what they log, so a piece before a
// quote ends there for certain. Others, such as a user's name before " [", may contain the text that ends
// them: they end where the rest of the line fits.
type template struct {
	begin  string
	pieces []piece
	raw    bool // quotes are not escaped
	more   bool // a blank and any text may follow
}

type piece struct {
	field
	kind  pieceKind
	after string // the text after it; of the last piece it may be empty
	keep  bool   // after begins the next piece
}

type pieceKind uint8

const (
	free   pieceKind = iota // anything
	word                    // without blanks
	digits                  // or -
	quoted                  // up to a quote that is not escaped
	common                  // 02/Jan/2006:15:04:05 -0700
)

const mostPieces = 64

var errNoTimeIn = errors.New("the format has no time")

// newTemplate makes pieces of variables and the texts around them: there is one text more.
func newTemplate(vars []variable, texts []string, raw bool) (*template, error) {
	t := &template{begin: texts[0], raw: raw}
	if len(vars) > mostPieces {
		return nil, fmt.Errorf("the format has %d variables: at most %d can be read", len(vars), mostPieces)
	}
	hasTime := false
	for i, v := range vars {
		p := piece{field: v.field, kind: v.kind, after: texts[i+1]}
		if p.after == "" && i+1 < len(vars) {
			if next := vars[i+1].role; next != path && next != target {
				return nil, fmt.Errorf("the format has nothing between %s and %s, so their texts cannot be told apart", v.name, vars[i+1].name)
			}
			p.after, p.keep, p.kind = "/", true, word // a path begins with it
		} else if strings.HasPrefix(p.after, `"`) && p.kind != common {
			p.kind = quoted
		}
		if p.after != "" && p.kind == digits && isDigit(p.after[0]) {
			p.kind = free
		}
		if raw && p.kind == quoted {
			p.kind = free
		}
		hasTime = hasTime || p.role == arrived || p.role == ended
		t.pieces = append(t.pieces, p)
	}
	if !hasTime {
		return nil, errNoTimeIn
	}
	return t, nil
}

// variable is a variable of a format as it is written there.
type variable struct {
	field
	kind pieceKind
	name string
}

func (t *template) read(line string, d *draft) error {
	starts, ends := &d.starts, &d.ends
	if !t.split(line, starts, ends) {
		return errOfForm
	}
	escaped := !t.raw && strings.IndexByte(line, '\\') >= 0
	for i := range t.pieces {
		p := &t.pieces[i]
		if p.role == ignored {
			continue
		}
		text := line[starts[i]:ends[i]]
		if escaped {
			text = unescape(text)
		}
		if err := d.put(&p.field, text); err != nil {
			return err
		}
	}
	return nil
}

// mostTries bounds how often a line is split anew because its rest does not fit.
const mostTries = 100

// split finds the pieces of a line.
func (t *template) split(line string, starts, ends *[mostPieces]int32) bool {
	if !strings.HasPrefix(line, t.begin) {
		return false
	}
	i, at, from, tries, fixed := 0, len(t.begin), len(t.begin), 0, 0
	for {
		if i == len(t.pieces) {
			if at == len(line) || t.more && line[at] == ' ' {
				return !t.raw || !t.isAmbiguous(line, starts, ends)
			}
		} else if end := t.pieces[i].end(line, at, from, i == len(t.pieces)-1 && !t.more); end >= 0 {
			p := &t.pieces[i]
			starts[i], ends[i] = int32(at), int32(end)
			if i++; p.kind == quoted {
				fixed = i
			}
			if at = end; !p.keep {
				at += len(p.after)
			}
			from = at
			continue
		}
		// The latest piece that may be longer is made so.
		for i--; i >= fixed && t.pieces[i].kind != free; i-- {
		}
		if tries++; i < fixed || tries > mostTries {
			return false
		}
		at, from = int(starts[i]), int(ends[i])+1
	}
}

// end finds where the piece ends that begins at at, not before from; -1: nowhere.
func (p *piece) end(line string, at, from int, last bool) int {
	switch p.kind {
	case common:
		const length = len("02/Jan/2006:15:04:05 -0700")
		if end := at + length; end <= len(line) && line[at+2] == '/' && line[at+20] == ' ' && strings.HasPrefix(line[end:], p.after) {
			return end
		}
		return -1
	case quoted:
		end := strings.IndexByte(line[at:], '"') + at
		if end > at && line[end-1] == '\\' {
			end = endOfQuoted(line, at)
		}
		if end < at || !isAt(line, end, p.after) {
			return -1
		}
		return end
	case word, digits:
		if p.after == "" {
			if strings.IndexByte(line[at:], ' ') >= 0 {
				return -1
			}
			return len(line)
		}
		if p.keep && isAt(line, at, "--") { // neither a host nor a path, of a bad request
			return at + 1
		}
		first := p.after[0]
		for i := at; i < len(line); i++ {
			c := line[i]
			if c == first && isAt(line, i, p.after) {
				return i
			}
			if c == ' ' || c == '"' || p.kind == digits && !isDigit(c) && c != '-' && c != '.' {
				return -1
			}
		}
		return -1
	}
	if !last && from+1 < len(line) && line[from] == '-' && p.after != "" && p.after[0] != '-' && isAt(line, from+1, p.after) {
		return from + 1 // most often there is no user
	}
	if last { // only the end of the line ends it
		end := len(line) - len(p.after)
		if end < from || !strings.HasSuffix(line, p.after) {
			return -1
		}
		return end
	}
	end := strings.Index(line[min(from, len(line)):], p.after)
	if end < 0 || from > len(line) {
		return -1
	}
	return end + from
}

// isAt reports whether a short text is at an index of a line.
func isAt(line string, at int, text string) bool {
	if len(line)-at < len(text) {
		return false
	}
	for i := range len(text) {
		if line[at+i] != text[i] {
			return false
		}
	}
	return true
}

// isAmbiguous reports whether a line may be split in another way too, as quotes are not escaped. A request line
// has two blanks, and a target has none.
func (t *template) isAmbiguous(line string, starts, ends *[mostPieces]int32) bool {
	for i := range t.pieces {
		p := &t.pieces[i]
		if p.kind != free {
			continue
		}
		text := line[starts[i]:ends[i]]
		bad := false
		switch {
		case p.role == request:
			bad = strings.Count(text, " ") > 2
		case p.role == target:
			bad = strings.IndexByte(text, ' ') >= 0
		case strings.HasPrefix(p.after, `"`):
			bad = strings.Contains(text, `" `) || strings.Contains(text, ` "`)
		default:
			bad = strings.IndexByte(text, '"') >= 0
		}
		if bad {
			return true
		}
	}
	return false
}

// templateForm is the form of lines of one of several templates; the first that fits is used.
func templateForm(name string, ts ...*template) form {
	return form{name: name, of: always(templates(ts))}
}

type templates []*template

func (ts templates) read(line string, d *draft) error {
	for i, t := range ts {
		err := t.read(line, d)
		if err != errOfForm || i == len(ts)-1 {
			return err
		}
	}
	return errOfForm
}

// compile makes a template of a format as it stands in a configuration of nginx, Apache or Envoy.
func compile(format string) (*template, error) {
	format = strings.TrimSpace(format)
	switch {
	case strings.HasPrefix(format, "log_format"):
		return compileNginx(format)
	case isApacheLine(format):
		return compileApache(format)
	case strings.Contains(format, "%START_TIME"):
		return compileEnvoy(format)
	case strings.Contains(format, "$"):
		return compileNginx(format)
	}
	return compileApache(format)
}
