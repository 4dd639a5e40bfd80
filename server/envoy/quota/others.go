package quota

import (
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
)

const (
	// newcomers is the part of a window's limit that is kept at its beginning for instances that took nothing
	// in the previous window. Units that nobody takes go to instances that ask again.
	newcomers = 0.1
	// fairness is how fast, from window to window, the shares of instances that use up a limit become equal:
	// an instance sees what others took, not what they wanted.
	fairness = 0.1
)

// others learns, from a limit's remaining units and those taken here, how much other instances use. It works
// for fixed windows only: under other limits units come back all the time, so each instance soon gets its
// part again. The zero others has seen nothing.
type others struct {
	limit  *stint.Limit
	window time.Time // the end of the window of mine and left
	mine   int64     // taken here
	left   int64     // when the limit was last asked
	whole  bool      // the window was seen from its beginning

	// parts is the limit in the last window divided by this instance's part; 0: not known.
	parts float64
}

// saw learns from a decision that took n units here. instances is the number of instances.
func (o *others) saw(now time.Time, v *server.Verdict, n int64, instances float64) {
	end := windowOf(now, v)
	if end.IsZero() { // unused, or not a fixed window
		if n > 0 {
			*o = others{}
		}
		return
	}
	if o.limit != v.Limit {
		*o = others{limit: v.Limit, window: end, mine: n, left: v.Remaining}
		return
	}
	if d := end.Sub(o.window); d > time.Second/2 || d < -time.Second/2 {
		o.end(instances)
		o.window, o.mine, o.whole = end, 0, true
	}
	o.mine += n
	o.left = v.Remaining
}

// gaveBack records that n units were refunded.
func (o *others) gaveBack(n int64) { o.mine -= n }

// end concludes from a window that is over.
func (o *others) end(instances float64) {
	if !o.whole || o.mine <= 0 {
		return
	}
	capacity := float64(o.limit.Capacity())
	theirs := max(0, capacity-float64(o.left)-float64(o.mine))
	o.parts = 1 + theirs/float64(o.mine)
	if theirs > 0 && float64(o.left) <= capacity/100 {
		o.parts += fairness * max(0, instances-o.parts)
	}
	o.parts = min(o.parts, instances)
}

// divides is by how much to divide the remaining units.
func (o *others) divides(instances float64) float64 {
	if o.parts == 0 || instances <= 1 {
		return instances
	}
	return min(instances, max(o.parts, 1/(1-newcomers)))
}
