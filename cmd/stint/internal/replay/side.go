package replay

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/cmd/stint/internal/sample"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/heavy"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// Side is one of the rules that are replayed. Name is where they come from. Lacks are those that cannot be tried.
// ClientHeader is the setting client_header.
type Side struct {
	Name         string
	Trial        *server.Trial
	Lacks        []rules.Lack
	ClientHeader string

	seen     httplimit.Clients
	refused  int64
	outcomes [32]int64 // by kind
	names    [32]string
	rules    []*ruleTally
	places   map[*rules.Rule]int // in rules
	clients  sample.Sample[*clientTally]
	hit      map[uint64]struct{} // hashes of refused clients: all, or too many to count here
}

// client is who sends requests: an address, or who signed in.
type client struct {
	network netip.Prefix // an IPv4 address, or the network that identifies a client of IPv6
	user    string       // with a user, network is zero
}

func (c client) String() string {
	if c.user != "" {
		return c.user
	}
	if c.network.IsSingleIP() {
		return c.network.Addr().String()
	}
	return c.network.String()
}

// networkOf is the address, or of IPv6 the network, that identifies a client.
func networkOf(a netip.Addr, ipv6Prefix int) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = ipv6Prefix
	}
	network, _ := a.Prefix(bits) // none, if a is not known
	return network
}

func (c client) known() bool { return c != client{} }

func (c client) hash() uint64 {
	if c.user != "" {
		return sample.Hash(c.user)
	}
	b := c.network.Addr().As16()
	return xxhash.Sum64(b[:])
}

// clientTally counts the requests of a client.
type clientTally struct {
	client
	requests, refused int64
	well              int64 // of those that passed: answered with a status below 400
	first, last       int64 // µs
	byRule            []refusedBy
}

// refusedBy counts the requests of a client that a rule refuses. In shadow mode, some of them pass, and of those,
// well are answered with a status below 400.
type refusedBy struct {
	rule                int // in Side.rules
	times, passed, well int64
}

// ruleTally counts the requests that a rule applies to.
type ruleTally struct {
	rule              *rules.Rule
	requests, refused int64
	newly             int64 // refused, and pass on the other side
	bans              int64
	keys              sample.Sample[*keyTally]
	most              *heavy.Summary // of refused keys
	hours             map[int64]*hourTally
	hour              *hourTally // the last one
	at                int64      // the hour of that
	mark              int64      // the request that was counted last
	refusing          bool       // it
}

type keyTally struct{ requests, refused int64 }

type hourTally struct{ requests, refused int64 }

// mostRefusedKeys is how many refused keys are followed at once: a key with more than a thousandth of all refusals
// is never missed. Up to so many keys or clients are counted exactly: a sample may miss the few that are refused.
const mostRefusedKeys = 1000

func (s *Side) begin() {
	s.places = map[*rules.Rule]int{}
	s.clients, s.hit = sample.New[*clientTally](mostKept), map[uint64]struct{}{}
	set := s.Trial.Rules()
	s.seen = httplimit.Clients{Trusted: set.TrustedProxies, Header: s.ClientHeader, NAT64: set.NAT64}
	for _, r := range set.Rules {
		if r.Mode == rules.Off {
			continue
		}
		s.places[r] = len(s.rules)
		s.rules = append(s.rules, &ruleTally{rule: r, keys: sample.New[*keyTally](mostKept),
			most: heavy.New(mostRefusedKeys), hours: map[int64]*hourTally{}, mark: -1})
	}
}

// outcome is what became of a request on one side.
type outcome struct {
	name    string
	allowed bool
	rule    *ruleTally // that refused; nil: none did
}

// mostHours is how many hours are told apart: 15 years, more than any log has.
const mostHours = 1 << 17

const hourLong = int64(time.Hour / time.Microsecond)

// malformed is the outcome of requests that a server would answer with 400. Its place among kinds is 0, which is no
// decision's.
const malformed = "malformed"

