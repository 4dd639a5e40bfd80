package envoymodel

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Manner is how a service decides the descriptors of a call.
type Manner int

const (
	// Together is Stint's default: a refused call takes nothing.
	Together Manner = iota
	// Each is Stint's STINT_ENVOY_EACH: each descriptor is decided by itself.
	Each
	// Theirs is envoyproxy/ratelimit's: it charges refused units.
	Theirs
)

// Service decides calls. No window ever ends in it.
type Service struct {
	Configs       []*Config
	Manner        Manner
	Shadow, Quota bool // SHADOW_MODE, QUOTA_MODE
	Headers       bool
	Metadata      bool

	taken map[string]int64
}

// found is a descriptor's result.
type found struct {
	node     *Node // nil: nothing, or an override
	limit    *Limit
	override bool
	seconds  int64 // of the window
	times    uint32
	count    string // the name of its count
	replaced bool
	hits     int64
	giveBack bool
	ask      *ask // nil: none
}

func (f *found) shadow() bool { return f.node != nil && f.node.Shadow }

// ask is the common ask of descriptors of a call with one count.
type ask struct {
	of    []*found
	units int64
	fits  bool
	left  int64 // after the call
}

// Answer decides r. now is only for the times until the ends of windows.
func (s *Service) Answer(r *rls.RateLimitRequest, now time.Time) *rls.RateLimitResponse {
	all := s.find(r)
	if s.taken == nil {
		s.taken = map[string]int64{}
	}
	var allowed bool
	if s.Manner == Theirs {
		allowed = s.oneByOne(all)
	} else {
		allowed = s.ask(all)
	}
	out := &rls.RateLimitResponse{OverallCode: codeOf(allowed || s.Shadow)}
	for _, f := range all {
		out.Statuses = append(out.Statuses, f.status(now))
	}
	if s.Headers {
		out.ResponseHeadersToAdd = s.headers(all, out.Statuses)
	}
	if s.Metadata {
		out.DynamicMetadata = metadata(r, all, out.Statuses)
	}
	return out
}

func codeOf(ok bool) rls.RateLimitResponse_Code {
	if ok {
		return rls.RateLimitResponse_OK
	}
	return rls.RateLimitResponse_OVER_LIMIT
}

// oneByOne decides and counts one descriptor after the other.
func (s *Service) oneByOne(all []*found) bool {
	for _, f := range all {
		if f.limited() {
			s.taken[f.count] += f.hits
			left := int64(f.limit.Amount) - s.taken[f.count]
			f.ask = &ask{fits: left >= 0, left: max(0, left)}
		}
	}
	return s.allowed(all)
}

// ask decides descriptors with one count together, and then takes, charges and refunds.
func (s *Service) ask(all []*found) bool {
	asks := asksOf(all, false)
	for _, a := range asks {
		limit := int64(a.of[0].limit.Amount)
		// An ask for nothing asks whether a unit is left.
		a.fits = s.taken[a.of[0].count]+max(1, a.units) <= limit || limit == 0 && a.units == 0
	}
	together := true // whether those that are decided together are allowed
	for _, a := range asks {
		if s.isTogether(a.of[0]) && !a.fits {
			together = false
		}
	}
	allowed := s.allowed(all)
	for _, a := range asks {
		f := a.of[0]
		switch {
		case a.fits && (s.Manner == Each || f.shadow() || allowed && (together || !s.isTogether(f))):
			s.taken[f.count] += a.units
		case a.fits || f.shadow():
			s.charge(a)
		}
		a.left = s.left(f)
	}
	for _, a := range asksOf(all, true) {
		f := a.of[0]
		if a.fits = true; !allowed && s.Manner == Together {
			for _, f := range a.of {
				f.ask = nil
			}
			continue
		}
		s.taken[f.count] = max(0, s.taken[f.count]-a.units)
		a.left = s.left(f)
	}
	for _, a := range asks { // after refunds
		if f := a.of[0]; !a.fits && !f.shadow() && s.charge(a) {
			a.left = s.left(f)
		}
	}
	return allowed
}

func (s *Service) left(f *found) int64 { return max(0, int64(f.limit.Amount)-s.taken[f.count]) }

// charge takes the units of a refused call if they are more than one: they were used before the call. It
// reports whether there are any.
func (s *Service) charge(a *ask) (any bool) {
	for _, one := range a.of {
		if one.hits > 1 && one.limit.Amount > 0 {
			s.taken[one.count] += one.hits
			any = true
		}
	}
	return any
}

