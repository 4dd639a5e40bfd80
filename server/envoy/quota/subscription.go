package quota

import (
	"math"
	"math/rand/v2"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// strategy is the kind of a proxy's assignment.
type strategy uint8

const (
	nothing  strategy = iota // it has no assignment
	units                    // a number of units
	allowAll                 // no limit is enforced; reported units are charged
	denyAll                  // nothing is left, or a ban refuses
)

const (
	// late is how long an assignment and a report together may be on their way. Later ones can make the
	// service refund units that were used: the limit may be exceeded by these until the report comes.
	late = 2 * time.Second
	// windowLeft is how much time of a fixed window must be left for a refund, so that units do not go to the
	// next window.
	windowLeft = 500 * time.Millisecond
	// A bucket whose limit has nothing left is checked again after a twentieth of the limit's recovery time,
	// but not before soonest and not after latest.
	soonest, latest = 250 * time.Millisecond, 10 * time.Second
	// afterEnd is how long after the end of a window units of the next one are taken.
	afterEnd = 2 * time.Millisecond
	// firstInterval is the time between reports before it is known.
	firstInterval = 5 * time.Second
	// mostReported bounds the numbers of a report.
	mostReported = 1 << 40
)

// subscription is one bucket of one stream. Only the stream's goroutine uses it, except that
// several renewals may run at once, each of one subscription.
type subscription struct {
	bucket  *bucket
	room    room.Place // its weight, in the table
	metrics *metrics
	id      *rlqs.BucketId
	place   int       // in the queue of its stream
	due     time.Time // when to renew the assignment, whatever is reported
	work    *work     // that its stream will do next; nil: none

	// The assignment.
	strategy strategy
	size     int64     // units in it, if strategy is units
	since    int64     // units used since it was sent, by an estimate
	sent     time.Time // zero: never
	expires  time.Time
	rules    *rules.Set // that decided
	waiting  time.Time  // nothing was left: do not ask before

	// Units taken ahead, and not used yet as far as known. grants are the units that the proxy may still
	// report: the oldest first, used in that order, and last those of the current assignment if strategy is
	// units. unspent are the units that can be refunded: those of this window, less all reported since. The
	// two differ because the service does not know how much of an assignment was used when another replaced
	// it.
	grants  []int64
	unspent float64
	faded   time.Time // unspent is as of then
	fade    float64   // units a second that come back by themselves; 0: a fixed window
	window  time.Time // the end of the window of unspent; zero: the limit has no windows
	owed    int64     // used without an assignment, and not charged yet
	free    bool      // rules has nothing to charge

	// Reports.
	reported time.Time // last report; zero: none yet
	reports  int
	interval time.Duration // between reports
	demand   float64       // requests a second
	short    bool          // the last report had denials
	active   time.Time     // last report with requests
	length   time.Duration // of a window of the limit; 0: it has none
	used     float64       // in this window, or as if in a bucket, for equal shares
	parts    float64       // of the limit, one for each stream of each instance
}

// maxGrants bounds subscription.grants. Older ones are merged.
const maxGrants = 16

// usage is a report about one bucket.
type usage struct{ allowed, denied int64 }

// account adds a report that came at now to s. It returns how many units to refund.
func (s *subscription) account(now time.Time, u usage) (giveBack int64) {
	s.since += s.ofCurrent(now, u.allowed)
	s.short = u.denied > 0
	s.measure(now, u)
	s.age(now)
	s.used += float64(u.allowed)
	s.unspent = max(0, s.unspent-float64(u.allowed))
	uncovered := s.spend(u.allowed)
	s.metrics.end(s.metrics.used, u.allowed-uncovered)
	s.metrics.uncovered.Add(float64(uncovered))
	s.owed = min(mostReported, s.owed+uncovered)
	if s.sent.IsZero() || now.Sub(s.sent) < late {
		return 0
	}
	// The proxy has had the current assignment so long that this report has all use of older ones. Their rest
	// is dead.
	current, dead := 0, s.unspent
	if s.strategy == units && now.Before(s.expires.Add(late)) {
		current, dead = 1, dead-float64(s.size)
	}
	giveBack = s.takeBack(now, dead)
	s.drop(current)
	return giveBack
}

// ofCurrent estimates how many of n units used since the last report belong to the current assignment.
func (s *subscription) ofCurrent(now time.Time, n int64) int64 {
	if old := s.sent.Sub(s.reported); old > 0 && !s.reported.IsZero() {
		return int64(float64(n) * now.Sub(s.sent).Seconds() / now.Sub(s.reported).Seconds())
	}
	return n
}

// takeBack removes dead units from unspent, and returns how many of them to refund. These are no longer in
// the grants.
func (s *subscription) takeBack(now time.Time, dead float64) int64 {
	n := int64(dead)
	if n <= 0 {
		return 0
	}
	s.unspent -= float64(n)
	if !s.window.IsZero() && s.window.Sub(now) < windowLeft {
		return 0
	}
	s.spend(n)
	return n
}

// measure learns the demand of s from a report.
func (s *subscription) measure(now time.Time, u usage) {
	old := s.demand
	if s.reported.IsZero() {
		s.interval, s.active = firstInterval, now
	} else if took := now.Sub(s.reported); took >= 50*time.Millisecond {
		if s.reports == 1 {
			s.interval = took
		}
		s.interval = (3*s.interval + took) / 4
		rate := float64(u.allowed+u.denied) / took.Seconds()
		s.demand = max(rate, (s.demand+rate)/2)
		s.reports++
	} else { // a report right after an assignment
		s.demand = max(s.demand, float64(u.allowed+u.denied)/s.interval.Seconds())
	}
	if s.reported.IsZero() {
		s.reports = 1
	}
	if u.allowed+u.denied > 0 {
		s.active = now
	}
	s.reported = now
	s.bucket.demands(old, s.demand)
}

// age fades unspent units that come back by themselves, and forgets those of a past window.
func (s *subscription) age(now time.Time) {
	if faded := now.Sub(s.faded).Seconds(); s.fade > 0 && faded > 0 {
		s.unspent = max(0, s.unspent-s.fade*faded)
		s.used = max(0, s.used-s.fade*faded/max(1, s.parts))
	}
	s.faded = now
	if !s.window.IsZero() && !now.Before(s.window) {
		s.unspent, s.used, s.window = 0, 0, time.Time{}
	}
}

// spend uses n units of the grants, and returns how many units no grant covers.
func (s *subscription) spend(n int64) (uncovered int64) {
	for i, have := range s.grants {
		part := min(n, have)
		s.grants[i] -= part
		n -= part
	}
	return n
}

// drop forgets all grants but the last keep.
func (s *subscription) drop(keep int) {
	n := len(s.grants) - keep
	s.lose(s.grants[:n])
	s.grants = append(s.grants[:0], s.grants[n:]...)
}

// lose counts grants that cannot be used any more and are not refunded.
func (s *subscription) lose(grants []int64) {
	for _, n := range grants {
		s.metrics.end(s.metrics.lost, n)
	}
}

// replace replaces the assignment, by n units if by is units.
func (s *subscription) replace(by strategy, n int64) {
	if len(s.grants) >= maxGrants {
		s.grants[1] += s.grants[0]
		s.grants = append(s.grants[:0], s.grants[1:]...)
	}
	if by == units {
		s.grants = append(s.grants, n)
		s.metrics.take(n)
	}
	s.strategy, s.size, s.since = by, n, 0
	s.unspent += float64(n)
}

// left estimates how many units the proxy has.
func (s *subscription) left() int64 {
	if s.strategy != units {
		return 0
	}
	return max(0, s.size-s.since)
}

// need is how many units s needs until the next report, with some to spare.
func (s *subscription) need(ttl time.Duration) int64 {
	ahead, spare := min(max(2*s.interval, time.Second), ttl), 1.5
	if s.length > 0 && s.length < ahead { // then the next window begins, with units of its own
		ahead, spare = s.length, 1.2
	}
	return int64(math.Ceil(spare * s.demand * ahead.Seconds()))
}

// isIdle reports whether s had no requests for idle.
func (s *subscription) isIdle(now time.Time, idle time.Duration) bool {
	return now.Sub(s.active) >= idle
}

// wants reports whether to renew the assignment after a report.
func (s *subscription) wants(now time.Time, set *rules.Set, ttl time.Duration) bool {
	switch {
	case s.strategy == nothing, s.rules != set, !now.Before(s.due):
		return true
	case s.strategy != units, now.Before(s.waiting):
		return false
	}
	return s.short || s.left() == 0 || s.reports > 1 && s.left() < s.need(ttl)/2
}

// retry is when to check a limit with nothing left again. v is a decision about it.
func retry(now time.Time, v *server.Verdict) time.Duration {
	wait := min(max(v.ResetAfter/20, soonest), latest)
	if end := windowOf(now, v); !end.IsZero() {
		wait = min(wait, end.Sub(now)+afterEnd)
	}
	return wait
}

// share is how many of the remaining units s gets. limit is the bucket's strictest.
func (s *subscription) share(set *Settings, limit *stint.Limit, remaining int64) int64 {
	s.length = 0
	if spec := limit.Spec(); spec.Algorithm == stint.FixedWindow {
		s.length = spec.Period
	}
	instances := set.instances()
	streams, demand, divides := s.bucket.all(instances)
	all := float64(max(1, streams))
	s.parts = all * instances
	remaining = min(remaining, math.MaxUint32) // as many as fit into an assignment
	if set.Shares == Equally {
		mine := math.Ceil(float64(limit.Capacity())/s.parts - s.used)
		if mine < 1 {
			return 0
		}
		return min(remaining, max(1, int64(math.Ceil(mine/2))))
	}
	equal := float64(remaining) / s.parts
	if s.reports < 2 { // nothing is known of the demand
		return min(remaining, max(1, int64(math.Ceil(equal/2))))
	}
	base := max(0.1*demand/all, 1e-9)
	part := float64(remaining) / divides * (s.demand + base) / (demand + all*base)
	want := max(float64(s.need(set.TTL)), equal/8, 1)
	return min(remaining, max(1, int64(math.Ceil(min(part, want)))))
}

// term says how long an assignment of units lasts and when to renew it. v is the decision that took
// them, at now. It outlives its window by one to two seconds, because assignments last whole seconds, and
// a proxy must not be without one until it has units of the next window.
func (s *subscription) term(now time.Time, v *server.Verdict, ttl time.Duration) (lasts time.Duration, due time.Time) {
	due = now.Add(time.Duration(float64(ttl) * (0.6 + 0.15*rand.Float64()))) // not all at once, and not always with a report
	end := windowOf(now, v)
	if end.IsZero() {
		s.window, s.fade = end, 0
		if spec := v.Limit.Spec(); spec.Period > 0 {
			s.fade = float64(spec.Amount) / spec.Period.Seconds()
		}
		return ttl, due
	}
	if d := end.Sub(s.window); d > time.Second/2 || d < -time.Second/2 { // not the window of unspent
		s.unspent, s.used = 0, 0
	}
	s.window, s.fade = end, 0
	whole := (end.Sub(now) + time.Second - 1).Truncate(time.Second)
	if whole+time.Second > ttl {
		return ttl, due
	}
	return whole + time.Second, end.Add(afterEnd)
}

// windowOf is the earliest end of v's fixed windows; zero: there are none.
func windowOf(now time.Time, v *server.Verdict) time.Time {
	first := time.Duration(math.MaxInt64)
	for i := range v.Each {
		d := &v.Each[i]
		if d.Limit != nil && d.Limit.Spec().Algorithm == stint.FixedWindow && d.ResetAfter > 0 {
			first = min(first, d.ResetAfter)
		}
	}
	if first == math.MaxInt64 {
		return time.Time{}
	}
	return now.Add(first)
}
