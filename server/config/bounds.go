package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/counts"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/internal/offenders"
)

// Instance bounds what one instance accepts at the gateway and the check API, regardless of rules and store.
// It never bounds /healthz, /readyz, /metrics and the admin API.
type Instance struct {
	// Limit bounds the requests that the rules allow at this instance, at both APIs together, one unit each.
	// nil: no bound.
	Limit *stint.Limit
	// InFlight bounds the requests in flight at the gateway, and separately as many at the check API,
	// including /v1/authorize. One client cannot take all of them: see httplimit.Middleware.MaxInFlight. An
	// upgraded connection does not count. 0: no bound. ByMemory: up to 10,000.
	InFlight int64
	// Bytes bounds the memory for bodies and headers of requests in flight, including buffers for reading. A
	// request that does not fit is refused. 0: no bound. ByMemory: an eighth of the memory.
	Bytes int64
}

// String returns the three bounds as text.
func (i Instance) String() string {
	limit := "none"
	if i.Limit != nil {
		limit = i.Limit.String()
	}
	bytes := "bytes by memory"
	if i.Bytes != ByMemory {
		bytes = ByteSize(i.Bytes).String()
	}
	inFlight := "by memory"
	if i.InFlight != ByMemory {
		inFlight = strconv.FormatInt(i.InFlight, 10)
	}
	return fmt.Sprintf("%s, %s in flight, %s", limit, inFlight, bytes)
}

// defaultInFlight is far above the load of a healthy instance. With little memory, it is less.
const defaultInFlight = 10_000

func (i *Instance) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "limit", Value: schema.Parsed(r, &i.Limit, stint.ParseLimit, schema.Limit()), Example: "20000 per 1s burst 1000",
			Says: "Limit for requests that the rules allow here, at both together, one unit each."},
		{Name: "in_flight", Value: byMemory(r, &i.InFlight, 1, 1<<31), Computed: "by memory, up to 10,000", Example: "2000",
			Says: "Most requests in flight at the gateway, and as many at the check API. One client cannot take all."},
		{Name: "in_flight_bytes", Value: schema.Parsed(r, &i.Bytes, parseByteSize, schema.Size("1MiB", "")).ByDefault(func() { i.Bytes = ByMemory }, func() string { return ByteSize(i.Bytes).String() }), Computed: "an eighth of the memory", Example: "256MiB",
			Says: "Most memory for bodies and headers of requests in flight. Requests that do not fit are refused."},
	}
}

// ByMemory is the value of a bound that depends on the memory; see Settings.FitMemory.
const ByMemory = -1

// Bounds that no setting changes.
const (
	// MaxAdminBody is the size of the largest body of the admin API, in bytes: the largest rules, escaped,
	// and the members around them.
	MaxAdminBody = 2*yamlnode.MaxFile + 1<<16
	// AdminBytes is how many bytes the bodies of the admin API may take together.
	AdminBytes = 2*MaxAdminBody + 1<<20
	// MaxPreviewKeys is how many keys a preview of rules counts under each of the two sets.
	MaxPreviewKeys = 10_000
	// MaxCountedBans is how many bans an instance remembers, of those imposed
	// through it, for the metric of running bans.
	MaxCountedBans = 100_000
	// AlertBytes is how many bytes the alerts of the rules take: states, measured numbers and keys.
	AlertBytes = 5 << 20
	// MaxSeries is how many rules have a series of the last minutes. If there are more, the one idle for
	// longest is dropped.
	MaxSeries = 1_000
	// MaxSessions is how many browsers can be signed in to the dashboard of an instance.
	MaxSessions = 1000
	// MaxWrongTokens is how many wrong tokens, and how many clients that sent them, the admin API
	// keeps.
	MaxWrongTokens = 4096
)

// Footprint is the most memory that an instance takes, by its bounds.
type Footprint struct {
	// Memory is the number of bytes for which the bounds were made. From is its source: "setting", "cgroup",
	// "machine" or "unknown".
	Memory int64
	From   string
	Parts  []Part // the program itself comes first
	// Files is how many files this process may have open, including connections; 0: not known.
	Files       int64
	connections int64 // of each listener
	// Exceeds is the memory of the cgroup or the machine, in bytes, if the setting exceeds it; else 0.
	Exceeds int64
}

