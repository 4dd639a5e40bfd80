package fleet_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
)

// A Leases whose store fails says so, whichever way it is asked.
func TestLeasesOfFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails, away := errors.New("away"), false
		s := &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault {
			if away {
				return limittest.Fault{Err: fails}
			}
			return limittest.Fault{}
		}}
		l, limit := leasing(t, s, 1), stint.MustLimit("1000 per 1s fixed_window lease 20%")
		ask(t, l, "hot", limit, 300)
		time.Sleep(2 * time.Second)
		away = true
		for _, key := range []string{"hot", "cold"} {
			r := stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1}}}
			_, take := l.Take(t.Context(), &r, nil)
			answers := make([]stint.Answer, 2)
			l.TakeBatch(t.Context(), []stint.Request{r, r}, answers)
			lone := make([]stint.Answer, 1)
			l.TakeBatch(t.Context(), []stint.Request{r}, lone)
			for what, err := range map[string]error{
				"Take": take, "first of a list": answers[0].Err, "second of a list": answers[1].Err, "an only one": lone[0].Err,
				"Refund": l.Refund(t.Context(), &r), "Reset": l.Reset(t.Context(), &r),
			} {
				if !errors.Is(err, fails) {
					t.Errorf("%s of %s: %v", what, key, err)
				}
			}
		}
		away = false
		if allowed, _ := ask(t, l, "hot", limit, 10); allowed != 10 {
			t.Errorf("%d of 10 allowed when the store is back", allowed)
		}
	})
}
