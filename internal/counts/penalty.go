package counts

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/stintdev/stint/internal/algo"
)

// findRecord returns a key's record, or nil, and its shard.
func (m *Memory) findRecord(key string, p *Penalty) (*shard, *entry) {
	hash := m.hash(key)
	s := m.shardOf(hash)
	return s, s.index[printOf(hash, p.Salt)]
}

// addRecord copies the key, which may be part of a large string, or hashes it.
func (m *Memory) addRecord(s *shard, a *Ask) *entry {
	e := s.add(printOf(m.hash(a.Key), a.Penalty.Salt))
	e.record = &punished{penalty: a.Penalty, key: strings.Clone(a.Key)}
	if len(a.Key) > longKey {
		e.record.key, e.record.hashed = hashedKey(a.Key), true
	}
	return e
}

// longKey is the length in bytes above which a record's key is hashed, as in Redis.
const longKey = 64

// bytesOfRecord is about the most bytes of a record, with its place in the map.
const bytesOfRecord = 250

func hashedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "#" + base64.RawURLEncoding.EncodeToString(sum[:24])
}

// ban returns the longest running ban. stale: a record is from an impossible future.
func (m *Memory) ban(asks []Ask, now int64) (ban Punishment, stale bool) {
	ban.By = None
	for i := range asks {
		a := &asks[i]
		if a.Penalty == nil {
			continue
		}
		if _, e := m.findRecord(a.Key, a.Penalty); e != nil {
			left := a.Penalty.Plan.BanLeft(&e.record.Record, now)
			stale = stale || a.Penalty.Plan.Ahead(&e.record.Record, now)
			if left > ban.BanLeft {
				ban = Punishment{i, algo.Punishment{Sentence: algo.Banned, BanLeft: left}}
			}
		}
	}
	return ban, stale
}

// dropStale forgets records too far ahead of now, so that their bans do not come back.
func (m *Memory) dropStale(asks []Ask, now int64) {
	for i := range asks {
		a := &asks[i]
		if a.Penalty == nil || a.Cost == 0 {
			continue
		}
		if s, e := m.findRecord(a.Key, a.Penalty); e != nil && a.Penalty.Plan.Ahead(&e.record.Record, now) {
			s.remove(e)
		}
	}
}

// punish counts one violation for each key and penalty of an ask that refused.
func (m *Memory) punish(asks []Ask, now int64, own bool) Punishment {
	p := Punishment{By: None}
	for i := range asks {
		if asks[i].Penalty != nil && isFirst(asks, i) && refused(asks, &asks[i]) {
			m.violate(asks, i, 1, now, own, &p)
		}
	}
	return p
}

func isFirst(asks []Ask, i int) bool {
	for j := range i {
		if asks[j].sharesRecord(&asks[i]) {
			return false
		}
	}
	return true
}

func refused(asks []Ask, a *Ask) bool {
	for i := range asks {
		if asks[i].refusesUnder(a) {
			return true
		}
	}
	return false
}

// violate counts times violations of the key of ask i, and makes p the outcome if that is graver.
// Without room, it does nothing, and the request stays refused.
func (m *Memory) violate(asks []Ask, i int, times, now int64, own bool, p *Punishment) {
	a := &asks[i]
	s, e := m.findRecord(a.Key, a.Penalty)
	if e == nil {
		if s.sweep(now, own); !s.makeRoom(now, m.least.Load(), true) {
			return
		}
		e = m.addRecord(s, a)
	}
	e.record.penalty = a.Penalty
	came := a.Penalty.Plan.Punish(&e.record.Record, now, times)
	e.unused = e.record.Clean()
	if p.By == None || came.Graver(&p.Punishment) {
		*p = Punishment{i, came}
	}
}

// Violate counts Cost violations of each ask's key, at least one; of asks that share key and penalty,
// the first counts. If a ban runs, that is the result, and nothing is counted.
func (m *Memory) Violate(asks []Ask, at int64) Punishment {
	var few [fewAsks]uint64
	defer m.unlock(m.lock(asks, few[:0]))
	now := m.at(at)
	p, _ := m.ban(asks, now)
	if p.By != None {
		return p
	}
	for i := range asks {
		if isFirst(asks, i) {
			m.violate(asks, i, max(1, asks[i].Cost), now, at == OwnClock, &p)
		}
	}
	return p
}

// Record returns the record of a key under a penalty, and the current instant.
func (m *Memory) Record(key string, p *Penalty) (r algo.Record, now int64) {
	s := m.lockKey(key)
	defer s.mu.Unlock()
	if _, e := m.findRecord(key, p); e != nil {
		r = e.record.Record
	}
	return r, m.Now()
}

// Ban is a running ban.
type Ban struct {
	Key     string
	Hashed  bool // Key is a hash
	Penalty *Penalty
	Record  algo.Record
	Now     int64 // instant at which it was read
}

// Bans calls yield once for each running ban, in no order, until yield returns false, which is not
// an error, or ctx is done. yield may use m.
func (m *Memory) Bans(ctx context.Context, yield func(*Ban) bool) error {
	for i := range m.shards {
		seen := make(map[uint64]bool)
		for left := -1; left != 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			var some []Ban
			some, left = m.bansIn(&m.shards[i], left, seen)
			for i := range some {
				if !yield(&some[i]) {
					return nil
				}
			}
		}
	}
	return nil
}

// lookedAt is how many entries are read under one lock.
const lookedAt = 4096

// bansIn returns bans among the last entries before index left (-1: the end), and the index to
// continue at. Entries only move to the front, so none is missed.
func (m *Memory) bansIn(s *shard, left int, seen map[uint64]bool) ([]Ban, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.Now()
	if left < 0 || left > len(s.all) {
		left = len(s.all)
	}
	var bans []Ban
	front := max(0, left-lookedAt)
	for _, e := range s.all[front:left] {
		r := e.record
		if r != nil && !seen[e.print] && r.penalty.Plan.BanLeft(&r.Record, now) > 0 {
			seen[e.print] = true
			bans = append(bans, Ban{Key: r.key, Hashed: r.hashed, Penalty: r.penalty, Record: r.Record, Now: now})
		}
	}
	return bans, front
}
