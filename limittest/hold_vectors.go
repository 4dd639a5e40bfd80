package limittest

import (
	"cmp"
	_ "embed"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/friend"
)

//go:embed testdata/holds-vectors.json
var holdVectorsJSON []byte

// holdVector is one case of holds-vectors.json: limits asked together for one key, requests with
// and without holds, settlements, renewals and charges. Durations are µs; -1 is never.
type holdVector struct {
	Name   string
	Limits []struct {
		Algorithm string
		Amount    int64
		PeriodUS  int64 `json:"period_us"`
		Burst     int64
		Buckets   int
		HoldUS    int64 `json:"hold_us"`
		RetryUS   int64 `json:"retry_us"`
		Debt      *int64
	}
	Events []holdVectorEvent
}

type holdVectorEvent struct {
	TUS                 int64 `json:"t_us"`
	Cost                int64
	Hold, Settle, Renew string
	Charge              bool
	Outcome             string
	Decisions           []struct {
		Allowed      bool
		Limit        int64
		Remaining    int64
		RetryAfterUS int64 `json:"retry_after_us"`
		ResetAfterUS int64 `json:"reset_after_us"`
		Charged      int64
	}
}

var holdVectors = sync.OnceValues(func() ([]holdVector, error) {
	return casesOf[holdVector]("holds-vectors.json", holdVectorsJSON)
})

func (v *holdVector) limits() ([]*stint.Limit, error) {
	var limits []*stint.Limit
	for i, l := range v.Limits {
		algorithm, err := algo.ParseKind(l.Algorithm)
		if err != nil {
			return nil, err
		}
		spec := stint.Spec{
			Name: strconv.Itoa(i), Algorithm: stint.Algorithm(algorithm), Amount: l.Amount,
			Period: micros(l.PeriodUS), Burst: l.Burst, Buckets: l.Buckets,
			Hold: micros(l.HoldUS), Retry: micros(l.RetryUS),
		}
		if l.Debt != nil {
			spec.Debt = cmp.Or(*l.Debt, stint.NoDebt)
		}
		limit, err := stint.NewLimit(spec)
		if err != nil {
			return nil, err
		}
		limits = append(limits, limit)
	}
	return limits, nil
}

// holdID is the identity with this name in the vectors, such as "h3".
func holdID(name string) stint.HoldID {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "h"))
	if err != nil {
		panic("limittest: " + err.Error())
	}
	return numbered(n)
}

// numbered is an identity with a number.
func numbered(n int) (id stint.HoldID) {
	binary.BigEndian.PutUint32(id[:], 1)
	binary.BigEndian.PutUint64(id[4:], uint64(n))
	return id
}

// replay is the state of a vector's replay in a store.
type replay struct {
	reader
	*holdVector
	limits []*stint.Limit
	costs  map[string]int64 // of the holds
}

func (v *holdVector) check(t testing.TB, s stint.Store) {
	t.Helper()
	limits, err := v.limits()
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	r := replay{reader: reader{t: t, store: s}, holdVector: v, limits: limits, costs: map[string]int64{}}
	for i := range v.Events {
		switch e := &v.Events[i]; {
		case e.Settle != "":
			r.operate(i, e, stint.HoldSettle, e.Settle)
		case e.Renew != "":
			r.operate(i, e, stint.HoldRenew, e.Renew)
		case e.Charge:
			r.operate(i, e, stint.HoldCharge, "")
		default:
			r.request(i, e)
		}
	}
}

func (r *replay) request(i int, e *holdVectorEvent) {
	r.t.Helper()
	var id stint.HoldID
	if e.Hold != "" {
		id, r.costs[e.Hold] = holdID(e.Hold), e.Cost
	}
	asks := make([]stint.Ask, len(r.limits))
	for j, l := range r.limits {
		asks[j] = stint.Ask{Key: r.Name, Limit: l}
		if l.Spec().Algorithm != stint.InFlight {
			stint.Internal(friend.Of{}).SetUnits(&asks[j], e.Cost)
		}
	}
	d, each := r.hold(e.TUS, id, asks...)
	for j, want := range e.Decisions {
		got := each[j]
		retry := got.RetryAfter.Microseconds()
		if got.RetryAfter == stint.Never {
			retry = algo.Never
		}
		if got.Allowed != want.Allowed || r.limits[j].Capacity() != want.Limit || got.Remaining != want.Remaining ||
			retry != want.RetryAfterUS || got.ResetAfter != micros(want.ResetAfterUS) {
			r.t.Fatalf("%s: event %d, limit %d:\n got %s\nwant %+v\n%s", r.Name, i, j, show(&got), want, &r.story)
		}
	}
	want := strictest(each)
	r.want(fmt.Sprintf("%s: event %d, the whole", r.Name, i), d, want)
	if d.Outcome.String() != e.Outcome {
		r.t.Fatalf("%s: event %d: %s, want %s\n%s", r.Name, i, d.Outcome, e.Outcome, &r.story)
	}
}

// operate settles, renews or charges under all limits that allow it, and peeks under the others.
func (r *replay) operate(i int, e *holdVectorEvent, action stint.HoldAction, hold string) {
	r.t.Helper()
	var calls []stint.HoldCall
	call := make([]int, len(r.limits)) // the call about each limit, counted from 1
	for j, l := range r.limits {
		inFlight := l.Spec().Algorithm == stint.InFlight
		if action == stint.HoldCharge && inFlight || action != stint.HoldCharge && !l.IsHeld() {
			continue
		}
		c := stint.HoldCall{Action: action, Key: r.Name, Limit: l, Cost: e.Cost}
		if action != stint.HoldCharge {
			c.Hold, c.Units = holdID(hold), r.costs[hold]
		}
		if inFlight {
			c.Units = 1
		}
		calls = append(calls, c)
		call[j] = len(calls)
	}
	r.call(e.TUS, calls...)
	found := false
	for j, want := range e.Decisions {
		var got stint.HoldCall
		if call[j] > 0 {
			got = calls[call[j]-1]
		} else {
			_, each := r.take(e.TUS, stint.Ask{Key: r.Name, Limit: r.limits[j], Peek: true})
			got.Remaining, got.ResetAfter = each[0].Remaining, each[0].ResetAfter
		}
		found = found || got.Found
		if got.Remaining != want.Remaining || got.ResetAfter != micros(want.ResetAfterUS) || got.Charged != want.Charged {
			r.t.Fatalf("%s: event %d, limit %d: remaining %d, reset after %s, charged %d\nwant %+v\n%s", r.Name, i, j,
				got.Remaining, got.ResetAfter, got.Charged, want, &r.story)
		}
	}
	if want := e.Outcome == "settled"; action == stint.HoldSettle && found != want {
		r.t.Fatalf("%s: event %d: found %t, want %s\n%s", r.Name, i, found, e.Outcome, &r.story)
	}
}

// asHolder returns the stint.Holder that s is or wraps. Without one, the test is skipped.
func asHolder(t testing.TB, s stint.Store) stint.Holder {
	t.Helper()
	h, ok := stint.As[stint.Holder](s)
	if !ok {
		t.Skipf("%T is no stint.Holder", s)
	}
	return h
}

func checkHoldVectors(t testing.TB, e *env) {
	asHolder(t, e.open())
	cases, err := holdVectors()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		cases[i].check(t, e.open())
	}
}