// decide decides a request, and counts it.
func (s *Side) decide(ctx context.Context, in *rules.Input, at time.Time, q *request) (outcome, error) {
	v, err := s.Trial.Decide(ctx, in, at)
	if errors.Is(err, stint.ErrRequest) {
		return s.malformed(), nil
	}
	if err != nil {
		return outcome{}, err
	}
	s.count(int(v.Kind), v.Kind.String())
	o := outcome{name: v.Kind.String(), allowed: v.Allowed || v.List == rules.Safe}
	for i := range v.Each {
		d := &v.Each[i]
		s.applied(v.Rules[i], q, d.Key, !d.Allowed)
	}
	if v.Rule != nil && !o.allowed {
		if v.Each == nil { // a ban that ran answered for all
			s.applied(v.Rule, q, v.Key, true)
		}
		o.rule = s.of(v.Rule)
		if v.Outcome == stint.Banned && v.Limit != nil {
			o.rule.bans++
		}
	}
	if !o.allowed {
		s.refused++
	}
	s.countClient(q, o.allowed)
	if !o.allowed || q.status == 0 {
		return o, nil
	}
	bans, err := s.Trial.Respond(ctx, q.status)
	for _, r := range bans {
		s.of(r).bans++
	}
	return o, err
}

// malformed counts a request that a server would answer with 400, before any rule.
func (s *Side) malformed() outcome {
	s.count(0, malformed)
	return outcome{name: malformed}
}

func (s *Side) count(kind int, name string) {
	s.outcomes[kind]++
	s.names[kind] = name
}

func (s *Side) of(r *rules.Rule) *ruleTally {
	if i, ok := s.places[r]; ok {
		return s.rules[i]
	}
	return nil
}

// applied counts a request for one limit of a rule. The limits of a rule come one after another.
func (s *Side) applied(r *rules.Rule, q *request, key string, refused bool) {
	i, ok := s.places[r]
	if !ok {
		return
	}
	t := s.rules[i]
	if t.mark != q.number {
		t.mark, t.refusing = q.number, false
		t.requests++
		if hour := q.at / hourLong; t.hour == nil || hour != t.at {
			t.at = hour
			if t.hour = t.hours[hour]; t.hour == nil {
				t.hour = new(hourTally)
				if len(t.hours) < mostHours {
					t.hours[hour] = t.hour
				}
			}
		}
		t.hour.requests++
		if k, _ := tallyOf(&t.keys, sample.Hash(key)); k != nil {
			k.requests++
		}
	}
	if !refused || t.refusing {
		return
	}
	t.refusing = true
	t.refused++
	t.hour.refused++
	if k, _ := tallyOf(&t.keys, sample.Hash(key)); k != nil {
		k.refused++
	}
	q.text = append(q.text[:0], key...)
	t.most.Add(q.text, 1)
	if c := s.client(q); c != nil {
		c.refusedBy(i)
	}
}

// mostName is how many bytes of a client's name are kept. Whoever signs in with a password of HTTP says any name.
const mostName = 128

// client is what is known of q's client; nil: it is unknown, or not kept.
func (s *Side) client(q *request) *clientTally {
	if !q.client.known() {
		return nil
	}
	c, isNew := tallyOf(&s.clients, q.hash)
	if c != nil && isNew {
		c.client = client{q.client.network, strings.Clone(q.client.user[:min(len(q.client.user), mostName)])}
	}
	return c
}

func (c *clientTally) refusedBy(rule int) {
	at := slices.IndexFunc(c.byRule, func(b refusedBy) bool { return b.rule == rule })
	if at < 0 {
		c.byRule, at = append(c.byRule, refusedBy{rule: rule}), len(c.byRule)
	}
	c.byRule[at].times++
}

func (s *Side) countClient(q *request, allowed bool) {
	if !allowed && q.client.known() && len(s.hit) <= mostRefusedKeys {
		s.hit[q.hash] = struct{}{}
	}
	c := s.client(q)
	if c == nil {
		return
	}
	c.requests++
	c.first, c.last = cmp.Or(c.first, q.at), q.at
	if !allowed {
		c.refused++
		return
	}
	well := int64(0)
	if q.status < 400 {
		well = 1
	}
	c.well += well
	for i := range c.byRule {
		b := &c.byRule[i]
		if t := s.rules[b.rule]; t.mark == q.number && t.refusing {
			b.passed++
			b.well += well
		}
	}
}
