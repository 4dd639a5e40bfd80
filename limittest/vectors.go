package limittest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/friend"
)

//go:embed testdata/vectors.json
var vectorsJSON []byte

// vector is one case of vectors.json: limits asked together for one key, and the answer at each
// instant. Durations are µs; -1 is never.
type vector struct {
	Name   string
	Limits []struct {
		Algorithm string
		Amount    int64
		PeriodUS  int64 `json:"period_us"`
		Burst     int64
		Buckets   int
	}
	Penalty *struct {
		WarnAfter     int64 `json:"warn_after"`
		BanAfter      int64 `json:"ban_after"`
		BanForUS      int64 `json:"ban_for_us"`
		ForgetAfterUS int64 `json:"forget_after_us"`
		Growth        int64
		MaxBanUS      int64 `json:"max_ban_us"`
	}
	Events []vectorEvent
}

type vectorEvent struct {
	TUS       int64 `json:"t_us"`
	Cost      int64
	Outcome   string
	Decisions []struct {
		Allowed      bool
		Limit        int64
		Remaining    int64
		RetryAfterUS int64 `json:"retry_after_us"`
		ResetAfterUS int64 `json:"reset_after_us"`
		DelayUS      int64 `json:"delay_us"`
	}
	BanLeftUS int64 `json:"ban_left_us"`
}

var vectors = sync.OnceValues(func() ([]vector, error) { return casesOf[vector]("vectors.json", vectorsJSON) })

// casesOf are the cases in a file of vectors.
func casesOf[C any](name string, text []byte) ([]C, error) {
	var file struct {
		Version int
		Cases   []C
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if file.Version != 1 || len(file.Cases) == 0 {
		return nil, fmt.Errorf("%s: version %d with %d cases: want version 1", name, file.Version, len(file.Cases))
	}
	return file.Cases, nil
}

func (v *vector) asks(key string) ([]stint.Ask, error) {
	var penalty *stint.Penalty
	if p := v.Penalty; p != nil {
		var err error
		penalty, err = stint.NewPenalty(stint.PenaltySpec{
			WarnAfter: p.WarnAfter, BanAfter: p.BanAfter, BanFor: micros(p.BanForUS),
			ForgetAfter: micros(p.ForgetAfterUS), Growth: p.Growth, MaxBan: micros(p.MaxBanUS),
		})
		if err != nil {
			return nil, err
		}
	}
	asks := make([]stint.Ask, len(v.Limits))
	for i, l := range v.Limits {
		algorithm, err := algo.ParseKind(l.Algorithm)
		if err != nil {
			return nil, err
		}
		limit, err := stint.NewLimit(stint.Spec{
			Name: strconv.Itoa(i), Algorithm: stint.Algorithm(algorithm), Amount: l.Amount,
			Period: micros(l.PeriodUS), Burst: l.Burst, Buckets: l.Buckets,
		})
		if err != nil {
			return nil, err
		}
		asks[i] = stint.Ask{Key: key, Limit: limit, Penalty: penalty}
	}
	return asks, nil
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func (v *vector) check(t testing.TB, s stint.Store) {
	t.Helper()
	asks, err := v.asks(v.Name)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	r := reader{t: t, store: s}
	for i := range v.Events {
		e := &v.Events[i]
		for j := range asks {
			stint.Internal(friend.Of{}).SetUnits(&asks[j], e.Cost)
		}
		d, each := r.take(e.TUS, asks...)
		want, wantEach := e.want(asks)
		if wantEach == nil { // a ban: the file has no waits of the limits
			want.RetryAfter = max(want.RetryAfter, d.RetryAfter)
		}
		for j := range wantEach {
			if got, want := asks[j].Limit.Capacity(), e.Decisions[j].Limit; got != want {
				t.Fatalf("%s: limit %d: capacity %d, want %d", v.Name, j, got, want)
			}
			r.want(fmt.Sprintf("event %d, limit %d", i, j), each[j], wantEach[j])
		}
		if want.Limit != nil {
			want.Violations = d.Violations // not in the vectors
		}
		r.want(fmt.Sprintf("event %d, the whole", i), d, want)
	}
}

func (e *vectorEvent) want(asks []stint.Ask) (stint.Decision, []stint.Decision) {
	banLeft := micros(e.BanLeftUS)
	if len(e.Decisions) == 0 {
		return stint.Decision{Outcome: stint.Banned, Key: asks[0].Key, RetryAfter: banLeft, BanLeft: banLeft, Penalty: asks[0].Penalty}, nil
	}
	each := make([]stint.Decision, len(asks))
	for i, v := range e.Decisions {
		each[i] = stint.Decision{
			Allowed: v.Allowed, Outcome: stint.Limited, Limit: asks[i].Limit, Key: asks[i].Key,
			Remaining: v.Remaining, RetryAfter: stint.Never, ResetAfter: micros(v.ResetAfterUS), Delay: micros(v.DelayUS),
		}
		if v.Allowed {
			each[i].Outcome = stint.Allowed
		}
		if v.RetryAfterUS >= 0 {
			each[i].RetryAfter = micros(v.RetryAfterUS)
		}
	}
	d := strictest(each)
	for o := stint.Allowed; o <= stint.Banned; o++ {
		if o.String() == e.Outcome {
			d.Outcome = o
		}
	}
	if !d.Allowed {
		d.Penalty = asks[0].Penalty
	}
	if d.Outcome == stint.Banned {
		d.BanLeft = banLeft
		d.RetryAfter = max(d.RetryAfter, banLeft)
	}
	return d, each
}

func checkVectors(t testing.TB, e *env) {
	cases, err := vectors()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		cases[i].check(t, e.open())
	}
}
