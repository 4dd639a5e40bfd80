package httplimit

import (
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
)

// Dialect is a choice of headers that tell a client how it stands. Dialects are
// added with |, but for the first two, which use the same names, and NoHeaders.
// The zero Dialect is XRateLimit.
//
// In all of them, reset says for how long what remains must last: who sends no
// more than that until then is not refused. It is the wait until the key is as
// if unused; of a bucket that has run empty, the wait for one unit; and of a
// refusal, the wait after which the same request would be allowed. It is in
// whole seconds, rounded up.
//
// A refusal also carries Retry-After in every dialect, in whole seconds, at
// least 1, and never earlier than a reset in the same response; it is left out
// where no wait would help. While a ban runs it is all there is.
type Dialect uint8

const (
	// XRateLimit, by name "x-ratelimit", sets X-RateLimit-Limit, -Remaining and
	// -Reset for the strictest limit. Limit is its capacity: how much it allows
	// at once. Reset is in seconds from now.
	XRateLimit Dialect = 1 << iota
	// XRateLimitEpoch, by name "x-ratelimit-epoch", is XRateLimit with Reset in
	// seconds since 1970, by this machine's clock. With it, all waits are told
	// up to a second longer, because such a Reset can name only whole seconds.
	XRateLimitEpoch
	// Draft11, by name "draft-11", sets RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, with a member for each limit. The
	// draft may still change, and then gets a dialect of its own.
	//
	// In RateLimit-Policy, q and w are the amount and the period, which is what
	// is allowed in the long run; w is left out where it is no whole number of
	// seconds. A bucket whose capacity differs from its amount tells it as
	// stint-burst. In RateLimit, r is what remains and t is reset, never later
	// than Retry-After. A limit's name is its policy's name, or its text where
	// it has none; what is not printable ASCII is percent-encoded, and of equal
	// names the later ones get a number. Keys are not told.
	Draft11
	// NoHeaders, by name "none", tells nothing but Retry-After: no other header,
	// and in the body of a refusal neither which limit it was nor how many violations
	// count.
	NoHeaders

	allDialects = XRateLimit | XRateLimitEpoch | Draft11 | NoHeaders
)

// dialectNames are in the order of the bits.
var dialectNames = [...]string{"x-ratelimit", "x-ratelimit-epoch", "draft-11", "none"}

// ParseDialect adds up dialects given by name. Of no names it is the zero
// Dialect.
func ParseDialect(names ...string) (Dialect, error) {
	var d Dialect
next:
	for _, name := range names {
		for i, n := range dialectNames {
			if n == name {
				d |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("unknown header dialect %q: any of %s", name, strings.Join(dialectNames[:], ", "))
	}
	return d, d.check()
}

// String is the names that ParseDialect reads, separated by commas.
func (d Dialect) String() string {
	var names []string
	for i, n := range dialectNames {
		if d.orDefault()&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

func (d Dialect) check() error {
	switch {
	case d&^allDialects != 0:
		return fmt.Errorf("unknown header dialect %#x", uint8(d))
	case d&NoHeaders != 0 && d != NoHeaders:
		return fmt.Errorf("header dialects %s: none goes with no other", d)
	case d&XRateLimit != 0 && d&XRateLimitEpoch != 0:
		return fmt.Errorf("header dialects %s: only one of x-ratelimit and x-ratelimit-epoch, for they use the same headers", d)
	}
	return nil
}

func (d Dialect) orDefault() Dialect {
	if d == 0 {
		return XRateLimit
	}
	return d
}

// SetHeaders tells in h how the client of a stands and, of a refusal, how long to
// wait. It replaces headers of the same names, and sets none for an Answer that
// is Blocked or Unlimited. Middleware does this by itself; SetHeaders is for
// those who answer in other ways.
func (d Dialect) SetHeaders(h http.Header, a *Answer) { d.set(h, a) }

// set returns the seconds that it put into Retry-After; 0: none.
func (d Dialect) set(h http.Header, a *Answer) (retryAfter int64) {
	d = d.orDefault()
	if a.Blocked || a.Unlimited {
		return 0
	}
	w := waits{refused: !a.Allowed}
	if d&XRateLimitEpoch != 0 {
		now := time.Now()
		w.second, w.part = now.Unix(), time.Duration(now.Nanosecond())
	}
	if w.refused && a.RetryAfter != stint.Never {
		w.retry = max(1, w.seconds(a.RetryAfter))
		h["Retry-After"] = []string{strconv.FormatInt(w.retry, 10)}
	}
	if a.Limit == nil {
		return w.retry
	}
	if d&(XRateLimit|XRateLimitEpoch) != 0 {
		v := []string{
			strconv.FormatInt(a.Limit.Capacity(), 10),
			strconv.FormatInt(a.Remaining, 10),
			strconv.FormatInt(w.second+w.reset(&a.Decision), 10),
		}
		h["X-Ratelimit-Limit"] = v[0:1:1]
		h["X-Ratelimit-Remaining"] = v[1:2:2]
		h["X-Ratelimit-Reset"] = v[2:3:3]
	}
	if d&Draft11 != 0 {
		w.setDraft(h, a)
	}
	return w.retry
}

// waits turns durations into whole seconds.
type waits struct {
	// second and part are the instant, where it matters: then everything is
	// counted from the beginning of its second, so that a wait in seconds ends
	// no earlier than the epoch second told for it.
	second  int64
	part    time.Duration
	refused bool
	retry   int64 // what Retry-After says; 0: nothing
}

func (w *waits) seconds(d time.Duration) int64 {
	return int64(d/time.Second) + int64((d%time.Second+w.part+time.Second-1)/time.Second)
}

// reset is how long what remains must last.
func (w *waits) reset(d *stint.Decision) int64 {
	wait := d.ResetAfter
	switch {
	case !d.Allowed && d.RetryAfter != stint.Never:
		wait = d.RetryAfter
	case d.Allowed && d.Remaining == 0:
		wait -= refill(d.Limit, wait)
	}
	s := w.seconds(wait)
	if w.refused && w.retry > 0 {
		// What is told of the limits that did not refuse must not keep a client
		// from coming back when it may.
		s = min(s, w.retry)
	}
	return s
}

// refill is how much of an empty bucket's reset comes after its first unit.
func refill(l *stint.Limit, reset time.Duration) time.Duration {
	s := l.Spec()
	if s.Algorithm != stint.TokenBucket && s.Algorithm != stint.LeakyBucket {
		return 0
	}
	hi, lo := bits.Mul64(uint64(l.Capacity()-1), uint64(s.Period))
	if hi >= uint64(s.Amount) {
		return 0
	}
	after, _ := bits.Div64(hi, lo, uint64(s.Amount))
	if after > uint64(reset) {
		return 0
	}
	return time.Duration(after)
}
