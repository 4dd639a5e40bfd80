package envoymodel

import (
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// SameTimes copies times from want to got that are at most late seconds longer than got's, or early seconds
// shorter, since want was made earlier. So replies can be compared as a whole.
func SameTimes(got, want *rls.RateLimitResponse, late, early int64) {
	isLate := func(got, want int64) bool { return want-got <= late && got-want <= early }
	for i, one := range got.GetStatuses() {
		if i < len(want.GetStatuses()) && isLate(one.GetDurationUntilReset().GetSeconds(), want.Statuses[i].GetDurationUntilReset().GetSeconds()) {
			one.DurationUntilReset = want.Statuses[i].DurationUntilReset
		}
	}
	for i, h := range got.GetResponseHeadersToAdd() {
		if h.GetKey() != "RateLimit-Reset" || i >= len(want.GetResponseHeadersToAdd()) {
			continue
		}
		seconds := func(h *core.HeaderValue) int64 {
			n, _ := strconv.ParseInt(h.GetValue(), 10, 64)
			return n
		}
		if isLate(seconds(h), seconds(want.ResponseHeadersToAdd[i])) {
			got.ResponseHeadersToAdd[i] = proto.CloneOf(want.ResponseHeadersToAdd[i])
		}
	}
}
