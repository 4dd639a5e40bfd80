package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// slack is how much longer than in production a call may take, because the machine of a test may be
// busy.
const slack = 100

// envoyFilter acts as Envoy's HTTP rate limit filter: it makes descriptors of a request by the actions
// of its route, asks the service, and makes the response of its answer.
type envoyFilter struct {
	filter *filter.RateLimit
	hosts  []*route.VirtualHost
	client rls.RateLimitServiceClient
}

// filterOf is the filter of a configuration of Envoy.
func filterOf(t *testing.T, file string, client rls.RateLimitServiceClient) *envoyFilter {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var b bootstrap.Bootstrap
	if err := protojson.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	f := &envoyFilter{filter: new(filter.RateLimit), client: client}
	var m manager.HttpConnectionManager
	if err := b.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(&m); err != nil {
		t.Fatal(err)
	}
	f.hosts = m.GetRouteConfig().VirtualHosts
	for _, one := range m.HttpFilters {
		if one.GetTypedConfig().MessageIs(f.filter) {
			if err := one.GetTypedConfig().UnmarshalTo(f.filter); err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatalf("%s has no rate limit filter", file)
	return nil
}

// webRequest is an HTTP request, with the dynamic metadata that other filters gave it: a value for
// each namespace:key.
type webRequest struct {
	path, client string
	headers      map[string]string
	metadata     map[string]uint64
}

func (r *webRequest) header(name string) string {
	if name == ":path" {
		return r.path
	}
	return r.headers[strings.ToLower(name)]
}

// webResponse is what the client gets: a status, and the headers that the filter adds.
type webResponse struct {
	status  int
	headers map[string]string
}

func (r webResponse) String() string {
	s := strconv.Itoa(r.status)
	for _, name := range []string{"x-envoy-ratelimited", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"} {
		if v, ok := r.headers[name]; ok {
			s += " " + strings.TrimPrefix(name, "x-ratelimit-") + ":" + v
		}
	}
	return s
}

// serve is a request whose response has been sent whole: the filter asks before it, and, if the request
// passes, charges what is to be charged at its end.
func (f *envoyFilter) serve(t *testing.T, r *webRequest) webResponse {
	t.Helper()
	to, host := f.route(r.path)
	if to.GetRoute() == nil { // Envoy's filter asks for requests to a cluster only
		return webResponse{status: 200}
	}
	limits := to.GetRoute().RateLimits
	if one := to.TypedPerFilterConfig["envoy.filters.http.ratelimit"]; one != nil {
		var own filter.RateLimitPerRoute
		if err := one.UnmarshalTo(&own); err != nil {
			t.Fatal(err)
		}
		limits = own.RateLimits
	} else if len(limits) == 0 {
		limits = host.RateLimits
	}
	var before, after []*route.RateLimit
	for _, l := range limits {
		if l.ApplyOnStreamDone {
			after = append(after, l)
		} else {
			before = append(before, l)
		}
	}
	out := webResponse{status: 200}
	if descriptors := f.descriptors(t, r, before); len(descriptors) > 0 {
		out = f.ask(t, descriptors)
	}
	// Envoy also charges at the end of a response of its own, but other filters say no cost then.
	if descriptors := f.descriptors(t, r, after); out.status == 200 && len(descriptors) > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), f.timeout())
		defer cancel()
		if _, err := f.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: f.filter.Domain, Descriptors: descriptors}); err != nil {
			t.Errorf("the charge at the end: %v", err)
		}
	}
	return out
}

func (f *envoyFilter) route(path string) (*route.Route, *route.VirtualHost) {
	for _, host := range f.hosts {
		for _, to := range host.Routes {
			if strings.HasPrefix(path, to.Match.GetPrefix()) {
				return to, host
			}
		}
	}
	return nil, nil
}

func (f *envoyFilter) timeout() time.Duration {
	if f.filter.Timeout == nil {
		return slack * 20 * time.Millisecond
	}
	return slack * f.filter.Timeout.AsDuration()
}

// ask asks the service, and returns what the client gets of its answer.
func (f *envoyFilter) ask(t *testing.T, descriptors []*common.RateLimitDescriptor) webResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), f.timeout())
	defer cancel()
	r, err := f.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: f.filter.Domain, Descriptors: descriptors})
	if err != nil {
		if f.filter.FailureModeDeny {
			return webResponse{status: 500}
		}
		return webResponse{status: 200}
	}
	out := webResponse{status: 200, headers: map[string]string{}}
	for _, h := range r.ResponseHeadersToAdd {
		out.headers[strings.ToLower(h.Key)] = h.Value
	}
	if r.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		out.status = 429
		if !f.filter.DisableXEnvoyRatelimitedHeader {
			out.headers["x-envoy-ratelimited"] = "true"
		}
	}
	if len(r.Statuses) != len(descriptors) {
		t.Errorf("%d statuses of %d descriptors", len(r.Statuses), len(descriptors))
	}
	if f.filter.EnableXRatelimitHeaders == filter.RateLimit_DRAFT_VERSION_03 {
		addLimits(out.headers, r.Statuses)
	}
	return out
}