// asksOf returns the asks of descriptors that refund, or of the others.
func asksOf(all []*found, giveBack bool) (asks []*ask) {
	for _, f := range all {
		if !f.limited() || f.giveBack != giveBack || giveBack && (f.hits == 0 || f.limit.Amount == 0) {
			continue
		}
		i := slices.IndexFunc(asks, func(a *ask) bool { return a.of[0].count == f.count })
		if i < 0 {
			i = len(asks)
			asks = append(asks, new(ask))
		}
		f.ask = asks[i]
		f.ask.of = append(f.ask.of, f)
		f.ask.units += f.hits
	}
	return asks
}

func (f *found) limited() bool { return f.limit != nil && !f.limit.Unlimited && !f.replaced }

func (s *Service) quota(f *found) bool { return s.Quota || f.node != nil && f.node.Quota }

func (s *Service) isTogether(f *found) bool {
	return s.Manner == Together && !f.shadow() && !s.quota(f)
}

// allowed is the answer about the call: every limit refuses it but those of quota_mode, which refuse it
// together.
func (s *Service) allowed(all []*found) bool {
	quotas, spent := 0, 0
	for _, f := range all {
		switch {
		case f.giveBack || f.ask == nil:
			if s.Quota { // a descriptor that no limit refuses is not over a limit
				quotas++
			}
		case s.quota(f):
			quotas++
			if !f.ask.fits && !f.shadow() {
				spent++
			}
		case !f.ask.fits && !f.shadow():
			return false
		}
	}
	return quotas == 0 || spent < quotas
}

func (f *found) status(now time.Time) *rls.RateLimitResponse_DescriptorStatus {
	out := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	if f.limit != nil && f.limit.Unlimited {
		out.LimitRemaining = math.MaxUint32
	}
	if f.ask == nil {
		return out
	}
	out.Code = codeOf(f.ask.fits || f.shadow())
	out.LimitRemaining = uint32(f.ask.left)
	unit := rls.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(f.limit.Unit)]
	out.CurrentLimit = &rls.RateLimitResponse_RateLimit{Name: f.limit.Name, RequestsPerUnit: f.limit.Amount, Unit: rls.RateLimitResponse_RateLimit_Unit(unit)}
	if f.times > 1 {
		out.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(f.times)
	}
	out.DurationUntilReset = &durationpb.Duration{Seconds: f.seconds - now.Unix()%f.seconds}
	return out
}

// headers are about the last status that refused the call, or the one with the least left.
func (s *Service) headers(all []*found, statuses []*rls.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	var about *rls.RateLimitResponse_DescriptorStatus
	for i, one := range statuses {
		if one.CurrentLimit != nil && (about == nil && one.LimitRemaining < math.MaxUint32 || about != nil && one.LimitRemaining < about.LimitRemaining) {
			about = one
		}
		if one.Code == rls.RateLimitResponse_OVER_LIMIT && !s.quota(all[i]) {
			for j, later := range statuses[i:] {
				if later.Code == rls.RateLimitResponse_OVER_LIMIT && !s.quota(all[i+j]) {
					about = later
				}
			}
			break
		}
	}
	if about == nil {
		return nil
	}
	return []*core.HeaderValue{
		{Key: "RateLimit-Limit", Value: strconv.Itoa(int(about.CurrentLimit.RequestsPerUnit))},
		{Key: "RateLimit-Remaining", Value: strconv.Itoa(int(about.LimitRemaining))},
		{Key: "RateLimit-Reset", Value: strconv.Itoa(int(about.DurationUntilReset.Seconds))},
	}
}

func metadata(r *rls.RateLimitRequest, all []*found, statuses []*rls.RateLimitResponse_DescriptorStatus) *structpb.Struct {
	var descriptors []any
	passed := map[string]any{}
	for i, d := range r.GetDescriptors() {
		one := map[string]any{"entries": []any{}}
		for _, e := range d.GetEntries() {
			one["entries"] = append(one["entries"].([]any), e.GetKey()+"="+e.GetValue())
		}
		if l := d.GetLimit(); l != nil {
			one["limit"] = limitText(l)
		}
		if d.GetHitsAddend() != nil {
			one["hitsAddend"] = float64(d.GetHitsAddend().GetValue())
		}
		descriptors = append(descriptors, one)
		if f := all[i]; f.node != nil && !f.limit.Unlimited && !f.replaced && statuses[i].Code == rls.RateLimitResponse_OK {
			merge(passed, f.node.Metadata)
		}
	}
	fields := map[string]any{"domain": r.GetDomain(), "descriptors": descriptors}
	if r.GetHitsAddend() != 0 {
		fields["hitsAddend"] = float64(r.GetHitsAddend())
	}
	if len(passed) > 0 {
		fields["metadata"] = passed
	}
	out, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err)
	}
	return out
}

