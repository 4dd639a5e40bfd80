package httplimit

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// Dialect selects the rate limit headers of responses. Combine dialects with |, except
// the first two, which use the same names, and NoHeaders. The zero Dialect is
// XRateLimit.
//
// In every dialect but Draft11, reset is the time until the whole limit is available again
// if no request comes, rounded up. This is so on refusals, too: the wait for the same
// request is Retry-After, and may be much shorter.
//
// In every dialect, a refusal has Retry-After in whole seconds, at least 1, rounded up. It is
// left out if no wait would help.
// While a ban runs it is the only header. If the refusal is Busy, Retry-After is a hint,
// randomly lengthened by up to half, so that clients do not return together. No client is
// promised a turn.
type Dialect uint8

const (
	// XRateLimit, by name "x-ratelimit", sets X-RateLimit-Limit, -Remaining and
	// -Reset for the strictest limit. Limit is its capacity, the amount it allows at
	// once. Reset is in seconds from now. If the limit is held, X-RateLimit-Held is how
	// many units requests in flight hold.
	XRateLimit Dialect = 1 << iota
	// XRateLimitEpoch, by name "x-ratelimit-epoch", is XRateLimit with Reset in
	// seconds since 1970, by this machine's clock. All waits are then up to a second
	// longer, because such a Reset is a whole second.
	XRateLimitEpoch
	// Draft11, by name "draft-11", sets RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, with a member for each limit. A later
	// draft will be a dialect of its own.
	//
	// In RateLimit-Policy, q and w are the amount and the period, the rate in the long
	// run; w is left out if it is not a whole number of seconds. stint-burst is a bucket's
	// capacity if that differs from the amount. In RateLimit, r is the Remaining and t is how
	// many seconds it must last: until the whole limit is available again; for an empty
	// bucket, until one unit is back; for a refusal, until the same request would be allowed,
	// which is never after Retry-After. A policy has the limit's name, or its text if it has
	// none. All but printable ASCII is percent-encoded; equal names get a number. Keys are
	// not shown. qu is the unit that the limit counts, if Answer.Units has it or the limit is
	// in flight. stint-held is how many units requests in flight hold.
	Draft11
	// NoHeaders, by name "none", sets only Retry-After, and leaves the limit and the
	// violations out of the body of a refusal.
	NoHeaders
	// OpenAI, by name "openai", sets X-RateLimit-Limit-UNIT, -Remaining-UNIT and
	// -Reset-UNIT, such as X-RateLimit-Remaining-Tokens: 149984, for each unit of
	// Answer.Units, about its strictest limit. Limits without a unit count requests.
	// In-flight limits are left out. Reset is a duration such as 6m0s.
	//
	// OpenAI and Anthropic are for the clients of these APIs. Such a client retries a refused
	// request by itself: after Retry-After-Ms, which is Retry-After in milliseconds, and not at
	// all after X-Should-Retry: false, which a refusal has if no wait would help or if
	// Retry-After is more than a minute. The client reports the member "error" of the body: its
	// message, type and code, such as rate_limit_exceeded.
	OpenAI
	// Anthropic, by name "anthropic", sets Anthropic-RateLimit-UNIT-Limit, -Remaining and
	// -Reset in the same way. Reset is an instant (RFC 3339), by this machine's clock.
	Anthropic

	allDialects = XRateLimit | XRateLimitEpoch | Draft11 | NoHeaders | OpenAI | Anthropic
)

// dialectNames are in the order of the bits.
var dialectNames = [...]string{"x-ratelimit", "x-ratelimit-epoch", "draft-11", "none", "openai", "anthropic"}

// ParseDialect combines dialects given by name. Without names it returns the zero
// Dialect. It returns an error for an unknown name or a combination that is not allowed.
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
		return 0, fmt.Errorf("unknown header dialect %q: use any of %s", name, strings.Join(dialectNames[:], ", "))
	}
	return d, d.Check()
}

