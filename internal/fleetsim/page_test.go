package fleetsim

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// page is docs/leases.md.
func page(all []pair) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Leases, simulated

How many calls of the store [leases](deployment.md#hot-keys) save, and what they cost. `+"`make fleet`"+` writes this page and prints all cases: the real code over one store in memory, in virtual time. [Decision 9](decisions/0009-leases.md) says why nothing passes beyond the limit.

![Calls of the store per decision, with leases and without](leases.svg)

- Each of %d keys may have %s per minute for each instance, with `+"`lease: %d%%`"+`.
- Requests arrive at random for 5 seconds, spread by Zipf's law over keys (exponent 1.5) and instances (0.5). From 1 × on, the buckets are exhausted at the start.
- Figures are of the hottest key. Demand is a multiple of its limit; brackets are without leases, with remembered refusals alone.
- No requests share a call, which would save more.

| instances | demand | calls per decision | passed, of the limit | of what passes without leases | stranded |
| ---: | ---: | ---: | ---: | ---: | ---: |
`, keys, count(perInstance), percent)
	for _, p := range all {
		w := &p.with
		if !slices.Contains(shownSizes, w.instances) {
			continue
		}
		allowed, _ := p.allowed()
		fmt.Fprintf(&b, "| %s | %g × | %s (%s) | %s | %s | %s |\n", count(int64(w.instances)), w.demand,
			three(w.hot), three(p.without.hot), share(allowed), share(float64(w.admitted)/float64(p.without.admitted)), share(w.stranded))
	}
	fmt.Fprintf(&b, `
*Stranded*: the most units that were charged and not served at any instant, of the limit. The run fails if more than the limit passes.

Below the limit, a lease lasts a quarter of a second; an instance with fewer than about 40 requests a second for a key leases nothing. Above it, instances refuse by themselves and ask about ten times a second for what has come back. At the limit, calls are the most.

Leased units can be lost:

- A refund that fails is not sent again; its units count in `+"`stint_lease_units_total{state=\"void\"}`"+`.
- An instance that is killed refunds nothing. With M instances it held at most one part in 2M of the share. A token bucket gets these units back like used ones; a fixed window loses them until it ends: with `+"`lease: %d%%`"+` and two instances %s of the window (`+"`TestAttackKilledLease`"+`).
`, percent, share(percent/400.0))
	return b.String()
}

// shownSizes are on the page; the picture has all.
var shownSizes = []int{2, 1000}

func three(x float64) string { return fmt.Sprintf("%.3f", x) }

// share is a percentage that says 100 only where it is.
func share(x float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.2f", math.Floor(x*10_000+1e-6)/100), ".00") + " %"
}

func count(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", count(n/1000), n%1000)
}

const (
	panel, panelTop, panelHeight = 380, 96, 260
	panelGap, margin             = 60, 70
)

var colours = []string{"#2e8b57", "#0b5fa5", "#c2410c", "#7c3aed"}

// picture is docs/leases.svg: calls per decision on the left, on the right what passed.
func picture(all []pair) string {
	var b strings.Builder
	width, height := 2*margin+2*panel+panelGap, panelTop+panelHeight+80
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13">
<title>Calls of the store per decision and what passed, for 2 to 1,000 instances, with leases and without</title>
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="20" y="30" font-size="18" font-weight="600" fill="#111">One hot key on 2 to 1,000 instances</text>
<text x="20" y="52" fill="#555">Solid: with lease: %d%%. Dashed: without. Simulated with the real code; demand as a multiple of the limit.</text>
`, width, height, percent)
	plot := func(left int, title string, value func(*pair) (with, without float64)) {
		x := func(n int) float64 {
			low, high := math.Log(float64(sizes[0])), math.Log(float64(sizes[len(sizes)-1]))
			return float64(left) + (math.Log(float64(n))-low)/(high-low)*panel
		}
		y := func(v float64) float64 { return panelTop + panelHeight*(1-v/1.1) }
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-weight="600" fill="#111">%s</text>
`, left, panelTop-10, title)
		for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
			fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" fill="#777" text-anchor="end">%g</text>
`, left, y(v), left+panel, y(v), left-8, y(v)+4, v)
		}
		for _, n := range sizes {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#777" text-anchor="middle">%s</text>
`, x(n), panelTop+panelHeight+20, count(int64(n)))
		}
		for i, demand := range demands {
			var with, without []string
			for j := range all {
				if p := &all[j]; p.with.demand == demand {
					a, b := value(p)
					with = append(with, fmt.Sprintf("%.1f,%.1f", x(p.with.instances), y(a)))
					without = append(without, fmt.Sprintf("%.1f,%.1f", x(p.with.instances), y(b)))
				}
			}
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="5 4" opacity="0.7"/>
<polyline points="%s" fill="none" stroke="%s" stroke-width="2.5"/>
`, strings.Join(without, " "), colours[i], strings.Join(with, " "), colours[i])
		}
	}
	plot(margin, "calls of the store per decision", func(p *pair) (float64, float64) { return p.with.hot, p.without.hot })
	plot(margin+panel+panelGap, "passed, of what comes back", func(p *pair) (float64, float64) { return p.allowed() })
	for i, demand := range demands {
		px := margin + i*110
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2.5"/><text x="%d" y="%d" fill="#555">%g × limit</text>
`, px, height-22, px+24, height-22, colours[i], px+30, height-18, demand)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#777">instances</text>
</svg>
`, width-margin-60, height-18)
	return b.String()
}

// allowed is what passed, of what comes back in the span, with leases and without.
func (p *pair) allowed() (with, without float64) {
	of := perInstance * float64(p.with.instances) * p.with.span.Minutes()
	return float64(p.with.admitted) / of, float64(p.without.admitted) / of
}
