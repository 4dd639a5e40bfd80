package accesslog

import (
	"errors"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// role is what a text of a line says about its request.
type role uint8

const (
	ignored   role = iota
	arrived        // when the request arrived
	ended          // when it ended; with a rank, always in parts of a second
	took           // how long it took, in s
	client         // an address, maybe with a port
	peer           // an address, and a port after the last colon
	method         // GET
	request        // GET /a?b HTTP/1.1
	target         // /a?b, or an absolute URL
	path           // without the query
	place          // a path, maybe with a query, or a URL
	query          // without its ?, or with it
	host           // the header Host, or what the server takes for it
	status         // of the response
	user           // who signed in
	operation      // of a check
	cost           // of a check
	header         // named
	anyHeader      // all header fields, by their names
	attr           // named
	required       // must be one text, or the line is no request
	stintPath      // as the gateway of Stint logs it
)

// field is a role with the name of its header field or attribute. Of two texts for one thing, that with the
// higher rank counts.
type field struct {
	role role
	name string
	rank uint8
}

var (
	errNoTime   = errors.New("there is no time")
	errTime     = errors.New("the time cannot be read")
	errStatus   = errors.New("the status is not a number")
	errCost     = errors.New("the cost is not a whole number from 0")
	errNothing  = errors.New("it has neither a request nor an operation")
	errOther    = errors.New("it is not about a request") // the line is well formed
	errDuration = errors.New("how long it took is not a number")
)

// draft is an Entry that is being read. It belongs to one goroutine.
type draft struct {
	*Entry
	times   clock
	headers slab
	attrs   slab
	starts  [mostPieces]int32 // of the pieces of a template in a line
	ends    [mostPieces]int32
	seen    map[field]bool // if it is not nil, the fields that lines have are noted in it

	path, query                    string
	time, end, took                int64
	timeRank, clientRank, hostRank uint8 // of what is there
	hasTime, hasEnd, endIsFine     bool
	isRequest                      bool // by the text that is required
	asked                          bool // there was a request, or an operation
	inURL                          bool // Host is from an absolute URL
}

// begin begins a line.
func (d *draft) begin(e *Entry, file int, line int64) {
	*e = Entry{File: file, Line: line}
	d.Entry = e
	d.path, d.query, d.took = "", "", 0
	d.timeRank, d.clientRank, d.hostRank = 0, 0, 0
	d.hasTime, d.hasEnd, d.endIsFine, d.asked, d.inURL, d.isRequest = false, false, false, false, false, false
	d.headers.drop()
	d.attrs.drop()
}

// put takes a text of the line. Its error is why the line cannot be read.
func (d *draft) put(f *field, text string) error {
	if d.seen != nil {
		d.saw(f)
	}
	switch f.role {
	case ignored:
	case arrived:
		return d.putTime(f, text)
	case ended:
		at, ok := d.times.parse(text)
		if !ok {
			return errTime
		}
		d.end, d.hasEnd = at, true
		d.endIsFine = f.rank > 0 || strings.IndexByte(text, '.') >= 0
	case took:
		s, err := strconv.ParseFloat(text, 64)
		if text == "-" || text == "" {
			return nil
		}
		if err != nil || !(s >= 0 && s < math.MaxInt64/second) {
			return errDuration
		}
		d.took = int64(s*second + 0.5)
	case client:
		d.putClient(f, clientOf(text))
	case peer:
		d.putClient(f, peerOf(text))
	case method:
		if d.asked = true; text != "-" {
			d.Method = text
		}
	case request:
		d.putRequest(text)
	case target:
		d.putTarget(text)
	case path, place:
		d.asked, d.path = true, text
	case stintPath:
		d.asked, d.path = true, loggedByStint(text)
	case query:
		if text != "-" {
			d.query = strings.TrimPrefix(text, "?")
		}
	case host:
		if text != "-" && text != "" && !d.inURL && f.rank >= d.hostRank {
			d.Host, d.hostRank = text, f.rank
		}
	case status:
		return d.putStatus(text)
	case user:
		if text != "-" && text != `""` { // Apache's, for a name without letters
			d.User = text
		}
	case operation:
		d.asked, d.Operation = true, text
	case cost:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return errCost
		}
		d.Cost = n
	case header:
		if text != "-" && text != "" {
			d.headers.add(Field{f.name, text})
		}
	case attr:
		d.attrs.add(Field{f.name, text})
	case required:
		if d.isRequest = text == f.name; !d.isRequest {
			return errOther
		}
	}
	return nil
}

