package alerts

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

const (
	// mostTold is how many keys an instance remembers, so that it does not claim them again.
	mostTold = 10_000
	// mostCrossings is how many keys wait to be claimed. Others are noticed at their next request.
	mostCrossings = 256
	// mostClaims is how many keys an instance claims in a round.
	mostClaims = 50
	// mostKept is how many keys an instance reports, the newest, and mostKeptBytes how many
	// bytes of JSON they may take.
	mostKept      = 200
	mostKeptBytes = 32 << 10
	// keepKeys is how long keys are shown.
	keepKeys = 24 * time.Hour
	// leastPeriod is the least time between two messages about a key.
	leastPeriod = time.Minute
	mostPeriod  = 366 * 24 * time.Hour
)

// usage finds the keys that use much of a limit, among the decisions of this instance.
type usage struct {
	o       *Options
	seed    maphash.Seed
	waiting chan crossing

	mu   sync.Mutex
	told map[uint64]time.Time // until when a key is not claimed again, by hash

	// Used by one round at a time.
	again   *crossing     // it is unknown whether it was claimed
	kept    []reportedKey // the newest last
	changed bool          // kept was not reported yet
	seq     int64
}

// crossing is a key that used more of a limit than an alert's threshold.
type crossing struct {
	alert, rule, limit, key string
	usage                   float64
	period                  time.Duration
	claimant                string // unique, so that one key is claimed once
}

// reportedKey is a crossing that this instance claimed, as it is reported.
type reportedKey struct {
	// Seq counts the keys that an instance has claimed, from 1.
	Seq   int64     `json:"seq"`
	Alert string    `json:"alert"`
	Rule  string    `json:"rule"`
	Limit string    `json:"limit"` // its terms
	Key   string    `json:"key"`
	At    time.Time `json:"at"`
	Until time.Time `json:"until"` // the key is not reported again before
	Usage float64   `json:"usage"`
}

func (u *usage) init(o *Options) {
	u.o, u.seed = o, maphash.MakeSeed()
	u.waiting = make(chan crossing, mostCrossings)
	u.told = map[uint64]time.Time{}
}

// Decided checks whether a decision crosses the threshold of an alert about keys. It does not block.
func (a *Alerts) Decided(alert *rules.Alert, d *stint.Decision) {
	l := d.Limit
	if l == nil || d.By != stint.ByStore && d.By != stint.ByLease || !alert.Usage.Of(l) || !alert.Usage.Exceeded(l.Capacity(), rules.UsedOf(l, d)) {
		return
	}
	a.usage.crossed(alert, l, d)
}

func (u *usage) crossed(alert *rules.Alert, l *stint.Limit, d *stint.Decision) {
	period := l.Spec().Period
	if l.Spec().Calendar.Unit != 0 {
		period = d.ResetAfter // the rest of the window
	}
	period = min(max(period, leastPeriod), mostPeriod)
	if !u.first(alert.Name, l.ID(), d.Key, period) {
		return
	}
	c := crossing{
		alert: alert.Name, rule: alert.Usage.Rule, limit: l.Terms(), key: strings.Clone(d.Key),
		usage: float64(rules.UsedOf(l, d)) / float64(l.Capacity()), period: period, claimant: rand.Text(),
	}
	select {
	case u.waiting <- c:
	default:
		u.o.Missed()
	}
}

// first reports whether this instance notices a key for the first time in the period. If it has forgotten
// one, the claim is refused.
func (u *usage) first(alert, limit, key string, period time.Duration) bool {
	var h maphash.Hash
	h.SetSeed(u.seed)
	for _, part := range [...]string{alert, limit, key} {
		h.WriteString(part)
		h.WriteByte(0)
	}
	sum, now := h.Sum64(), time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if now.Before(u.told[sum]) {
		return false
	}
	if len(u.waiting) == cap(u.waiting) {
		u.o.Missed()
		return false // a later request of the key is checked again
	}
	if len(u.told) >= mostTold {
		u.makeRoom(now)
	}
	u.told[sum] = now.Add(period)
	return true
}

// makeRoom removes expired entries, or else some of the rest.
func (u *usage) makeRoom(now time.Time) {
	for sum, until := range u.told {
		if !now.Before(until) {
			delete(u.told, sum)
		}
	}
	for sum := range u.told {
		if len(u.told) < mostTold*9/10 {
			return
		}
		delete(u.told, sum)
	}
}

// report claims the waiting keys, and reports those that no other instance has claimed.
func (u *usage) report(ctx context.Context) {
	for range mostClaims {
		c := u.next()
		if c == nil {
			break
		}
		mine, err := u.claim(ctx, c)
		if err != nil {
			u.again = c
			u.o.Failed("alerts: a key cannot be claimed", err)
			break
		}
		if mine {
			u.keep(c)
		}
	}
	if u.changed {
		u.write(ctx)
	}
}

func (u *usage) next() *crossing {
	if c := u.again; c != nil {
		u.again = nil
		return c
	}
	select {
	case c := <-u.waiting:
		return &c
	default:
		return nil
	}
}

func (u *usage) claim(ctx context.Context, c *crossing) (bool, error) {
	h := sha256.New()
	for _, part := range [...]string{c.alert, c.rule, c.limit, c.key} {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return u.o.Reports.Claim(ctx, "alert-"+hex.EncodeToString(h.Sum(nil)[:16]), c.claimant, c.period)
}

func (u *usage) keep(c *crossing) {
	now := u.o.Now()
	u.seq++
	u.kept = append(u.kept, reportedKey{
		Seq: u.seq, Alert: c.alert, Rule: c.rule, Limit: c.limit, Key: c.key,
		At: now, Until: now.Add(c.period), Usage: c.usage,
	})
	if over := len(u.kept) - mostKept; over > 0 {
		u.kept = slices.Delete(u.kept, 0, over)
	}
	u.changed = true
}

// write reports the keys: as many of the newest as fit.
func (u *usage) write(ctx context.Context) {
	text, err := json.Marshal(u.kept)
	for err == nil && len(text) > mostKeptBytes {
		u.kept = slices.Delete(u.kept, 0, (len(u.kept)+3)/4)
		text, err = json.Marshal(u.kept)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err = u.o.Reports.Report(ctx, keysReport, u.o.ID, text, keepKeys)
	}
	if u.changed = err != nil; u.changed {
		u.o.Failed("alerts: keys cannot be reported", err)
	}
}

// decodeKeys reads the parts of the report of keys. It skips unreadable ones.
func decodeKeys(parts map[string][]byte) map[string][]reportedKey {
	keys := make(map[string][]reportedKey, len(parts))
	for id, text := range parts {
		var of []reportedKey
		if json.Unmarshal(text, &of) == nil && len(of) > 0 {
			slices.SortFunc(of, func(a, b reportedKey) int { return cmp.Compare(a.Seq, b.Seq) })
			keys[id] = of
		}
	}
	return keys
}

// lastReported is the number of the last key of each instance.
func lastReported(keys map[string][]reportedKey) map[string]int64 {
	last := make(map[string]int64, len(keys))
	for id, of := range keys {
		last[id] = of[len(of)-1].Seq
	}
	return last
}
