package suggest

import "math"

// phones are used in spells whose lengths differ much: a spell can be ten times as long as usual.
func phones(g *generator) func() client {
	spells, shortest, tail := g.between(0.3, 1.5), g.between(5, 20), g.between(1.5, 3)
	pause, weekend, differ := g.between(1, 8), g.between(0.7, 1.6), g.between(0.1, 0.6)
	return func() client {
		spells := g.lognormal(spells, differ)
		return func(isWeekend bool) (all []float64) {
			mean := spells
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				t := g.awake()
				length := min(3600, shortest*math.Pow(1-g.Float64(), -1/tail))
				for end := t + length; t < end; t += g.ExpFloat64() * pause {
					all = append(all, t)
				}
			}
			return all
		}
	}
}

// clocks start at the same minute of some hours, and send what they have as fast as they can.
func clocks(g *generator) func() client {
	hours, batch, takes := g.between(1, 6), g.between(2, 15), g.between(0.05, 0.5)
	weekend, differ := g.between(0.3, 1), g.between(0.2, 0.7)
	return func() client {
		batch, minute := g.lognormal(batch, differ), float64(g.IntN(60))
		return func(isWeekend bool) (all []float64) {
			if isWeekend && g.Float64() > weekend {
				return nil
			}
			for h := range 24 {
				if g.Float64() > hours/24 {
					continue
				}
				t := float64(h)*3600 + minute*60 + g.Float64()*2
				for range g.poisson(batch) {
					all = append(all, t)
					t += takes * (0.5 + g.Float64())
				}
			}
			return all
		}
	}
}

// players fetch pieces of a film at an even pace, after some pieces at once.
func players(g *generator) func() client {
	films, piece, minutes, ahead := g.between(0.05, 0.4), g.between(4, 12), g.between(2, 20), g.between(2, 8)
	weekend := g.between(1, 2.5)
	return func() client {
		films, minutes := g.lognormal(films, 0.4), g.lognormal(minutes, 0.3)
		return func(isWeekend bool) (all []float64) {
			mean := films
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				t := g.awake()
				for range int(ahead) {
					all = append(all, t)
					t += 0.1 + 0.2*g.Float64()
				}
				for end := t + g.lognormal(minutes*60, 0.5); t < end; t += piece + 0.2*g.NormFloat64() {
					all = append(all, t)
				}
			}
			return all
		}
	}
}

// retriers have tasks, several at a time, and try each again after 1 s, 2 s, 4 s, and so on.
func retriers(g *generator) func() client {
	times, tasks, fails, weekend := g.between(0.3, 2), g.between(1, 6), g.between(0.1, 0.6), g.between(0.2, 1.2)
	return func() client {
		times, fails := g.lognormal(times, 0.4), min(0.8, g.lognormal(fails, 0.2))
		return func(isWeekend bool) (all []float64) {
			mean := times
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				begin := g.awake()
				for range 1 + g.poisson(tasks) {
					t, wait := begin+g.ExpFloat64()*10, 1.0
					for all = append(all, t); wait < 100 && g.Float64() < fails; wait *= 2 {
						t += wait * (0.8 + 0.4*g.Float64())
						all = append(all, t)
					}
				}
			}
			return all
		}
	}
}
