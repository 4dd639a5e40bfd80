// Package replay decides the requests of an access log under other rules, and reports what those would have
// refused.
package replay

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/stintdev/stint/cmd/stint/internal/accesslog"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/rules"
)

// Replay decides requests, and counts the outcomes. It must not be used from several goroutines at once.
type Replay struct {
	has      accesslog.Fields
	sides    []*Side         // the new rules, and those to compare them with
	headers  map[string]bool // that rules read
	sameSeen bool            // both sides see the same clients
	in       rules.Input
	http     rules.Request
	sent     http.Request // as a trusted proxy sent it
	requests int64
	share    float64 // of the requests that the log has; 0: all
	times    float64 // that each request of the log is replayed, because the log is a sample
	owed     float64 // of that, by the requests so far
	first    int64   // µs
	last     int64
	peers    int64 // requests that a trusted proxy sent, for an unknown client
	now      request
	client   client     // of it, as the new rules see it
	outcomes [2]outcome // of it, by side
	host     struct {
		sent, read string
		wrong      error
	}
	values  []string // of the header
	studies []study
	repeats *repeater  // nil: nobody asked
	plan    rules.Plan // for studies
	newly   struct{ refused, passed int64 }
}

// request is the request that is replayed now.
type request struct {
	number, at int64
	status     int
	client     client
	hash       uint64 // of client
	text       []byte // scratch
}

// Known is what rules know of the requests in a log that has these fields.
func Known(has accesslog.Fields) *rules.Known {
	return &rules.Known{
		Client: has.Client, Method: has.Method, Path: has.Path, Query: has.Query, Host: has.Host,
		Operation: has.Operation, Cost: has.Cost, Status: has.Status, Header: has.Header, Attrs: has.Attrs,
	}
}

// New returns a Replay of new rules for the requests of a log. against is nil, or the rules to compare them with.
func New(has accesslog.Fields, rules, against *Side) *Replay {
	r := &Replay{has: has, sides: []*Side{rules}, headers: map[string]bool{}, times: 1}
	r.http.Header = http.Header{}
	if against != nil {
		r.sides = append(r.sides, against)
	}
	for _, s := range r.sides {
		s.begin()
		names, _ := s.Trial.Rules().Headers()
		for _, name := range names {
			r.headers[name] = true
		}
	}
	if against != nil {
		r.sameSeen = rules.seen.Header == against.seen.Header &&
			slices.Equal(rules.seen.Trusted, against.seen.Trusted) && slices.Equal(rules.seen.NAT64, against.seen.NAT64)
	}
	return r
}

// Sampled says that the log has that share of the requests, each chosen at random. So each is replayed several times
// at once, and numbers of requests are estimates. Call it before Add.
func (r *Replay) Sampled(share float64) { r.share, r.times = share, 1/share }

// Add decides a request. Requests come in order of time. The error means that more keys are counted at once than a
// Trial can.
func (r *Replay) Add(ctx context.Context, e *accesslog.Entry) error {
	understood := r.read(e)
	r.owed += r.times
	for ; r.owed > 0.5; r.owed-- {
		if err := r.decide(ctx, e, understood); err != nil {
			return err
		}
	}
	return nil
}

func (r *Replay) decide(ctx context.Context, e *accesslog.Entry, understood bool) error {
	at := time.UnixMicro(e.At)
	r.now.number, r.now.at, r.now.status = r.requests, e.At, e.Status
	if r.requests++; r.requests == 1 {
		r.first = e.At
	}
	r.last = max(r.last, e.At)
	for i, s := range r.sides {
		if i == 0 || !r.sameSeen {
			r.see(e, s)
		}
		if i == 0 {
			r.client = r.now.client
			if understood && len(r.studies) > 0 {
				r.study(ctx)
			}
			if understood && r.repeats != nil {
				if err := r.repeats.add(ctx, &r.in, at); err != nil {
					return err
				}
			}
		}
		if !understood {
			r.outcomes[i] = s.malformed()
			continue
		}
		var err error
		if r.outcomes[i], err = s.decide(ctx, &r.in, at, &r.now); err != nil {
			return err
		}
	}
	if len(r.sides) == 2 {
		r.compare(r.outcomes[0], r.outcomes[1])
	}
	return nil
}

