package suggest

import (
	"math"
	"time"
)

const (
	windows = 6
	parts   = 20 // sub-windows of a window
	kept    = 3  // days whose peaks a key keeps for each window
	exact   = 8  // units up to which peaks are exact
)

// periods are the windows whose peaks are measured. slotsOf knows them, too.
var periods = [windows]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

var periodsMS = [windows]int64{1000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000}

// tick is the sub-window of the shortest window, in microseconds.
const tick = 50_000

// slotsOf numbers the sub-window of each window that contains a tick. Every sub-window consists
// of whole sub-windows of the shorter window, so once a number has not changed, those of longer
// windows have not changed either. The divisors are constants because a division by a variable
// takes ten times as long.
func slotsOf(tick int64) (s [windows]int64) {
	s[0] = tick
	s[1] = s[0] / 10
	s[2] = s[1] / 6
	s[3] = s[2] / 10
	s[4] = s[3] / 6
	s[5] = s[4] / 24
	return s
}

// dayOf is the day that contains a tick.
func dayOf(t int64) int32 { return int32(t / (24 * 60 * 60 * (1_000_000 / tick))) }

// key counts the requests of one key and knows its peaks. It takes 496 bytes.
//
// A peak up to 8 is exact, to the millisecond. A higher one is the most units in any window that begins
// at a multiple of a twentieth of its length. So it is at most the peak over all windows of that
// length, and at least the peak over all windows that are 5% shorter.
type key struct {
	name  string
	total int64
	tick  int64 // of the newest request
	day   int32 // of the newest request
	sum   [windows]uint32
	today [windows]float32 // peaks of windows that end in day
	hour  [windows]uint16  // in which they were reached, since the first day of the log began
	top   [windows][kept]float32
	topAt [windows][kept]uint16 // their hours
	shift [windows]uint8
	known uint8 // how many of recent are
	pos   [windows]uint8
	// recent are the instants of the newest units, the newest first, in ms modulo 1<<32.
	recent [exact]uint32
	// ring has the units of each sub-window, in multiples of 1<<shift. Of a heavy key, each
	// sub-window is off by less than such a multiple, which is under 0.1% of its peak.
	ring [windows][parts]uint16
}

// start makes k a key whose first request is at a tick.
func (k *key) start(tick int64) {
	k.tick, k.day = tick, dayOf(tick)
	for w, slot := range slotsOf(tick) {
		k.pos[w] = uint8(slot % parts)
	}
}

// moveTo advances the key to a later tick, and ends its day if that is on another.
func (k *key) moveTo(now int64) {
	if day := dayOf(now); day != k.day {
		k.fold()
		k.day = day
	}
	k.advance(now)
}

// advance moves the windows forward to a later tick.
func (k *key) advance(tick int64) {
	old, now := slotsOf(k.tick), slotsOf(tick)
	k.tick = tick
	for w := range windows {
		steps := now[w] - old[w]
		if steps == 0 {
			return
		}
		if steps >= parts {
			k.ring[w], k.sum[w], k.shift[w] = [parts]uint16{}, 0, 0
			if w == windows-1 {
				k.known = 0
			}
			k.pos[w] = uint8(now[w] % parts)
			continue
		}
		pos := k.pos[w]
		for range steps {
			if pos++; pos == parts {
				pos = 0
			}
			k.sum[w] -= uint32(k.ring[w][pos])
			k.ring[w][pos] = 0
		}
		k.pos[w] = pos
	}
}

// add counts the units of a request at an instant in µs, in the newest tick.
func (k *key) add(at, cost int64) {
	k.remember(at, cost)
	before := uint64(k.total)
	after := before + uint64(cost)
	k.total = int64(after)
	for w := range windows {
		shift := k.shift[w] & 63
		units := after>>shift - before>>shift
		slot := &k.ring[w][k.pos[w]]
		if uint64(*slot)+units > math.MaxUint16 {
			units = k.coarsen(w, before, after)
			shift = k.shift[w] & 63
		}
		*slot += uint16(units)
		k.sum[w] += uint32(units)
		k.reach(w, float32(uint64(k.sum[w])<<shift), at)
	}
}

// reach notes what is in the window that ends at an instant.
func (k *key) reach(w int, units float32, at int64) {
	if units > k.today[w] {
		k.today[w] = units
		k.hour[w] = uint16(min(at/(3600*1_000_000), math.MaxUint16))
	}
}

// remember finds peaks of few units. Those on the day so far can only grow.
func (k *key) remember(at, cost int64) {
	ms := uint32(at / 1000)
	for range min(cost, exact) {
		r := k.recent
		k.recent = [exact]uint32{ms, r[0], r[1], r[2], r[3], r[4], r[5], r[6]} // faster than copy
		k.known = min(k.known+1, exact)
	}
	for w := range windows {
		for n := int(k.today[w]); n < int(k.known) && int64(ms-k.recent[n]) < periodsMS[w]; n++ {
			k.reach(w, float32(n+1), at)
		}
	}
}

// coarsen doubles the unit of a ring until what comes fits, and returns that in the new unit.
func (k *key) coarsen(w int, before, after uint64) (units uint64) {
	for {
		k.shift[w]++
		k.sum[w] = 0
		for i, n := range k.ring[w] {
			k.ring[w][i] = n / 2
			k.sum[w] += uint32(n / 2)
		}
		units = after>>k.shift[w] - before>>k.shift[w]
		if uint64(k.ring[w][k.pos[w]])+units <= math.MaxUint16 {
			return units
		}
	}
}

// fold ends a day: it keeps the day's peaks if they are among the highest.
func (k *key) fold() {
	for w := range windows {
		peak, hour := k.today[w], k.hour[w]
		k.today[w] = 0
		for i := range kept {
			if peak > k.top[w][i] {
				peak, k.top[w][i] = k.top[w][i], peak
				hour, k.topAt[w][i] = k.topAt[w][i], hour
			}
		}
	}
}
