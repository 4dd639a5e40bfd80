package envoy

import (
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// decisionMetadata describes a decision for Envoy's access logs and filters, as
// %DYNAMIC_METADATA(envoy.filters.http.ext_authz:rule)%; nil: no rule and no list applied. The key is left
// out, since it may be personal.
func decisionMetadata(v *server.Verdict) *structpb.Struct {
	if v.Rule == nil && v.Limit == nil && v.List == rules.Unlisted && v.ByHand == nil {
		return nil
	}
	fields := map[string]*structpb.Value{"outcome": structpb.NewStringValue(v.Kind.Answer())}
	set := func(name, text string) {
		if text != "" {
			fields[name] = structpb.NewStringValue(text)
		}
	}
	set("list", v.List.Name())
	if v.Rule != nil {
		set("rule", v.Rule.Name)
	}
	if v.Limit != nil {
		set("limit", v.Limit.Terms())
		fields["remaining"] = structpb.NewNumberValue(float64(v.Remaining))
	}
	if v.RetryAfter > 0 {
		fields["retry_after"] = structpb.NewNumberValue(float64((v.RetryAfter + time.Second - 1) / time.Second))
	}
	set("decision", v.ID)
	return &structpb.Struct{Fields: fields}
}
