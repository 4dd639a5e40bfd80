package fleet_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// unreachable is a store that many instances share, and that does not answer. See
// redislimit.Connect for one that does.
type unreachable struct{}

func (unreachable) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, errors.New("connection refused")
}

// While the shared store does not answer, each of 10 instances decides by a tenth of the limit.
func Example() {
	store := fleet.New(unreachable{}, fleet.Options{Instances: 10})
	defer store.Close()
	limiter := stint.NewLimiter(store)

	d, err := limiter.Allow(context.Background(), "user:42", stint.MustLimit("api: 100 per 1m"))
	fmt.Println(d.Outcome, "by", d.By, "remaining", d.Remaining, err)
	// Output: allowed by local remaining 9 <nil>
}
