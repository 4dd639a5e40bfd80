package fleet

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"time"

	"github.com/stintdev/stint"
)

type ban struct {
	mark
	hash    uint64
	key, id string        // the banned key and the penalty's ID
	until   int64         // ns
	came    int64         // when the answer came, ns
	left    time.Duration // of the ban, when the answer came
}

func (d *Denials) recordHash(key, id string) uint64 {
	return (d.hash(key) ^ bits.RotateLeft64(maphash.String(d.seed, id), 31)) * 0x9e3779b97f4a7c15
}

// recallBan answers with the longest remembered ban of r's keys.
func (d *Denials) recallBan(r *stint.Request, epoch uint64) (stint.Decision, bool) {
	var longest stint.Decision
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil || penaltyOf(a.Penalty).Ban == 0 {
			continue
		}
		hash := d.recordHash(a.Key, a.Penalty.ID())
		set := d.bans.set(hash)
		for j := range set {
			b := set[j].Load()
			if b == nil || b.hash != hash || b.key != a.Key || b.id != a.Penalty.ID() {
				continue
			}
			now := d.now()
			if now >= b.until || !b.holds(epoch) {
				continue
			}
			if left := left(b.left, b.came, now); left > longest.BanLeft {
				longest = stint.Decision{Outcome: stint.Banned, Remembered: true, Key: a.Key, RetryAfter: left, BanLeft: left, Penalty: a.Penalty}
			}
		}
	}
	return longest, longest.BanLeft > 0
}

// learnBan remembers the ban in an answer to r, if its key is clear.
func (d *Denials) learnBan(m *moment, r *stint.Request, answer *stint.Decision) {
	whose := internal.Punished(answer, r)
	if answer.BanLeft <= 0 || whose < 0 {
		return
	}
	a, now := &r.Asks[whose], d.now()
	b := &ban{
		mark: m.mark(whose), hash: d.recordHash(a.Key, a.Penalty.ID()), key: strings.Clone(a.Key), id: a.Penalty.ID(),
		until: stands(m.at, answer.BanLeft), came: now, left: answer.BanLeft,
	}
	d.bans.put(b.hash, b, func(old *ban) bool {
		return now >= old.until || !old.holds(m.epoch) || old.hash == b.hash && old.key == b.key && old.id == b.id
	})
}