// String returns the names that ParseDialect reads, separated by commas.
func (d Dialect) String() string {
	var names []string
	for i, n := range dialectNames {
		if d.orDefault()&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

// Check returns an error if d combines dialects that exclude each other.
func (d Dialect) Check() error {
	switch {
	case d&^allDialects != 0:
		return fmt.Errorf("unknown header dialect %#x", uint8(d))
	case d&NoHeaders != 0 && d != NoHeaders:
		return fmt.Errorf("header dialects %s: none cannot be combined with others", d)
	case d&XRateLimit != 0 && d&XRateLimitEpoch != 0:
		return fmt.Errorf("header dialects %s: use only one of x-ratelimit and x-ratelimit-epoch, they set the same headers", d)
	}
	return nil
}

func (d Dialect) orDefault() Dialect {
	if d == 0 {
		return XRateLimit
	}
	return d
}

// SetHeaders sets the headers for a in h, replacing headers of the same names. It sets none if a is Blocked
// or Unlimited, and none for an unlimited limit. Middleware calls it; call it yourself only if you answer
// requests in another way.
func (d Dialect) SetHeaders(h http.Header, a *Answer) { d.set(h, a) }

// set is SetHeaders, and returns the seconds in Retry-After; 0: not set.
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
		if a.Busy {
			w.retry += rand.Int64N(w.retry/2 + 2)
		}
		h["Retry-After"] = []string{strconv.FormatInt(w.retry, 10)}
	}
	if w.refused && d&(OpenAI|Anthropic) != 0 {
		w.setRetry(h, a)
	}
	if a.Limit == nil || a.Limit.IsUnlimited() {
		return w.retry
	}
	if d&(XRateLimit|XRateLimitEpoch) != 0 {
		v := []string{
			strconv.FormatInt(a.Limit.Capacity(), 10),
			strconv.FormatInt(a.Remaining, 10),
			strconv.FormatInt(w.second+w.seconds(resetOf(&a.Decision)), 10),
		}
		h["X-Ratelimit-Limit"] = v[0:1:1]
		h["X-Ratelimit-Remaining"] = v[1:2:2]
		h["X-Ratelimit-Reset"] = v[2:3:3]
		if a.Limit.IsHeld() {
			h["X-Ratelimit-Held"] = []string{strconv.FormatInt(a.Held, 10)}
		}
	}
	if d&Draft11 != 0 {
		w.setDraft(h, a)
	}
	if d&(OpenAI|Anthropic) != 0 {
		w.setUnits(h, a, d)
	}
	return w.retry
}

// waits rounds durations up to whole seconds.
type waits struct {
	// second and part are the current time, for XRateLimitEpoch, else zero. All waits
	// then count from the start of that second, so that a wait in seconds ends no
	// earlier than the epoch second in Reset.
	second  int64
	part    time.Duration
	refused bool
	retry   int64 // Retry-After in seconds; 0: not set
}

func (w *waits) seconds(d time.Duration) int64 {
	return int64(d/time.Second) + int64((d%time.Second+w.part+time.Second-1)/time.Second)
}

// resetOf returns the reset of d for headers: the time until the whole limit is available again
// and no ban runs; see Dialect.
func resetOf(d *stint.Decision) time.Duration {
	if d.RetryAfter == stint.Never {
		return d.ResetAfter
	}
	return max(d.ResetAfter, d.RetryAfter)
}

// lasts is Lasts in seconds; see Draft11.
func (w *waits) lasts(d *stint.Decision) int64 {
	s := w.seconds(stint.Internal(friend.Of{}).Lasts(d))
	if w.refused && w.retry > 0 {
		// Another limit must not make the client wait longer than Retry-After.
		s = min(s, w.retry)
	}
	return s
}

// longestInteger is the largest number that a structured field can hold.
const longestInteger = 999_999_999_999_999

