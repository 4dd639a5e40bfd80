package envoymodel

import (
	"hash/fnv"
	"math/rand/v2"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var hits = []uint64{1, 1, 1, 2, 3, 7, 1_000_000, 1 << 33}

// RandomCall returns a random call.
func RandomCall(r *rand.Rand, domain string, o *Options) *rls.RateLimitRequest {
	call := &rls.RateLimitRequest{Domain: domain}
	if r.IntN(20) == 0 {
		call.Domain = "elsewhere"
	}
	if r.IntN(4) == 0 {
		call.HitsAddend = uint32(pick(r, hits))
	}
	most := 4
	if r.IntN(10) == 0 {
		most = 20
	}
	for range 1 + r.IntN(most) {
		d := new(ratelimit.RateLimitDescriptor)
		for range 1 + r.IntN(3) {
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: pick(r, keys), Value: pick(r, values)})
			if r.IntN(2) == 0 {
				break
			}
		}
		switch r.IntN(12) {
		case 0, 1:
			d.HitsAddend = wrapperspb.UInt64(0)
		case 2:
			d.HitsAddend = wrapperspb.UInt64(pick(r, hits))
		case 3:
			if o.OwnLimits {
				d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: "limit", Value: "own"})
			}
			d.Limit = limitOf(d.Entries, o)
		}
		d.IsNegativeHits = o.GiveBack && r.IntN(8) == 0
		call.Descriptors = append(call.Descriptors, d)
	}
	return call
}

// limitOf is a limit in a call. Descriptors with the same entries have the same limit, so that it does not
// matter which counts.
func limitOf(entries []*ratelimit.RateLimitDescriptor_Entry, o *Options) *ratelimit.RateLimitDescriptor_RateLimitOverride {
	h := fnv.New64a()
	for _, e := range entries {
		h.Write([]byte(e.GetKey() + "=" + e.GetValue() + ";"))
	}
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	l := &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: pick(r, amounts), Unit: pick(r, []typev3.RateLimitUnit{
		typev3.RateLimitUnit_HOUR, typev3.RateLimitUnit_DAY, typev3.RateLimitUnit_MONTH, typev3.RateLimitUnit_YEAR})}
	if o.Multiplier && r.IntN(3) == 0 {
		l.UnitMultiplier = wrapperspb.UInt32(uint32(1 + r.IntN(20)))
	}
	return l
}
