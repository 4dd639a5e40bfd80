package suggest

import (
	"math"
	"strconv"
)

func nameOf(key int) string { return "192.0.2." + strconv.Itoa(key) }

// tunedKinds are the kinds of clients with which the thresholds of the package were chosen.
var tunedKinds = []kind{
	{"people", people}, {"apps", apps}, {"jobs", jobs}, {"steady", steady},
	{"phones", phones}, {"clocks", clocks}, {"players", players}, {"retriers", retriers},
}

// people visit, view pages, and read each. A page takes several requests.
func people(g *generator) func() client {
	visits, pages, parts := g.between(0.1, 0.6), g.between(2, 6), g.between(1, 6)
	reads, weekend, differ := g.between(8, 40), g.between(0.3, 2), g.between(0.2, 0.6)
	return func() client {
		visits := g.lognormal(visits, differ)
		return func(isWeekend bool) (all []float64) {
			mean := visits
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				t := g.awake()
				for g.Float64() < pages/(1+pages) {
					for range 1 + g.poisson(parts) {
						all = append(all, t+g.ExpFloat64()*0.3)
					}
					t += g.lognormal(reads, 0.8)
				}
			}
			return all
		}
	}
}

// apps ask every so often while they are open.
func apps(g *generator) func() client {
	visits, every, open := g.between(0.15, 0.8), g.between(5, 60), g.between(120, 900)
	starts, weekend, differ := g.between(1, 10), g.between(0.5, 1.5), g.between(0.1, 0.5)
	return func() client {
		visits, every := g.lognormal(visits, differ), g.lognormal(every, differ/2)
		return func(isWeekend bool) (all []float64) {
			mean := visits
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				t := g.awake()
				for range g.poisson(starts) {
					all = append(all, t+g.Float64())
				}
				for end := t + g.ExpFloat64()*open; t < end; t += every * (0.9 + 0.2*g.Float64()) {
					all = append(all, t)
				}
			}
			return all
		}
	}
}

// jobs send as a token bucket of their own lets them: a burst, and the rest at its rate.
func jobs(g *generator) func() client {
	runs, length, burst, rate := g.between(0.1, 0.6), g.between(10, 60), g.between(3, 20), g.between(0.1, 2)
	weekend, differ := g.between(0.1, 1), g.between(0.2, 0.6)
	return func() client {
		length, burst, rate := g.lognormal(length, differ), g.lognormal(burst, differ/2), g.lognormal(rate, differ/2)
		return func(isWeekend bool) (all []float64) {
			mean := runs
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				t := g.awake()
				for i := range 1 + g.poisson(length) {
					t += 0.02 + 0.02*g.Float64()
					if float64(i) > burst {
						t += 1 / rate
					}
					all = append(all, t)
				}
			}
			return all
		}
	}
}

// steady clients send at any moment of the day and the night alike.
func steady(g *generator) func() client {
	perDay, weekend, differ := g.between(1, 8), g.between(0.2, 1.5), g.between(0.2, 0.8)
	return func() client {
		perDay := g.lognormal(perDay, differ)
		return func(isWeekend bool) (all []float64) {
			mean := perDay
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				all = append(all, g.Float64()*86400)
			}
			return all
		}
	}
}

// Troubles.
var (
	none    = trouble{"none", func(*generator, *world) {}}
	attack  = trouble{"attack", addAttack}
	crawler = trouble{"crawler", addCrawler}
	outage  = trouble{"incident", addIncident}
)

// addAttack adds 1% of the keys, which make 90% of the requests, all the time or in up to three
// attacks of some hours.
func addAttack(g *generator, w *world) {
	n := int(math.Ceil(float64(len(w.ordinary)) / 99))
	all := float64(9 * w.requests())
	differ := g.between(0.1, 0.6)
	weights, sum := make([]float64, n), 0.0
	for i := range weights {
		weights[i] = g.lognormal(1, differ)
		sum += weights[i]
	}
	type span struct{ from, length float64 }
	begins, length := float64(w.begins()), float64(w.ends()-w.begins())
	spans := []span{{begins, length}}
	if g.IntN(2) == 0 {
		spans = nil
		for range 1 + g.IntN(3) {
			s := span{length: g.between(1, 8) * 3600 * second}
			s.from = begins + g.Float64()*(length-s.length)
			spans = append(spans, s)
		}
	}
	for i := range n {
		for range int(all * weights[i] / sum) {
			s := spans[g.IntN(len(spans))]
			w.other = append(w.other, eventOf(int64(s.from+g.Float64()*s.length), w.keys))
		}
		w.keys++
	}
}

// addCrawler adds one key, which makes 5% to 50% of the requests at an even pace.
func addCrawler(g *generator, w *world) {
	share := g.between(0.05, 0.5)
	n := float64(w.requests()) * share / (1 - share)
	begins, length := float64(w.begins()), float64(w.ends()-w.begins())
	takes := length * g.between(0.2, 1)
	from := begins + g.Float64()*(length-takes)
	for i := range int(n) {
		w.other = append(w.other, eventOf(int64(from+takes*(float64(i)+g.Float64())/n), w.keys))
	}
	w.keys++
}

// addIncident makes most clients send their requests of some hours of a day again and again.
func addIncident(g *generator, w *world) {
	length := int64(g.between(1, 5) * 3600 * second)
	from := int64(1+g.IntN(w.days-1))*day + int64((7+g.Float64()*12)*3600*second)
	clients, again, wait := g.between(0.4, 1), g.between(3, 12), g.between(0.5, 5)
	for k, all := range w.ordinary {
		if g.Float64() > clients {
			continue
		}
		for _, at := range all {
			if at < from || at > from+length {
				continue
			}
			t := float64(at)
			for range g.poisson(again) {
				t += g.ExpFloat64() * wait * second
				w.other = append(w.other, eventOf(int64(t), k))
			}
		}
	}
}