// setDraft sets RateLimit-Policy and RateLimit for a.
func (w *waits) setDraft(h http.Header, a *Answer) {
	each := a.Each
	if len(each) == 0 {
		each = []stint.Decision{a.Decision}
	}
	policy, state := make([]byte, 0, 128), make([]byte, 0, 128)
	names := make([]string, 0, 8)
	for i := range each {
		e := &each[i]
		if e.Limit == nil || e.Limit.IsUnlimited() {
			continue
		}
		if len(names) > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		names = append(names, policyName(e.Limit, names))
		item := `"` + names[len(names)-1] + `"`
		policy = appendPolicy(append(policy, item...), e.Limit, a.unit(i))
		state = append(append(state, item...), ";r="...)
		state = strconv.AppendInt(state, min(e.Remaining, longestInteger), 10)
		state = append(state, ";t="...)
		state = strconv.AppendInt(state, w.lasts(e), 10)
		if e.Limit.IsHeld() {
			state = append(state, ";stint-held="...)
			state = strconv.AppendInt(state, min(e.Held, longestInteger), 10)
		}
	}
	if len(names) == 0 {
		return
	}
	h["Ratelimit-Policy"] = []string{string(policy)}
	h["Ratelimit"] = []string{string(state)}
}

func appendPolicy(b []byte, l *stint.Limit, unit string) []byte {
	s := l.Spec()
	b = append(b, ";q="...)
	b = strconv.AppendInt(b, min(s.Amount, longestInteger), 10)
	if s.Algorithm == stint.InFlight {
		unit = "concurrent-requests"
	}
	if unit != "" {
		b = append(append(append(b, `;qu="`...), printable(unit)...), '"')
	}
	if s.Period > 0 && s.Period%time.Second == 0 { // the windows of a calendar are not all as long
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, int64(s.Period/time.Second), 10)
	}
	if c := l.Capacity(); c != s.Amount {
		b = append(b, ";stint-burst="...)
		b = strconv.AppendInt(b, min(c, longestInteger), 10)
	}
	return b
}

// policyName returns a name for l that is not in taken, for use within the quotes of a
// structured field string.
func policyName(l *stint.Limit, taken []string) string {
	text := l.Spec().Name
	if text == "" {
		text = l.String()
	}
	name := printable(text)
	unique := name
	for n := 2; slices.Contains(taken, unique); n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	return unique
}

// printable escapes quotes and backslashes, and percent-encodes all but printable ASCII,
// which a structured field string cannot hold.
func printable(text string) string {
	plain := func(c byte) bool { return c >= ' ' && c <= '~' && c != '"' && c != '\\' }
	i := 0
	for i < len(text) && plain(text[i]) {
		i++
	}
	if i == len(text) {
		return text
	}
	b := append(make([]byte, 0, 3*len(text)), text[:i]...)
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case plain(c):
			b = append(b, c)
		case c == '"', c == '\\':
			b = append(b, '\\', c)
		default:
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}

// SetDegraded sets the header Stint-Degraded to who decided, local or policy, if the
// shared Store did not count the request. Otherwise it does nothing.
func (internals) SetDegraded(h http.Header, by stint.Source) {
	if !stint.Internal(friend.Of{}).IsShared(by) {
		h["Stint-Degraded"] = []string{by.String()}
	}
}

// SetID sets the header Stint-Decision to the ID of a decision. If that is "", it does
// nothing.
func (internals) SetID(h http.Header, id string) {
	if id != "" {
		h["Stint-Decision"] = []string{id}
	}
}

// SetViolations sets the header Stint-Violations to the number of violations, if d is a
// refusal that counts as one: 4;warn-after=3;ban-after=5, a structured field (RFC 9651).
// It leaves out parameters that the penalty does not set. For other decisions it does
// nothing.
func (internals) SetViolations(h http.Header, d *stint.Decision) {
	if d.Violations == 0 {
		return
	}
	b := strconv.AppendInt(make([]byte, 0, 48), d.Violations, 10)
	p := d.Penalty.Spec()
	if p.WarnAfter > 0 {
		b = strconv.AppendInt(append(b, ";warn-after="...), p.WarnAfter, 10)
	}
	if p.BanAfter > 0 {
		b = strconv.AppendInt(append(b, ";ban-after="...), p.BanAfter, 10)
	}
	h["Stint-Violations"] = []string{string(b)}
}
