package suggest

// heldOutKinds are other kinds of clients. None of their worlds was looked at before the thresholds of
// the package were final.
var heldOutKinds = []kind{
	{"sensors", sensors}, {"shoppers", shoppers}, {"scripts", scripts}, {"chatters", chatters},
}

// sensors report at even distances, send what they have kept after they were away, and have alarms.
func sensors(g *generator) func() client {
	every, away, alarms := g.between(2, 12)*3600, g.between(0.05, 0.3), g.between(0.02, 0.2)
	alarm, differ := g.between(3, 15), g.between(0.1, 0.6)
	return func() client {
		alarm, phase := g.lognormal(alarm, differ), g.Float64()*every
		kept := 0
		return func(bool) (all []float64) {
			for t := phase; t < 86400; t += every {
				kept++
				if g.Float64() < away {
					continue
				}
				for i := range kept {
					all = append(all, t+float64(i)*0.2)
				}
				kept = 0
			}
			for range g.poisson(alarms) {
				t := g.Float64() * 86400
				for range 1 + g.poisson(alarm) {
					t += g.ExpFloat64() * 4
					all = append(all, t)
				}
			}
			return all
		}
	}
}

// shoppers type, and each letter is a request; they look at what they find.
func shoppers(g *generator) func() client {
	visits, searches, letters, looks := g.between(0.05, 0.4), g.between(1, 5), g.between(3, 10), g.between(1, 6)
	weekend, differ := g.between(0.8, 2.5), g.between(0.2, 0.5)
	return func() client {
		visits, searches := g.lognormal(visits, differ), g.lognormal(searches, differ)
		return func(isWeekend bool) (all []float64) {
			mean := visits
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				t := g.awake()
				for range 1 + g.poisson(searches) {
					for range 1 + g.poisson(letters) {
						t += 0.1 + g.ExpFloat64()*0.2
						all = append(all, t)
					}
					for range g.poisson(looks) {
						t += 3 + g.ExpFloat64()*20
						all = append(all, t)
					}
				}
			}
			return all
		}
	}
}

// scripts run loops, one request after the other, whose lengths differ much.
func scripts(g *generator) func() client {
	runs, loops, answers, differ := g.between(0.05, 0.5), g.between(5, 30), g.between(0.1, 2), g.between(0.4, 1)
	weekend := g.between(0.1, 1)
	return func() client {
		runs, answers := g.lognormal(runs, 0.5), g.lognormal(answers, 0.3)
		return func(isWeekend bool) (all []float64) {
			mean := runs
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				t := g.awake()
				for range int(g.lognormal(loops, differ)) {
					all = append(all, t)
					t += answers * (0.5 + g.ExpFloat64()/2)
				}
			}
			return all
		}
	}
}

// chatters send messages in talks, quickly or slowly; each message is two requests.
func chatters(g *generator) func() client {
	talks, turns, thinks, weekend := g.between(0.1, 0.8), g.between(3, 20), g.between(5, 60), g.between(0.6, 1.6)
	return func() client {
		talks, thinks := g.lognormal(talks, 0.6), g.lognormal(thinks, 0.5)
		return func(isWeekend bool) (all []float64) {
			mean := talks
			if isWeekend {
				mean *= weekend
			}
			for range g.poisson(mean) {
				t := g.awake()
				for g.Float64() < turns/(1+turns) {
					t += g.lognormal(thinks, 0.7)
					all = append(all, t, t+0.05+0.1*g.Float64())
				}
			}
			return all
		}
	}
}