func (d *draft) saw(f *field) {
	if d.seen != nil {
		d.seen[*f] = true
	}
}

func (d *draft) putTime(f *field, text string) error {
	if f.rank < d.timeRank || text == "-" && f.rank > 0 {
		return nil
	}
	at, ok := d.times.parse(text)
	if !ok {
		return errTime
	}
	d.time, d.hasTime, d.timeRank = at, true, f.rank
	return nil
}

func (d *draft) putClient(f *field, a netip.Addr) {
	if a.IsValid() && f.rank >= d.clientRank {
		d.Client, d.clientRank = a, f.rank
	}
}

func (d *draft) putStatus(text string) error {
	if len(text) == 3 {
		if n := number(text); n >= 0 {
			d.Status = n
			return nil
		}
	}
	if text == "-" || text == "" || text == "0" || text == "-1" { // there was no response
		return nil
	}
	return errStatus
}

// putRequest takes a request line. If it is none, as that of a port scan, the server understood no request,
// and there is no method.
func (d *draft) putRequest(text string) {
	d.asked = true
	i := strings.IndexByte(text, ' ')
	if i <= 0 || !isToken(text[:i]) || text[:i] == "-" {
		return
	}
	to := len(text)
	if j := strings.LastIndexByte(text, ' '); j > i && strings.HasPrefix(text[j:], " HTTP/") {
		to = j
	}
	d.Method = text[:i]
	if d.putTarget(text[i+1 : to]); d.Target == "" && d.Host == "" {
		d.Method = ""
	}
}

// putTarget takes the target of a request line (RFC 9112, section 3.2).
func (d *draft) putTarget(text string) {
	d.asked = true
	if text == "" || text == "-" {
		return
	}
	if text[0] == '/' || text == "*" {
		d.Target = text
		return
	}
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case ok && scheme != "" && isToken(scheme):
		to := strings.IndexAny(rest, "/?#")
		if to < 0 {
			to = len(rest)
		}
		d.setHost(withoutDefaultPort(scheme, rest[:to]))
		switch rest = rest[to:]; {
		case rest == "":
			d.Target = "/"
		case rest[0] != '/':
			d.Target = "/" + rest
		default:
			d.Target = rest
		}
	case d.Method == "CONNECT":
		d.setHost(text)
	}
}

func (d *draft) setHost(text string) {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		text = text[i+1:]
	}
	if text != "" {
		d.Host, d.inURL = text, true
	}
}

// withoutDefaultPort is a host as clients write it in the header Host.
func withoutDefaultPort(scheme, host string) string {
	switch {
	case strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "ws"):
		return strings.TrimSuffix(host, ":80")
	case strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "wss"):
		return strings.TrimSuffix(host, ":443")
	}
	return host
}

// isToken reports whether text may be a method (RFC 9110, section 5.6.2), or a scheme.
func isToken(text string) bool {
	for i := range len(text) {
		if !tokenBytes[text[i]] {
			return false
		}
	}
	return text != ""
}

var tokenBytes = func() (is [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		is[c] = true
	}
	return is
}()

// finish completes the Entry. Its error is why the line cannot be read, or errOther.
func (d *draft) finish() error {
	switch {
	case d.hasTime:
		d.At = d.time
	case d.hasEnd && d.endIsFine:
		d.At = max(d.end-d.took, 0)
	case d.hasEnd:
		d.At = d.end
	default:
		return errNoTime
	}
	if !d.asked {
		return errNothing
	}
	if d.path != "" && d.Target == "" {
		d.putTarget(d.path)
	}
	if d.query != "" && d.Target != "" && strings.IndexByte(d.Target, '?') < 0 {
		d.Target += "?" + d.query
	}
	d.Header, d.Attrs = d.headers.take(), d.attrs.take()
	return nil
}

// slab holds the Fields of many entries.
type slab struct {
	all  []Field
	from int // of the entry that is being read
}

const slabLength = 4096

func (s *slab) add(f Field) {
	if len(s.all) == cap(s.all) {
		mine := s.all[s.from:]
		s.all, s.from = append(make([]Field, 0, max(slabLength, 2*len(mine))), mine...), 0
	}
	s.all = append(s.all, f)
}

// drop forgets what was added since take.
func (s *slab) drop() { s.all = s.all[:s.from] }

// take returns what was added since the last call; nil: nothing was.
func (s *slab) take() []Field {
	from := s.from
	s.from = len(s.all)
	if from == s.from {
		return nil
	}
	return s.all[from:s.from:s.from]
}
