package main

import (
	"cmp"
	"math"
	"slices"
)

// spread is a median with its quartiles.
type spread struct{ low, middle, high float64 }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	return spread{quantile(v, 0.25), quantile(v, 0.5), quantile(v, 0.75)}
}

// quantile interpolates between two values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// cost is the time from one decision to the next, in ns, without errors.
func (s *sample) cost() float64 { return float64(s.Nanos) / float64(s.Calls-s.Errors) }

func (r *result) each(f func(*sample) float64) []float64 {
	var all []float64
	for i := range r.Samples {
		all = append(all, f(&r.Samples[i]))
	}
	return all
}

func (r *result) cost() spread { return spreadOf(r.each((*sample).cost)) }

func (r *result) allocs() float64 {
	return spreadOf(r.each(func(s *sample) float64 { return float64(s.Mallocs) / float64(s.Calls) })).middle
}

// cpu is the CPU time of Redis, or of the server, for a decision, in µs, over all rounds, because that clock
// is coarse.
func (r *result) cpu() float64 {
	var seconds float64
	var decisions int64
	for _, s := range r.Samples {
		seconds += s.CPU
		decisions += s.Calls - s.Errors
	}
	return seconds * 1e6 / float64(decisions)
}

func (r *result) p99() float64 {
	return spreadOf(r.each(func(s *sample) float64 { return float64(s.P99) })).middle
}

func (r *result) share(of func(*sample) int64) float64 {
	var n, all int64
	for i := range r.Samples {
		n += of(&r.Samples[i])
		all += r.Samples[i].Calls
	}
	return float64(n) / float64(all)
}

func (r *result) over(other *result) spread { return r.ratio(other, (*sample).cost) }

func (r *result) cpuOver(other *result) spread {
	return r.ratio(other, func(s *sample) float64 { return s.CPU / float64(s.Calls-s.Errors) })
}

func (r *result) ratio(other *result, of func(*sample) float64) spread {
	return spreadOf(r.ratios(other, of))
}

// ratios are those of each round.
func (r *result) ratios(other *result, of func(*sample) float64) (all []float64) {
	for i := range min(len(r.Samples), len(other.Samples)) {
		all = append(all, of(&r.Samples[i])/of(&other.Samples[i]))
	}
	return all
}

func (m *measured) find(name string) *result {
	for i := range m.results {
		if m.results[i].subject.name == name {
			return &m.results[i]
		}
	}
	return nil
}

// floorOf is the floor of r's ratio; nil: none, as for floors.
func (m *measured) floorOf(r *result) *result {
	switch {
	case r.subject.kind == floor || r.subject.name == m.table.floor:
		return nil
	case r.subject.beside != "":
		return m.find(r.subject.beside)
	}
	return m.find(m.table.floor)
}

// bestPeer is the fastest peer that counts like r (by a log or not, by holds or not), else the fastest of
// all; nil: none.
func (m *measured) bestPeer(r *result) *result {
	var best, any *result
	for i := range m.results {
		p := &m.results[i]
		if p.subject.kind != peer {
			continue
		}
		if any == nil || p.cost().middle < any.cost().middle {
			any = p
		}
		if p.subject.log == r.subject.log && p.subject.holds == r.subject.holds && (best == nil || p.cost().middle < best.cost().middle) {
			best = p
		}
	}
	if best == nil {
		return any
	}
	return best
}

func (m *measured) sorted() []*result {
	var all []*result
	for i := range m.results {
		all = append(all, &m.results[i])
	}
	slices.SortStableFunc(all, func(a, b *result) int { return cmp.Compare(a.cost().middle, b.cost().middle) })
	return all
}