// limitText is the text form of protobuf, with one space between fields.
func limitText(l *ratelimit.RateLimitDescriptor_RateLimitOverride) string {
	return strings.Join(strings.Fields(l.String()), " ")
}

func merge(to, from map[string]any) {
	for k, v := range from {
		old, isThere := to[k].(map[string]any)
		if inner, ok := v.(map[string]any); ok && (isThere || to[k] == nil) {
			if !isThere {
				old = map[string]any{}
				to[k] = old
			}
			merge(old, inner)
		} else if _, ok := to[k]; !ok {
			to[k] = v
		}
	}
}

// Counts are the names of the counts of r's descriptors; empty: not counted.
func (s *Service) Counts(r *rls.RateLimitRequest) (counts []string) {
	for _, f := range s.find(r) {
		if !f.limited() {
			f.count = ""
		}
		counts = append(counts, f.count)
	}
	return counts
}

// Quotas reports which descriptors of r have a rule with quota_mode.
func (s *Service) Quotas(r *rls.RateLimitRequest) (is []bool) {
	for _, f := range s.find(r) {
		is = append(is, f.limited() && s.quota(f))
	}
	return is
}

// Taken is how many units of a count are taken.
func (s *Service) Taken(count string) int64 { return s.taken[count] }

func (s *Service) find(r *rls.RateLimitRequest) (all []*found) {
	replaced := map[string]bool{}
	for _, d := range r.GetDescriptors() {
		f := s.findOne(r.GetDomain(), d)
		f.hits = max(1, int64(r.GetHitsAddend()))
		if d.GetHitsAddend() != nil {
			f.hits = int64(d.GetHitsAddend().GetValue())
		}
		f.giveBack = d.GetIsNegativeHits() && s.Manner != Theirs
		if f.limit != nil {
			for _, name := range f.limit.Replaces {
				replaced[name] = true
			}
		}
		all = append(all, f)
	}
	for _, f := range all {
		f.replaced = f.limit != nil && !f.limit.Unlimited && replaced[f.limit.Name]
	}
	return all
}

var secondsOf = map[string]int64{"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400, "year": 365 * 86400}

func (s *Service) findOne(domain string, d *ratelimit.RateLimitDescriptor) *found {
	i := slices.IndexFunc(s.Configs, func(c *Config) bool { return c.Domain == domain })
	if i < 0 {
		return new(found)
	}
	if l := d.GetLimit(); l != nil {
		f := &found{override: true, limit: &Limit{Amount: l.GetRequestsPerUnit(), Unit: l.GetUnit().String()}, times: max(1, l.GetUnitMultiplier().GetValue())}
		if s.Manner == Theirs {
			f.times = 1
		}
		f.seconds = secondsOf[strings.ToLower(f.limit.Unit)] * int64(f.times)
		f.count = fmt.Sprint("override ", domain, f.seconds, entriesText(d.GetEntries()))
		return f
	}
	level, count := s.Configs[i].Nodes, domain
	for i, e := range d.GetEntries() {
		n := next(level, e.GetKey(), e.GetValue())
		if n == nil {
			return new(found)
		}
		value := e.GetValue()
		if n.Share && n.composite() != e.GetKey()+"_"+value && n.composite() != e.GetKey() {
			value = n.Value
		}
		count += fmt.Sprintf("/%q %q %q", n.composite(), e.GetKey(), value)
		if i == len(d.GetEntries())-1 && n.Limit != nil {
			return &found{node: n, limit: n.Limit, seconds: secondsOf[strings.ToLower(n.Limit.Unit)], count: count}
		}
		level = n.Children
	}
	return new(found)
}

func entriesText(entries []*ratelimit.RateLimitDescriptor_Entry) (text string) {
	for _, e := range entries {
		text += fmt.Sprintf("/%q %q", e.GetKey(), e.GetValue())
	}
	return text
}

// next is the descriptor of a level that an entry chooses: the exact one, the first pattern, or that
// of the key alone.
func next(level []*Node, key, value string) *Node {
	entry := key + "_" + value
	for _, is := range []func(*Node) bool{
		func(n *Node) bool { return n.composite() == entry },
		func(n *Node) bool { return strings.Contains(n.composite(), "*") && like(n.composite(), entry) },
		func(n *Node) bool { return n.composite() == key },
	} {
		if i := slices.IndexFunc(level, is); i >= 0 {
			return level[i]
		}
	}
	return nil
}

// like reports whether text is of the pattern, in which an asterisk is any text.
func like(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] == '*' {
		return like(pattern[1:], text) || text != "" && like(pattern, text[1:])
	}
	return text != "" && pattern[0] == text[0] && like(pattern[1:], text[1:])
}
