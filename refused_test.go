package stint_test

import (
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// A refusal is a sentence, whatever its outcome and limit.
func TestRefusedErrorSentences(t *testing.T) {
	limit := stint.MustLimit("login: 1 per 1m")
	for _, c := range []struct {
		outcome stint.Outcome
		limit   *stint.Limit
		retry   time.Duration
		want    string
	}{
		{stint.Limited, limit, time.Minute, "stint: limited to 1 per 1m (login): retry after 1m0s"},
		{stint.Limited, stint.MustLimit("2 per 10s"), time.Second, "stint: limited to 2 per 10s: retry after 1s"},
		{stint.Limited, limit, stint.Never, "stint: limited to 1 per 1m (login): the cost is above the limit's capacity"},
		{stint.Warned, limit, time.Minute, "stint: warned under 1 per 1m (login): retry after 1m0s"},
		{stint.Banned, limit, time.Hour, "stint: banned under 1 per 1m (login): retry after 1h0m0s"},
		{stint.Banned, nil, time.Hour, "stint: banned: retry after 1h0m0s"},
	} {
		err := &stint.RefusedError{Decision: stint.Decision{Outcome: c.outcome, Limit: c.limit, RetryAfter: c.retry}}
		if got := err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