func (r *Replay) compare(now, old outcome) {
	switch {
	case old.allowed && !now.allowed:
		r.newly.refused++
		if now.rule != nil {
			now.rule.newly++
		}
	case now.allowed && !old.allowed:
		r.newly.passed++
		if old.rule != nil {
			old.rule.newly++
		}
	}
}

// read fills in from e. It reports whether a server would understand the request.
func (r *Replay) read(e *accesslog.Entry) bool {
	q := &r.http
	r.in = rules.Input{Request: q, Operation: e.Operation, Cost: e.Cost}
	if e.Cost == 0 {
		r.in.Cost = 1
	}
	clear(q.Header)
	*q = rules.Request{Method: e.Method, Header: q.Header}
	understood := r.readTarget(e)
	if len(r.headers) > 0 {
		r.readHeader(e)
	}
	if len(e.Attrs) > 0 {
		r.in.Attrs = make(map[string]any, len(e.Attrs))
		for _, a := range e.Attrs {
			r.in.Attrs[a.Name] = a.Value
		}
	}
	return understood
}

// see notes the client, as a side sees it: each trusts proxies of its own.
func (r *Replay) see(e *accesslog.Entry, s *Side) {
	r.in.Client = e.Client
	if len(s.seen.Trusted) > 0 {
		r.seeThrough(e, s)
	}
	r.now.client = client{user: e.User}
	if e.User == "" || e.Status == http.StatusUnauthorized { // then it is who the client claims to be
		r.now.client = client{network: networkOf(r.in.Client, s.Trial.Rules().IPv6Prefix)}
	}
	r.now.hash = r.now.client.hash()
}

// readTarget reads what is requested. It reports whether a server would understand that, and not answer 400.
func (r *Replay) readTarget(e *accesslog.Entry) bool {
	q := &r.http
	if e.Target == "" && r.has.Path {
		return false
	}
	if e.Target != "" {
		target, err := rules.ReadTarget(e.Target)
		if err != nil {
			return false
		}
		q.Path, q.RawQuery, q.Ambiguous = target.Path, target.RawQuery, target.Ambiguous
	}
	method, err := rules.ReadMethod(e.Method)
	if err != nil {
		return false
	}
	q.Ambiguous |= method
	if e.Host != r.host.sent {
		r.host.sent = e.Host
		r.host.read, r.host.wrong = httpfield.ReadHost(e.Host)
	}
	q.Host = r.host.read
	return r.host.wrong == nil
}

// readHeader keeps the fields that rules read.
func (r *Replay) readHeader(e *accesslog.Entry) {
	h := r.http.Header
	r.values = r.values[:0]
	for i := range e.Header {
		f := &e.Header[i]
		if !r.headers[f.Name] {
			continue
		}
		if lines := h[f.Name]; lines != nil {
			h[f.Name] = append(slices.Clip(lines), f.Value)
			continue
		}
		r.values = append(r.values, f.Value)
		h[f.Name] = r.values[len(r.values)-1:]
	}
}

// seeThrough finds the client behind a trusted proxy.
func (r *Replay) seeThrough(e *accesslog.Entry, s *Side) {
	trusted := func(p netip.Prefix) bool { return p.Contains(e.Client) }
	if !e.Client.IsValid() || !slices.ContainsFunc(s.seen.Trusted, trusted) {
		return
	}
	r.sent.RemoteAddr = netip.AddrPortFrom(e.Client, 0).String()
	r.sent.Header = http.Header{}
	for _, f := range e.Header {
		r.sent.Header[f.Name] = append(r.sent.Header[f.Name], f.Value)
	}
	if r.in.Client = s.seen.Addr(&r.sent); r.in.Client == e.Client && s == r.sides[0] {
		r.peers++
	}
}
