package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// modelRule is a limit in one window, and modelAsk what a call asks of one value.
type modelRule struct {
	amount              int64
	quota, keepsRefused bool
	used                map[string]int64 // by value
}

type modelAsk struct {
	rule        *modelRule
	value       string
	cost        int64 // 0: asks whether one unit is left
	usedAlready int64 // the part of descriptors that take more than one
	alone       bool
	quota       bool
}

func (a *modelAsk) fits() bool {
	if a.cost == 0 && a.rule.amount > 0 {
		return a.rule.used[a.value] < a.rule.amount
	}
	return a.rule.used[a.value]+a.cost <= a.rule.amount
}

// decide is the obvious way to decide a call.
func decideByModel(all map[string]*modelRule, call *rules.Descriptors) (allowed bool) {
	var asks, back []*modelAsk
	for i := range call.List {
		d := &call.List[i]
		list := &asks
		if d.GiveBack {
			list = &back
		}
		var a *modelAsk
		rule, value := all[d.Entries[0].Key], d.Entries[0].Value
		for _, other := range *list {
			if other.rule == rule && other.value == value {
				a = other
			}
		}
		if a == nil {
			quota := rule.quota || call.Quota
			a = &modelAsk{rule: rule, value: value, alone: quota || call.Each, quota: quota}
			*list = append(*list, a)
		}
		a.cost += d.Cost
		if d.Cost > 1 {
			a.usedAlready += d.Cost
		}
	}
	together := true // whether those fit that are decided together
	for _, a := range asks {
		a.alone = a.alone || a.cost == 0
		together = together && (a.alone || a.fits())
	}
	fits := map[*modelAsk]bool{}
	quotas, over, refused := 0, 0, !together
	if call.Quota {
		quotas = len(back) // what gives back is not over
	}
	for _, a := range asks {
		fits[a] = a.fits() && (a.alone || together)
		switch {
		case a.quota && !fits[a]:
			quotas, over = quotas+1, over+1
		case a.quota:
			quotas++
		case !fits[a]:
			refused = true
		}
	}
	refused = refused || quotas > 0 && over == quotas
	taken := func(a *modelAsk) int64 {
		charged := int64(0)
		if !a.rule.keepsRefused && a.rule.amount > 0 && !call.Ahead {
			charged = a.usedAlready
		}
		switch {
		case !fits[a]:
			return charged
		case !refused || call.Each || charged > 0:
			return a.cost
		}
		return 0
	}
	// What is given back is what was used before the refused units are charged.
	for _, a := range asks {
		if fits[a] {
			a.rule.used[a.value] += taken(a)
		}
	}
	if call.Each || !refused {
		for _, a := range back {
			a.rule.used[a.value] = max(0, a.rule.used[a.value]-a.cost)
		}
	}
	for _, a := range asks {
		if !fits[a] {
			a.rule.used[a.value] += taken(a)
		}
	}
	return !refused
}

// Random calls are decided, and counted, as by a model.
func TestCallsAgainstModel(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 16))
			var file strings.Builder
			fmt.Fprintf(&file, "domain: d\ndescriptors:\n")
			all, keys := map[string]*modelRule{}, []string{"a", "b", "c", "e"}
			for _, key := range keys {
				m := &modelRule{amount: r.Int64N(6), quota: r.IntN(3) == 0, keepsRefused: r.IntN(3) == 0, used: map[string]int64{}}
				all[key] = m
				fmt.Fprintf(&file, "  - {key: %s, quota_mode: %v, rate_limit: {unit: year, requests_per_unit: %d, charge_refused: %v}}\n", key, m.quota, m.amount, !m.keepsRefused)
			}
			s := newCalls(t, file.String(), "{}", store)
			value := func() string { return fmt.Sprintf("%d-%d", seed, r.IntN(2)) }
			for n := range 60 {
				call := &rules.Descriptors{Domain: "d", Each: r.IntN(4) == 0, Quota: r.IntN(6) == 0, Ahead: r.IntN(8) == 0}
				for range 1 + r.IntN(4) {
					d := rules.Descriptor{Entries: []rules.Entry{{Key: keys[r.IntN(len(keys))], Value: value()}}, Cost: []int64{0, 1, 1, 1, 2, 4}[r.IntN(6)]}
					d.GiveBack = r.IntN(6) == 0
					call.List = append(call.List, d)
				}
				want := decideByModel(all, call)
				v, err := s.Decide(context.Background(), &rules.Input{Descriptors: call}, noon)
				if err != nil || v.Allowed != want {
					t.Fatalf("seed %d, call %d, %+v: %v, allowed %v, want %v\n%s", seed, n, call, err, v.Allowed, want, file.String())
				}
				for key, m := range all {
					for i := range 2 {
						peek := calling(fmt.Sprintf("%s=%d-%d*0", key, seed, i))
						used := m.used[fmt.Sprintf("%d-%d", seed, i)]
						want := fmt.Sprintf("yes: %d", max(0, max(1, m.amount)-used)) // a limit of 0 is one of 1 that nothing fits in
						if m.amount > 0 && used >= m.amount {
							want = "no: 0!"
						}
						v, err := s.Decide(context.Background(), peek, noon)
						if got := sayCall(peek, &v, err); got != want {
							t.Fatalf("seed %d, after call %d, %+v: %s %d: %s, want %s\n%s", seed, n, call, key, i, got, want, file.String())
						}
					}
				}
			}
		}
	})
}
