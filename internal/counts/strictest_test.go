package counts_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
	"github.com/stintdev/stint/internal/friend"
)

// The answer to a request is the same whether it is made of verdicts or of decisions.
func TestStricterThan(t *testing.T) {
	limit, kit := stint.MustLimit("1 per 1s"), stint.Internal(friend.Of{})
	for range 100_000 {
		asks, each := make([]counts.Ask, 1+rand.IntN(4)), []stint.Decision{}
		var of []stint.Ask
		allowed := rand.IntN(3) == 0
		for i := range asks {
			v := algo.Verdict{Allowed: allowed || rand.IntN(2) == 0, Remaining: rand.Int64N(3), Reset: rand.Int64N(3)}
			if allowed {
				v.Delay = rand.Int64N(3)
			} else if !v.Allowed {
				v.Retry = rand.Int64N(3) - 1
			}
			asks[i].Verdict, asks[i].Limit = v, new(counts.Limit)
			of = append(of, stint.Ask{Key: fmt.Sprint(i), Limit: limit})
			each = append(each, kit.Decision(&of[i], &v))
		}
		answer := counts.AnswerOf(asks)
		d := kit.Decision(&of[answer.Of], &asks[answer.Of].Verdict)
		if d.Delay = algo.Duration(answer.Delay); d != stint.Strictest(each) {
			t.Fatalf("%+v, want %+v of %+v", d, stint.Strictest(each), each)
		}
	}
}