// Part is up to Most things of one kind, which Name says in words, each of up to Each bytes.
type Part struct {
	Name string
	Most int64
	Each int64
}

// Sum returns the bytes of all parts.
func (f *Footprint) Sum() (n int64) {
	for _, p := range f.Parts {
		n += p.Most * p.Each
	}
	return n
}

// The bytes of one of each. Tests compare them with the heap (see docs/bounds.md), except for
// connections and requests, which are estimates.
const (
	programBytes    = 64 << 20 // before any request, with the work of the collector
	keyBytes        = 250
	connectionBytes = 32 << 10
	requestBytes    = 48 << 10
	denialBytes     = 1200
	leaseBytes      = 400
	banBytes        = 128
	seriesBytes     = 5000
	sessionBytes    = 400
	bucketBytes     = 1200 // of the quota service, TestBytesOfASubscription
	offenderBytes   = 270
)

const (
	// ownFiles is how many files are kept for uses other than client connections: the store, logs, rules.
	ownFiles = 128
	// filesEach is the number of the other files for each connection of a listener: its own, one to an
	// upstream, and one for the other listeners.
	filesEach = 3
)

// unknownMemory is assumed if neither the cgroup nor the machine reports its memory.
const unknownMemory = 4 << 30

// FitMemory sets the bounds that are ByMemory, so that all of them together fit into
// s.Memory; if that is 0, into the memory of this process's cgroup or else of the machine.
// A second call changes nothing.
func (s *Settings) FitMemory() Footprint {
	f := Footprint{Memory: s.Memory, From: "setting", Files: openFiles()}
	there, from := memory(rootFS)
	switch {
	case f.Memory == 0:
		f.Memory, f.From = there, from
	case f.Memory > there:
		f.Exceeds = there
	}
	if f.Memory == 0 {
		f.Memory, f.From = unknownMemory, "unknown"
	}
	verifies, beside := s.JWT != nil && !s.JWT.Trusted, int64(0)
	if verifies {
		beside = f.TokenBytes()
	}
	if s.Envoy != nil {
		beside += f.QuotaBuckets() * bucketBytes
	}
	rest := f.Memory - beside*3/2 // the shares add up to two thirds of it
	fit := func(to *int64, share, each, least, most int64) {
		if *to == ByMemory {
			*to = min(max(rest/share/each, least), most)
		}
	}
	listeners := int64(4)
	if s.Envoy != nil {
		listeners = 8
	}
	fitted := s.MaxConnections == ByMemory
	const flights = 2 // the gateway's and the check API's
	fit(&s.MaxKeys, 6, keyBytes, 10_000, counts.DefaultRoom)
	fit(&s.MaxConnections, 6, connectionBytes*listeners, 256, 50_000)
	if f.Files > 0 && fitted {
		s.MaxConnections = min(s.MaxConnections, max((f.Files-ownFiles)/filesEach, 16))
	}
	f.connections = s.MaxConnections
	fit(&s.Instance.InFlight, 8, requestBytes*flights, 500, defaultInFlight)
	fit(&s.Instance.Bytes, 8, 1, 8<<20, 1<<40)
	fit(&s.RememberedDenials, 12, denialBytes, 1000, fleet.DefaultMaxDenials)
	f.Parts = []Part{
		{"program", 1, programBytes},
		{"keys", cmp.Or(s.MaxKeys, counts.DefaultRoom), keyBytes},
		{"holds", counts.HoldsBeside(cmp.Or(s.MaxKeys, counts.DefaultRoom)), counts.BytesOfAHold},
		{"connections", listeners * s.MaxConnections, connectionBytes},
		{"requests in flight", flights * s.Instance.InFlight, requestBytes},
		{"bytes of bodies and headers in flight", s.Instance.Bytes, 1},
		{"bodies of the admin API", AdminBytes, 1},
		{"bans, for the metric", MaxCountedBans, banBytes},
		{"alerts", AlertBytes, 1},
		{"series of rules", MaxSeries, seriesBytes},
		{"sessions of the dashboard", MaxSessions, sessionBytes},
		{"wrong tokens of the admin API", 2 * MaxWrongTokens, keyBytes},
	}
	if verifies {
		f.Parts = append(f.Parts, Part{"verified tokens of clients", f.TokenBytes(), 1})
	}
	if s.Envoy != nil {
		f.Parts = append(f.Parts, Part{"buckets of Envoy's quotas", f.QuotaBuckets(), bucketBytes})
	}
	if s.Offenders > 0 {
		f.Parts = append(f.Parts,
			Part{"offenders", offenders.Kinds * s.Offenders, offenderBytes},
			Part{"requests whose offenders are not counted yet", offenders.Bytes, 1})
		if s.Store == "memory" {
			f.Parts = append(f.Parts, Part{"history of offenders", offenders.HistoryBytes, 1})
		}
	}
	if s.RecentRequests > 0 {
		f.Parts = append(f.Parts,
			Part{"recent requests", s.RecentRequests, 1},
			Part{"keys of a preview", 2 * MaxPreviewKeys, keyBytes})
	}
	if s.Traces != nil {
		f.Parts = append(f.Parts, Part{"spans to be sent", MaxSpans, spanBytes})
	}
	if s.Store != "memory" {
		f.Parts = append(f.Parts,
			Part{"remembered denials", s.RememberedDenials, denialBytes},
			Part{"leases", fleet.DefaultMaxLeases, leaseBytes},
			Part{"spent while the store is away", f.MaxOwed(), 1},
			Part{"settlements that wait for the store", f.MaxOwed(), 1})
	}
	return f
}

