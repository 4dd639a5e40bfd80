// Command picture draws what each algorithm admits of the same bursty traffic, as
// an SVG on standard output. "make picture" puts it into docs/algorithms.svg.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sort"
	"time"

	"github.com/stintdev/stint"
)

const (
	period = 10 * time.Second
	amount = 10
	span   = 60 * time.Second

	left, right, top, row = 200, 40, 84, 74
	perSecond             = 12.0
	width                 = left + int(span/time.Second)*perSecond + right
)

// start is the beginning of a fixed window.
var start = time.Unix(1_800_000_000, 0)

// traffic is when requests come: a trickle, a burst around the border of two
// fixed windows, silence, a flood of three periods, and a trickle again.
func traffic() []time.Duration {
	var at []time.Duration
	every := func(from, to, step time.Duration) {
		for t := from; t < to; t += step {
			at = append(at, t)
		}
	}
	every(time.Second, 6*time.Second, 1700*time.Millisecond)
	every(8600*time.Millisecond, 11400*time.Millisecond, 80*time.Millisecond)
	every(25*time.Second, 45*time.Second, 250*time.Millisecond)
	every(47*time.Second, 59*time.Second, 1900*time.Millisecond)
	return at
}

// admitted is what became of the requests under one algorithm.
type admitted struct {
	limit    *stint.Limit
	passed   []bool
	departed []time.Duration // of those that passed: when they may leave
	most     int             // in any window of a period
}

func decide(a stint.Algorithm, at []time.Duration) (admitted, error) {
	limit, err := stint.NewLimit(stint.Spec{Algorithm: a, Amount: amount, Period: period})
	if err != nil {
		return admitted{}, err
	}
	result := admitted{limit: limit}
	var limiter stint.Limiter
	var arrived []time.Duration
	for _, t := range at {
		r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}, At: start.Add(t)}
		d, err := limiter.Take(context.Background(), &r, nil)
		if err != nil {
			return admitted{}, err
		}
		result.passed = append(result.passed, d.Allowed)
		if d.Allowed {
			arrived = append(arrived, t)
			result.departed = append(result.departed, t+d.Delay)
		}
	}
	for i := range arrived {
		n := sort.Search(len(arrived), func(j int) bool { return arrived[j] >= arrived[i]+period }) - i
		result.most = max(result.most, n)
	}
	return result, nil
}

func main() {
	w := bufio.NewWriter(os.Stdout)
	if err := draw(w); err != nil {
		log.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		log.Fatal(err)
	}
}

func x(t time.Duration) float64 { return left + t.Seconds()*perSecond }

func draw(w io.Writer) error {
	at := traffic()
	algorithms := []stint.Algorithm{stint.FixedWindow, stint.SlidingLog, stint.SlidingWindow, stint.TokenBucket, stint.LeakyBucket}
	height := top + (len(algorithms)+1)*row + 30
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13">
<title>What each algorithm admits of the same traffic under 10 per 10s</title>
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="20" y="30" font-size="18" font-weight="600" fill="#111">The same traffic under “10 per 10s”</text>
<text x="20" y="52" fill="#555">Tall and blue: passed. Short and red: refused. Green: when what passed the leaky bucket leaves, if it waits its delay.</text>
`, width, height)
	for s := 0; s <= int(span/time.Second); s += 10 {
		px := x(time.Duration(s) * time.Second)
		fmt.Fprintf(w, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" fill="#777" text-anchor="middle">%ds</text>
`, px, top-14, px, height-28, px, height-10, s)
	}
	fmt.Fprintf(w, `<text x="20" y="%d" font-weight="600" fill="#111">traffic</text><text x="20" y="%d" fill="#555">%d requests</text>
`, top+16, top+34, len(at))
	for _, t := range at {
		bar(w, x(t), top+36, 28, "#888")
	}
	for i, a := range algorithms {
		got, err := decide(a, at)
		if err != nil {
			return err
		}
		y := top + (i+1)*row
		drawRow(w, got, at, y)
	}
	fmt.Fprintln(w, "</svg>")
	return nil
}

func drawRow(w io.Writer, got admitted, at []time.Duration, y int) {
	fmt.Fprintf(w, `<text x="20" y="%d" font-weight="600" fill="#111">%s</text><text x="20" y="%d" fill="#555">%d passed; %d in some 10s</text>
`, y+16, got.limit.Spec().Algorithm, y+34, len(got.departed), got.most)
	for i, t := range at {
		if got.passed[i] {
			bar(w, x(t), y+36, 28, "#0b5fa5")
		} else {
			bar(w, x(t), y+36, 9, "#e7a39a")
		}
	}
	if got.limit.Spec().Algorithm == stint.LeakyBucket {
		for _, t := range got.departed {
			if t < span {
				bar(w, x(t), y+58, 14, "#2e8b57")
			}
		}
	}
}

// bar stands on y.
func bar(w io.Writer, px float64, y, height int, colour string) {
	fmt.Fprintf(w, `<rect x="%.1f" y="%d" width="1.6" height="%d" fill="%s"/>
`, px-0.8, y-height, height, colour)
}
