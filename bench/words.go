package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// duration is ns in words, with three digits.
func duration(ns float64) string {
	switch {
	case math.IsNaN(ns):
		return "–"
	case ns >= 1e9:
		return digits(ns/1e9) + " s"
	case ns >= 1e6:
		return digits(ns/1e6) + " ms"
	case ns >= 1e3:
		return digits(ns/1e3) + " µs"
	}
	return digits(ns) + " ns"
}

func digits(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func ratio(s spread) string {
	return fmt.Sprintf("%s (%s–%s)", digits(s.middle), digits(s.low), digits(s.high))
}

// medianOf is a median with least and most, unless they look the same.
func medianOf(values []float64) string {
	middle, low, high := spreadOf(values).middle, slices.Min(values), slices.Max(values)
	switch {
	case middle != middle, low == high: // NaN
		return number(middle)
	case figure(low) == figure(high):
		return figure(middle)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(middle), figure(low), figure(high))
}

// figure has three digits, or all digits of the whole part.
func figure(v float64) string {
	if v < 100 {
		return digits(v)
	}
	return number(v)
}

func percent(share float64) string {
	switch {
	case share == 0:
		return "0 %"
	case share < 0.001:
		return "< 0.1 %"
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + " %"
}

// count is a whole number; "–": none.
func count(n int64) string {
	if n < 0 {
		return "–"
	}
	return number(float64(n))
}

// number has commas; it has a decimal only where it is small.
func number(v float64) string {
	if v < 100 && v != math.Round(v) {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	if v >= 1e6 {
		return digits(v/1e6) + " M"
	}
	text := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	var b strings.Builder
	for i, c := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
