package envoy

import (
	"fmt"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
)

// metadataOf describes the call r for Envoy's filters and access logs. It has the metadata of the rules of
// descriptors that passed, and how the call was decided if not by the store.
func metadataOf(r *rls.RateLimitRequest, statuses []*rls.RateLimitResponse_DescriptorStatus, v *server.Verdict) *structpb.Struct {
	fields := map[string]*structpb.Value{"domain": structpb.NewStringValue(r.GetDomain())}
	list := &structpb.ListValue{}
	for _, d := range r.GetDescriptors() {
		list.Values = append(list.Values, structpb.NewStructValue(describeDescriptor(d)))
	}
	fields["descriptors"] = structpb.NewListValue(list)
	if n := r.GetHitsAddend(); n != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n))
	}
	if by := v.By; by == stint.ByLocal || by == stint.ByPolicy {
		fields["degraded"] = structpb.NewStringValue(by.String())
	}
	passed := map[string]any{}
	for i := range v.Descriptors {
		m := &v.Descriptors[i]
		if m.Rule != nil && !m.Replaced && !m.Rule.Descriptor.Unlimited && statuses[i].Code == rls.RateLimitResponse_OK {
			merge(passed, m.Rule.Descriptor.Metadata)
		}
	}
	if len(passed) > 0 {
		if s, err := structpb.NewStruct(passed); err == nil { // the rules have checked it
			fields["metadata"] = structpb.NewStructValue(s)
		}
	}
	return &structpb.Struct{Fields: fields}
}

func describeDescriptor(d *ratelimit.RateLimitDescriptor) *structpb.Struct {
	entries := &structpb.ListValue{}
	for _, e := range d.GetEntries() {
		entries.Values = append(entries.Values, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(entries)}
	if l := d.GetLimit(); l != nil {
		fields["limit"] = structpb.NewStringValue(describeOverride(l))
	}
	if n := d.GetHitsAddend(); n != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}

// describeOverride is l in the text format of protobuf. The library's own output has different spaces from
// build to build.
func describeOverride(l *ratelimit.RateLimitDescriptor_RateLimitOverride) string {
	var parts []string
	if n := l.GetRequestsPerUnit(); n != 0 {
		parts = append(parts, fmt.Sprintf("requests_per_unit:%d", n))
	}
	if u := l.GetUnit(); u != 0 {
		parts = append(parts, "unit:"+u.String())
	}
	if m := l.GetUnitMultiplier(); m != nil {
		parts = append(parts, fmt.Sprintf("unit_multiplier:{value:%d}", m.GetValue()))
	}
	return strings.Join(parts, " ")
}

// merge adds the members of from that to lacks. Maps in both are merged in the same way. It changes no map of
// from.
func merge(to, from map[string]any) {
	for k, v := range from {
		inner, isMap := v.(map[string]any)
		old, exists := to[k]
		oldMap, both := old.(map[string]any)
		switch {
		case !exists && isMap:
			copied := map[string]any{}
			merge(copied, inner)
			to[k] = copied
		case !exists:
			to[k] = v
		case isMap && both:
			merge(oldMap, inner)
		}
	}
}
