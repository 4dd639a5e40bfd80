package main

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// A curve is a subject's time by the size of its work.
type curve struct {
	name  string
	kind  kind
	sizes []float64
	times []spread // in ns; their medians are drawn
}

// The measures of a picture of curves.
const (
	curvesLeft   = 70
	curvesRight  = 660
	curvesTop    = 80
	curvesBottom = 460
	curvesLabel  = 16 // between two names
)

// curveColours are those of Stint's curves; all others have the colour of their kind.
var curveColours = []string{"#0b5fa5", "#2e8b57", "#7c3aed", "#0e8fa0", "#be185d", "#4d7c0f", "#6b4226", "#b91c1c"}

// plotCurves draws curves, sizes to the right and times upwards, on logarithmic scales.
func plotCurves(w io.Writer, title, note, unit string, curves []curve) {
	var sizes, times []float64
	for _, c := range curves {
		sizes = append(sizes, c.sizes...)
		for _, t := range c.times {
			times = append(times, t.middle)
		}
	}
	x := logScale(sizes, curvesLeft, curvesRight)
	y := logScale(times, curvesBottom, curvesTop)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">
<title>%s</title>
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="20" y="28" font-size="18" font-weight="600" fill="#111">%s</text>
<text x="20" y="50" fill="#555">%s</text>
`, plotWidth, curvesBottom+50, html.EscapeString(title), html.EscapeString(title), html.EscapeString(note))
	for t := math.Pow(10, math.Ceil(math.Log10(slices.Min(times)))); t <= slices.Max(times); t *= 10 {
		fmt.Fprintf(w, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e4e4e4"/><text x="%d" y="%.1f" fill="#777" text-anchor="end">%s</text>
`, curvesLeft, y(t), curvesRight, y(t), curvesLeft-8, y(t)+4, tick(t))
	}
	for n := slices.Min(sizes); n <= slices.Max(sizes); n *= 10 {
		fmt.Fprintf(w, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e4e4e4"/><text x="%.1f" y="%d" fill="#777" text-anchor="middle">%s</text>
`, x(n), curvesTop, x(n), curvesBottom, x(n), curvesBottom+20, number(n))
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" fill="#777" text-anchor="middle">%s</text>
`, (curvesLeft+curvesRight)/2, curvesBottom+40, html.EscapeString(unit))
	drawCurves(w, curves, x, y)
	fmt.Fprintln(w, "</svg>")
}

// logScale puts values, all positive, between two places of a picture.
func logScale(values []float64, from, to float64) func(float64) float64 {
	low, high := math.Log(slices.Min(values)), math.Log(slices.Max(values))
	return func(v float64) float64 { return from + (math.Log(v)-low)/max(high-low, 1e-9)*(to-from) }
}

// drawCurves names each curve at its end; curves that end at the same size have their names below each
// other.
func drawCurves(w io.Writer, curves []curve, x, y func(float64) float64) {
	end := func(c curve) (size, time float64) { return c.sizes[len(c.sizes)-1], c.times[len(c.times)-1].middle }
	colour, inColour := map[string]string{}, 0
	for _, c := range curves {
		colour[c.name] = colours[c.kind]
		if c.kind == ours {
			colour[c.name] = curveColours[inColour%len(curveColours)]
			inColour++
		}
	}
	curves = slices.SortedFunc(slices.Values(curves), func(a, b curve) int {
		sizeA, timeA := end(a)
		sizeB, timeB := end(b)
		return cmp.Or(cmp.Compare(sizeA, sizeB), cmp.Compare(timeB, timeA))
	})
	lastSize, below := 0.0, 0.0
	for _, c := range curves {
		size, time := end(c)
		if size != lastSize {
			lastSize, below = size, 0
		}
		at := max(y(time), below)
		below = at + curvesLabel
		var points []string
		for i, n := range c.sizes {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(n), y(c.times[i].middle)))
		}
		dash, text := "", colour[c.name]
		if c.kind != ours {
			dash, text = ` stroke-dasharray="6 4"`, "#555"
		}
		fmt.Fprintf(w, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>
<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-opacity="0.5"/><text x="%.1f" y="%.1f" fill="%s">%s</text>
`, strings.Join(points, " "), colour[c.name], dash, x(size), y(time), x(size)+16, at, colour[c.name], x(size)+20, at+4, text, html.EscapeString(c.name))
	}
}
