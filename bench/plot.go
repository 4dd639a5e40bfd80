package main

import (
	"fmt"
	"html"
	"io"
	"math"
)

// The measures of a picture.
const (
	plotWidth = 900
	plotLeft  = 250
	plotRight = 90
	plotLine  = 18
	plotTop   = 78
	plotHead  = 40 // of a panel
)

var colours = map[kind]string{floor: "#999999", ours: "#0b5fa5", peer: "#d08a2e"}

// plot draws tables on one logarithmic scale: medians, and lines from fastest to slowest.
func plot(w io.Writer, title string, tables []*measured) {
	low, high := math.Inf(1), math.Inf(-1)
	height := plotTop + 34
	for _, m := range tables {
		height += plotHead + plotLine*len(m.results)
		for i := range m.results {
			for _, c := range m.results[i].each((*sample).cost) {
				low, high = min(low, c), max(high, c)
			}
		}
	}
	from, to := math.Log10(low)-0.1, math.Log10(high)+0.1
	x := func(ns float64) float64 {
		return plotLeft + (math.Log10(ns)-from)/(to-from)*(plotWidth-plotLeft-plotRight)
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">
<title>%s: time per decision</title>
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="20" y="28" font-size="18" font-weight="600" fill="#111">%s: time per decision</text>
<text x="20" y="50" fill="#555">Further left is faster; the scale is logarithmic. Dot: median; line: fastest to slowest round.</text>
`, plotWidth, height, title, title)
	at := 20.0
	for _, k := range []kind{ours, peer, floor} {
		fmt.Fprintf(w, `<circle cx="%.0f" cy="65" r="4" fill="%s"/><text x="%.0f" y="69" fill="#555">%s</text>
`, at+4, colours[k], at+14, k)
		at += 70
	}
	for e := math.Floor(from); e <= to; e++ {
		for _, first := range []float64{1, 2, 5} {
			ns := first * math.Pow(10, e)
			px := x(ns)
			if px < plotLeft || px > plotWidth-plotRight {
				continue
			}
			fmt.Fprintf(w, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e4e4e4"/><text x="%.1f" y="%d" fill="#777" text-anchor="middle">%s</text>
`, px, plotTop, px, height-28, px, height-12, tick(ns))
		}
	}
	y := plotTop
	for _, m := range tables {
		y += plotHead
		fmt.Fprintf(w, `<text x="20" y="%d" font-weight="600" fill="#111">%s</text>
`, y-12, html.EscapeString(m.table.title))
		for _, r := range m.sorted() {
			plotRow(w, r, float64(y), x)
			y += plotLine
		}
	}
	fmt.Fprintln(w, "</svg>")
}

func plotRow(w io.Writer, r *result, y float64, x func(float64) float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range r.each((*sample).cost) {
		low, high = min(low, c), max(high, c)
	}
	middle, colour, weight := r.cost().middle, colours[r.subject.kind], "400"
	if r.subject.name == mainRow {
		weight = "700"
	}
	fmt.Fprintf(w, `<text x="%d" y="%.1f" fill="#333" text-anchor="end" font-weight="%s">%s</text>
<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3" stroke-opacity="0.45"/><circle cx="%.1f" cy="%.1f" r="4.5" fill="%s"/>
<text x="%.1f" y="%.1f" fill="#555">%s</text>
`, plotLeft-12, y+8, weight, html.EscapeString(r.subject.name), x(low), y+4, x(high), y+4, colour, x(middle), y+4, colour,
		x(high)+9, y+8, duration(middle))
}

func tick(ns float64) string {
	switch {
	case ns >= 1e6:
		return fmt.Sprintf("%.0f ms", ns/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%.0f µs", ns/1e3)
	}
	return fmt.Sprintf("%.0f ns", ns)
}
