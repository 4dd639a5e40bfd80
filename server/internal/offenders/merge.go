package offenders

import (
	"context"
	"time"

	"github.com/stintdev/stint/internal/heavy"
)

const (
	mergeEvery = 60 // seconds
	// A span is merged mergeAfter its end, and again lateAfter its end, with late parts. Then the hour is
	// merged, too.
	mergeAfter = 30 * time.Second
	lateAfter  = 25 * time.Minute
	// claimFor is how long an instance's claim to merge lasts without renewal.
	claimFor = 150 * time.Second
)

// merger merges for the fleet. Merging the same parts again gives the same result, so another instance can
// take over.
type merger struct {
	*Counter
	early, last map[int64]bool // spans that were merged
	hours       map[int64]bool
}

// merge merges ended spans and hours, if this instance has the claim.
func (m *merger) merge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 4*callTimeout)
	defer cancel()
	if mine, err := m.Reports.Claim(ctx, "offenders", m.ID, claimFor); err != nil || !mine {
		m.early, m.last, m.hours = nil, nil, nil
		return
	}
	if m.early == nil {
		m.early, m.last, m.hours = map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	}
	if err := m.mergeAll(ctx, m.Now()); err != nil {
		m.Failed(err)
	}
}

func (m *merger) mergeAll(ctx context.Context, now time.Time) error {
	newest := spanOf(now) - 1
	oldest := spanOf(now.Add(-keepParts)) + 1 // whose parts are all there
	for n := oldest; n <= newest; n++ {
		done, ended := m.early, startOf(n+1)
		if now.Sub(ended) >= lateAfter {
			done = m.last
		}
		if done[n] || now.Sub(ended) < mergeAfter {
			continue
		}
		err := m.into(ctx, spanName(n), keepSpans, partBytes, partsName(n))
		if err != nil {
			return err
		}
		done[n] = true
	}
	forget(m.early, oldest)
	forget(m.last, oldest)
	// The newest hour whose spans get no more parts.
	newestHour := hourOf(now.Add(-lateAfter-mergeEvery*time.Second)) - 1
	for n := newestHour - 1; n <= newestHour; n++ {
		if m.hours[n] {
			continue
		}
		var names []string
		for i := range spansOfHour {
			names = append(names, spanName(n*spansOfHour+i))
		}
		if err := m.into(ctx, hourName(n), Keeps+hour, hourBytes, names...); err != nil {
			return err
		}
		m.hours[n] = true
	}
	forget(m.hours, newestHour-1)
	return nil
}

func forget(done map[int64]bool, before int64) {
	for n := range done {
		if n < before {
			delete(done, n)
		}
	}
}

// into merges all parts of some reports, and writes them as one, if there are any.
func (m *merger) into(ctx context.Context, name string, keep time.Duration, most int, from ...string) error {
	var all []*lists
	instances := int64(0)
	for _, name := range from {
		parts, err := m.Reports.Reported(ctx, name)
		if err != nil {
			return err
		}
		n := int64(0)
		for _, text := range parts {
			l, of, err := decode(text, everything)
			if err != nil {
				m.Failed(err)
				continue
			}
			all, n = append(all, l), n+of
		}
		instances = max(instances, n)
	}
	if len(all) == 0 {
		return nil
	}
	var sum lists
	some := make([]heavy.List, len(all))
	for of := range sum {
		for by := range sum[of] {
			for i, l := range all {
				some[i] = l[of][by]
			}
			sum[of][by] = heavy.Merge(m.Most, some...)
		}
	}
	return m.Reports.Report(ctx, name, merged, sum.encode(instances, most), keep)
}