// addLimits adds x-ratelimit-*: of the status with the least remaining, and the amount and window of all.
func addLimits(headers map[string]string, all []*rls.RateLimitResponse_DescriptorStatus) {
	seconds := map[rls.RateLimitResponse_RateLimit_Unit]int{
		rls.RateLimitResponse_RateLimit_SECOND: 1, rls.RateLimitResponse_RateLimit_MINUTE: 60, rls.RateLimitResponse_RateLimit_HOUR: 3600,
		rls.RateLimitResponse_RateLimit_DAY: 86400, rls.RateLimitResponse_RateLimit_WEEK: 7 * 86400,
		rls.RateLimitResponse_RateLimit_MONTH: 30 * 86400, rls.RateLimitResponse_RateLimit_YEAR: 365 * 86400,
	}
	var least *rls.RateLimitResponse_DescriptorStatus
	policy := ""
	for _, s := range all {
		l := s.CurrentLimit
		if l == nil {
			continue
		}
		if least == nil || s.LimitRemaining < least.LimitRemaining {
			least = s
		}
		if w := seconds[l.Unit]; w > 0 {
			policy += fmt.Sprintf(", %d;w=%d", l.RequestsPerUnit, w)
			if l.Name != "" {
				policy += fmt.Sprintf(`;name="%s"`, l.Name)
			}
		}
	}
	if least != nil {
		headers["x-ratelimit-limit"] = fmt.Sprint(least.CurrentLimit.RequestsPerUnit) + policy
		headers["x-ratelimit-remaining"] = fmt.Sprint(least.LimitRemaining)
		headers["x-ratelimit-reset"] = fmt.Sprint(least.DurationUntilReset.GetSeconds())
	}
}

// descriptors are those of the limits whose actions all have an entry for r.
func (f *envoyFilter) descriptors(t *testing.T, r *webRequest, limits []*route.RateLimit) []*common.RateLimitDescriptor {
	t.Helper()
	var all []*common.RateLimitDescriptor
	for _, l := range limits {
		d := &common.RateLimitDescriptor{}
		for _, a := range l.Actions {
			e := entryOf(t, r, a)
			if e == nil {
				d = nil
				break
			}
			d.Entries = append(d.Entries, e)
		}
		if d == nil {
			continue
		}
		switch h := l.HitsAddend; {
		case h.GetNumber() != nil:
			d.HitsAddend = wrapperspb.UInt64(h.Number.Value)
		case h.GetFormat() != "":
			name, ok := strings.CutPrefix(h.Format, "%DYNAMIC_METADATA(")
			if !ok {
				t.Fatalf("a format that this filter does not know: %s", h.Format)
			}
			d.HitsAddend = wrapperspb.UInt64(r.metadata[strings.TrimSuffix(name, ")%")])
		}
		if segments := l.GetLimit().GetDynamicMetadata().GetMetadataKey(); segments != nil {
			if n, ok := r.metadata[segments.Key+":"+segments.Path[0].GetKey()]; ok {
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(n), Unit: envoytype.RateLimitUnit_HOUR}
			}
		}
		all = append(all, d)
	}
	return all
}

// entryOf is the entry of an action; nil: the request has none, so that its descriptor is not sent.
func entryOf(t *testing.T, r *webRequest, a *route.RateLimit_Action) *common.RateLimitDescriptor_Entry {
	t.Helper()
	entry := func(key, value string) *common.RateLimitDescriptor_Entry {
		return &common.RateLimitDescriptor_Entry{Key: key, Value: value}
	}
	or := func(key, otherwise string) string {
		if key == "" {
			return otherwise
		}
		return key
	}
	switch a := a.ActionSpecifier.(type) {
	case *route.RateLimit_Action_GenericKey_:
		return entry(or(a.GenericKey.DescriptorKey, "generic_key"), a.GenericKey.DescriptorValue)
	case *route.RateLimit_Action_RemoteAddress_:
		return entry("remote_address", r.client)
	case *route.RateLimit_Action_RequestHeaders_:
		if v := r.header(a.RequestHeaders.HeaderName); v != "" {
			return entry(a.RequestHeaders.DescriptorKey, v)
		}
		return nil
	case *route.RateLimit_Action_QueryParameters_:
		u, err := url.Parse(r.path)
		if err != nil {
			t.Fatal(err)
		}
		if v := u.Query().Get(a.QueryParameters.QueryParameterName); v != "" {
			return entry(a.QueryParameters.DescriptorKey, v)
		}
		return nil
	case *route.RateLimit_Action_HeaderValueMatch_:
		m := a.HeaderValueMatch
		if matches(t, m.Headers[0].GetStringMatch(), r.header(m.Headers[0].Name)) == m.GetExpectMatch().GetValue() {
			return entry(or(m.DescriptorKey, "header_match"), m.DescriptorValue)
		}
		return nil
	default:
		t.Fatalf("an action that this filter does not know: %T", a)
		return nil
	}
}

func matches(t *testing.T, m *matcher.StringMatcher, value string) bool {
	t.Helper()
	switch p := m.GetMatchPattern().(type) {
	case *matcher.StringMatcher_Exact:
		return value == p.Exact
	case *matcher.StringMatcher_Prefix:
		return strings.HasPrefix(value, p.Prefix)
	case *matcher.StringMatcher_SafeRegex:
		return regexp.MustCompile("^(?:" + p.SafeRegex.Regex + ")$").MatchString(value)
	default:
		t.Fatalf("a match that this filter does not know: %T", p)
		return false
	}
}