// MaxOwed returns how many bytes may be kept about admissions while the store is down, and separately about
// settlements that failed.
func (f *Footprint) MaxOwed() int64 { return min(fleet.DefaultMaxOwed, f.Memory/64) }

// TokenBytes returns how many bytes verified tokens of clients may take.
func (f *Footprint) TokenBytes() int64 { return min(32<<20, f.Memory/64) }

// QuotaBuckets returns how many buckets the streams of Envoy's quota service may have.
func (f *Footprint) QuotaBuckets() int64 { return min(max(f.Memory/32/bucketBytes, 1000), 100_000) }

// Log logs f in a short line and, for debugging, in a long one. It warns if f exceeds the memory, or the
// files that may be open.
func (f *Footprint) Log(l *slog.Logger) {
	args := []any{"memory", ByteSize(f.Memory).String(), "from", f.From, "sum", ByteSize(f.Sum()).String()}
	l.Info("memory of this instance; stint status has its parts", args...)
	for _, p := range f.Parts[1:] {
		name := strings.ReplaceAll(strings.ReplaceAll(p.Name, ",", ""), " ", "_")
		if p.Each == 1 {
			args = append(args, name, ByteSize(p.Most).String())
		} else {
			args = append(args, name, p.Most)
		}
	}
	l.Debug("memory bounds of this instance", args...)
	if n := f.connections; f.Files > 0 && n*filesEach > f.Files-ownFiles {
		l.Warn("max_connections is more than a third of the files that this process may have open: lower it, or raise the limit of open files",
			"max_connections", n, "open_files", f.Files)
	}
	if f.Exceeds > 0 {
		l.Warn("server.memory exceeds the memory of this machine or container: the system may kill this process before its bounds take effect; lower it, or leave it out",
			"memory", ByteSize(f.Memory).String(), "available", ByteSize(f.Exceeds).String())
	}
	if f.Sum() > f.Memory*95/100 {
		l.Warn("the bounds of this instance exceed its memory: lower max_keys, max_connections or instance.in_flight_bytes, or give it more memory",
			"memory", ByteSize(f.Memory).String(), "sum", ByteSize(f.Sum()).String())
	}
}
