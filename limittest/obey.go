package limittest

import (
	"time"

	"github.com/stintdev/stint"
	"pgregory.net/rapid"
)

// whoWaitsIsAllowed: a client that waits as long as the last refusal said is allowed, whether a
// limit or a ban refused.
func whoWaitsIsAllowed(t *trial) {
	var asks []stint.Ask
	var longest time.Duration
	for i := range rapid.IntRange(1, 3).Draw(t.T, "limits") {
		l := t.limit(string(rune('a' + i)))
		asks = append(asks, stint.Ask{Key: t.key, Limit: l, Cost: rapid.Int64Range(1, min(5, l.Capacity())).Draw(t.T, "cost")})
		longest = max(longest, l.Spec().Period)
	}
	p := mustPenalty(stint.PenaltySpec{
		BanAfter: rapid.Int64Range(1, 4).Draw(t.T, "ban after"),
		BanFor:   max(time.Millisecond, longest/time.Duration(rapid.IntRange(1, 50).Draw(t.T, "ban for")*2)).Truncate(time.Microsecond),
		Growth:   rapid.Int64Range(1, 3).Draw(t.T, "growth"),
		MaxBan:   2 * longest,
	})
	asks[rapid.IntRange(0, len(asks)-1).Draw(t.T, "punished")].Penalty = p
	for range 20 {
		d, _ := t.take(t.now, asks...)
		for n := 0; !d.Allowed; n++ {
			if d.RetryAfter < d.BanLeft {
				t.Fatalf("told to come back in %s, of a ban of %s\n%s", d.RetryAfter, d.BanLeft, &t.story)
			}
			wait := d.RetryAfter.Microseconds()
			obeys := n == 5 || rapid.Bool().Draw(t.T, "obeys")
			if !obeys {
				wait = rapid.Int64Range(0, wait).Draw(t.T, "comes after")
			}
			t.to(t.now + wait)
			if d, _ = t.take(t.now, asks...); obeys && !d.Allowed {
				t.Fatalf("refused though it waited for as long as it was told\n%s", &t.story)
			}
		}
		t.to(t.now + rapid.Int64Range(0, longest.Microseconds()/10).Draw(t.T, "pause"))
	}
}
