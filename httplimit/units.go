package httplimit

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
)

// unit is what the limit of Each[i] counts; empty: not known.
func (a *Answer) unit(i int) string {
	if i < len(a.Units) {
		return a.Units[i]
	}
	return ""
}

// decidingUnit is what the limit that decided counts; empty: not known.
func (a *Answer) decidingUnit() string {
	for i := range a.Each {
		if e := &a.Each[i]; e.Limit == a.Limit && e.Key == a.Key {
			return a.unit(i)
		}
	}
	return ""
}

// setUnits sets the headers of OpenAI and Anthropic: for each unit, about the limit that will
// refuse first.
func (w *waits) setUnits(h http.Header, a *Answer, d Dialect) {
	each := a.Each
	if len(each) == 0 {
		each = []stint.Decision{a.Decision}
	}
	strictest := make(map[string]*stint.Decision, 2)
	for i := range each {
		e := &each[i]
		if e.Limit == nil || e.Limit.IsUnlimited() || e.Limit.Spec().Algorithm == stint.InFlight {
			continue
		}
		unit := unitName(a.unit(i))
		if known := strictest[unit]; known == nil || stricter(e, known) {
			strictest[unit] = e
		}
	}
	for unit, e := range strictest {
		limit, remaining := strconv.FormatInt(e.Limit.Capacity(), 10), strconv.FormatInt(e.Remaining, 10)
		reset := roundUp(resetOf(e))
		if d&OpenAI != 0 {
			h.Set("X-Ratelimit-Limit-"+unit, limit)
			h.Set("X-Ratelimit-Remaining-"+unit, remaining)
			h.Set("X-Ratelimit-Reset-"+unit, reset.String())
		}
		if d&Anthropic != 0 {
			h.Set("Anthropic-Ratelimit-"+unit+"-Limit", limit)
			h.Set("Anthropic-Ratelimit-"+unit+"-Remaining", remaining)
			h.Set("Anthropic-Ratelimit-"+unit+"-Reset", time.Now().Add(reset+time.Second-1).UTC().Format(time.RFC3339))
		}
	}
}

// longestRetry is the longest wait after which clients of OpenAI or Anthropic are asked to retry by
// themselves. They sleep for any time given, and some do not sleep at all if it is above 24 days.
const longestRetry = time.Minute

// setRetry sets the headers that control retries by clients of OpenAI and Anthropic.
func (w *waits) setRetry(h http.Header, a *Answer) {
	longest := time.Duration(w.retry) * time.Second
	if longest == 0 || longest > longestRetry {
		h["X-Should-Retry"] = []string{"false"}
	}
	if longest == 0 {
		return
	}
	wait := max(time.Millisecond, roundUp(a.RetryAfter))
	if a.Busy {
		wait += rand.N(max(1, longest-wait+1))
	}
	h["Retry-After-Ms"] = []string{strconv.FormatInt(wait.Milliseconds(), 10)}
}

// stricter reports whether a says more about what the client can do next than b.
func stricter(a, b *stint.Decision) bool {
	if a.Allowed != b.Allowed {
		return b.Allowed
	}
	if !a.Allowed {
		return a.RetryAfter > b.RetryAfter
	}
	return a.Remaining < b.Remaining
}

// roundUp rounds d up to milliseconds.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// unitName is a unit in the form of a header name.
func unitName(unit string) string {
	if unit == "" {
		return "requests"
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, unit)
}
