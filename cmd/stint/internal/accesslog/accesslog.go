// Package accesslog reads the access logs of web servers and proxies: what was requested, by which client and
// when. Several files are read as one log, in order of time.
//
// A line is read in the way its server writes it, or it is counted as unread. Nothing is guessed: what a line
// does not say is zero in its Entry. So the name of a virtual host ($server_name, %v) is not taken for the host
// of a request, and an address in X-Forwarded-For is not taken for the client.
//
// Forms are
//
//	stint, stint-json     the log of stint serve with access: true, whose other lines are counted apart
//	caddy                 Caddy's JSON
//	traefik, traefik-json
//	envoy, istio          their default text; the first has no client
//	haproxy               option httplog or httpslog, whose times have no zone
//	alb                   AWS's Application Load Balancer
//	combined, common      of nginx, Apache and many others; more may follow what combined has
//	main, vhost_combined  combined with X-Forwarded-For after it, or with a virtual host and a port before it
//	json, csv             by well-known names, as the variables of nginx and the keys of Istio, or by Options.Fields
//	template              a format in Options.Format
package accesslog

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"
)

// Entry is a logged request. What its line lacks is zero.
//
// Texts share memory with a block of the log, about 1 MiB: clone what is kept for long.
type Entry struct {
	// At is when the request arrived, in µs since 1970, as near as its line says. Many servers log only when a
	// request ends. If such a line has that time in parts of a second, and how long the request took, At is
	// the difference; else it is the end.
	At int64
	// Client is the peer, or the client behind proxies if the log has that. It has no zone, and an IPv4
	// address is never written as IPv6. Invalid: unknown.
	Client netip.Addr
	// Method is as requested. It is empty, as is Target, if the server did not understand the request.
	Method string
	// Target is the path and the query, as requested. Of an absolute URL it is what follows the host. It is
	// "*" for OPTIONS * and empty for CONNECT.
	Target string
	// Host is from the absolute URL, else the header Host, maybe with a port.
	Host string
	// Status is of the response. 0: there was none, or it is unknown.
	Status int
	// User is who signed in; empty: nobody, or it is unknown.
	User string
	// Operation and Cost are read by Options.Fields only.
	Operation string
	Cost      int64
	// Header has fields of the request whose names are canonical, in the order of the line. The header Host
	// is never among them. A field that the request lacked, which most servers log as "-", is left out.
	Header []Field
	// Attrs are read by Options.Fields only.
	Attrs []Field
	// File is the index in Sources, and Line counts from 1.
	File int
	Line int64
}

// Field is a header field, or an attribute.
type Field struct{ Name, Value string }

// Fields says what a log has about each request.
type Fields struct {
	Client, Method, Path, Query, Host, User, Status, Operation, Cost bool
	// Headers are the canonical names of logged header fields, sorted.
	Headers []string
	// AllHeadersBut, if it is not nil, means that all header fields are logged but for these. Headers is nil then.
	AllHeadersBut []string
	// Attrs are the names of attributes, sorted.
	Attrs []string
}

// Header reports whether the header field with this canonical name is logged.
func (f Fields) Header(name string) bool {
	if f.AllHeadersBut != nil {
		return !slices.Contains(f.AllHeadersBut, name)
	}
	return slices.Contains(f.Headers, name)
}

// and returns what both f and g have.
func (f Fields) and(g Fields) Fields {
	both := Fields{
		Client: f.Client && g.Client, Method: f.Method && g.Method, Path: f.Path && g.Path, Query: f.Query && g.Query,
		Host: f.Host && g.Host, User: f.User && g.User, Status: f.Status && g.Status,
		Operation: f.Operation && g.Operation, Cost: f.Cost && g.Cost,
		Attrs: slices.DeleteFunc(slices.Clone(f.Attrs), func(name string) bool { return !slices.Contains(g.Attrs, name) }),
	}
	if f.AllHeadersBut != nil && g.AllHeadersBut != nil {
		both.AllHeadersBut = sortedSet(slices.Concat([]string{}, f.AllHeadersBut, g.AllHeadersBut))
		return both
	}
	for _, name := range sortedSet(slices.Concat(f.Headers, g.Headers)) {
		if f.Header(name) && g.Header(name) {
			both.Headers = append(both.Headers, name)
		}
	}
	return both
}

func sortedSet(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// Options say how logs are read. The zero Options recognise the form of each file.
type Options struct {
	// Format is the name of a form (Forms), a log_format of nginx or a LogFormat of Apache as it stands in the
	// configuration, or a format string of Envoy. Empty: each file is recognised by its first lines.
	Format string
	// Fields says where fields are in lines of JSON, as in "time=$.ts,ip=$.remote.ip,path=$.uri", or in which
	// columns of CSV, as in "time=when,path=url". Left are time, ip, method, request, path, query, host,
	// status, user, operation, cost, header.NAME and attrs.NAME. Empty: well-known names are used.
	Fields string
	// Zone is of times that have none. nil: UTC. In the hour that a zone has twice, it is taken for the first.
	Zone *time.Location
	// Disorder is by how much an entry may be older than one before it in its file. 0: 1 minute. Older
	// entries are left out, and counted by Late. Entries are held that long, up to 262,144 of each file.
	Disorder time.Duration
	// Now bounds times without a year in what is no regular file: their year is the latest that is at most a
	// day later. A file uses the time of its last change. Zero: the current time.
	Now time.Time
	// Stdin is what "-" reads. nil: os.Stdin.
	Stdin io.Reader
	// Pipe wraps what a named pipe is read through, such as to end it. nil: nothing does.
	Pipe func(io.Reader) io.Reader
}

// Source is a file of a Log.
type Source struct {
	// Path is as given, or that of a file in a directory given; "-" is standard input.
	Path string
	// Form is the name of the form that is read; empty: the file is empty, or not read.
	Form string
	// Skipped says why the file is not read; nil: it is read. Only files of directories are skipped.
	Skipped error
}

// Unread is a line that could not be read.
type Unread struct {
	File int   // index in Sources
	Line int64 // from 1
	Why  string
}

const (
	longestLine     = 1 << 20 // bytes, without the line's end
	defaultDisorder = time.Minute
	mostHeld        = 1 << 18 // entries of a file that wait for older ones
	mostHeldBytes   = 128 << 20
	mostUnread      = 5 // lines that Unread returns
)

func (o Options) withDefaults() (Options, error) {
	if o.Disorder < 0 {
		return o, fmt.Errorf("the disorder of a log is at least 0, not %v", o.Disorder)
	}
	o.Disorder = cmp.Or(o.Disorder, defaultDisorder)
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	if o.Pipe == nil {
		o.Pipe = func(in io.Reader) io.Reader { return in }
	}
	return o, nil
}
