package redislimit

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// batch is the arguments of a call of a script, to be used again.
type batch struct {
	at     time.Time // of all requests; zero: the server's clock
	text   []byte    // the keys, one after another
	ends   []int     // of each key in text
	blob   []byte
	groups []group
	asks   int        // of all groups
	plain  *stint.Ask // the last one, where another request may follow as "again"
	args   []string   // what is sent
}

// group is identical requests that go as one.
type group struct {
	asks   []stint.Ask
	count  int
	place  int  // in blob
	single bool // no identical request may join it
}

// reset empties b. err is how its call ended: a Client that gave up may still be sending the
// arguments, so it keeps them.
func (b *batch) reset(err error) {
	if err != nil {
		b.args = nil
	}
	clear(b.groups)
	clear(b.args)
	*b = batch{text: b.text[:0], ends: b.ends[:0], blob: b.blob[:0], groups: b.groups[:0], args: b.args[:0]}
}

func (b *batch) addKey(s *Store, subject, id string) {
	b.text = s.appendKey(b.text, subject, id)
	b.ends = append(b.ends, len(b.text))
}

// add appends a request and returns its group and its place there. It keeps asks, which share a
// record if they share key and penalty.
func (s *Store) add(b *batch, asks []stint.Ask) (g, place int) {
	grouped := mayJoin(asks)
	if grouped {
		for g = len(b.groups) - 1; g >= max(0, len(b.groups)-mostCompared); g-- {
			old := &b.groups[g]
			if !old.single && identical(old.asks, asks) && old.count < algo.MaxCount {
				place = old.count
				old.count++
				algo.SetCount(b.blob, old.place, old.count)
				return g, place
			}
			if old.single && len(old.asks) > fewAsks || shareKey(old.asks, asks) {
				break // they must be decided in their order
			}
		}
	}
	b.groups = append(b.groups, group{asks, 1, len(b.blob), !grouped})
	b.asks += len(asks)
	if a := &asks[0]; len(asks) == 1 && a.Penalty == nil && a.MaxDelay == 0 && kit.Plan(a.Limit).Small() {
		b.addKey(s, a.Key, a.Limit.ID())
		if p := b.plain; p != nil && p.Units() == a.Units() && samePlan(p.Limit, a.Limit) {
			b.blob = algo.AppendAgain(b.blob)
		} else {
			b.blob = algo.AppendPlain(b.blob, kit.Plan(a.Limit), a.Units())
			b.plain = a
		}
		return len(b.groups) - 1, 0
	}
	places, penalised := penalties(asks)
	s.addPenalties(b, penalised, counts(asks))
	for i := range asks {
		a := &asks[i]
		if a.Limit == nil {
			continue
		}
		place := 0
		if a.Penalty != nil {
			place = places[i]
		}
		b.addKey(s, a.Key, a.Limit.ID())
		b.blob = algo.AppendAsk(b.blob, kit.PlanOf(a), place, a.Units())
	}
	return len(b.groups) - 1, 0
}

func counts(asks []stint.Ask) (n int) {
	for i := range asks {
		if asks[i].Limit != nil {
			n++
		}
	}
	return n
}

// addPenalties appends the beginning of a request of so many asks.
func (s *Store) addPenalties(b *batch, penalised []*stint.Ask, asks int) {
	b.blob = algo.AppendRequest(b.blob, len(penalised), asks)
	for _, a := range penalised {
		b.addKey(s, a.Key, a.Penalty.ID())
		b.blob = algo.AppendPenalty(b.blob, kit.PenaltyPlan(a.Penalty))
	}
}

// fewAsks and mostCompared bound which requests are compared to find identical ones.
const (
	fewAsks      = 4
	mostCompared = mergedAsks
)

func mayJoin(asks []stint.Ask) bool {
	if len(asks) > fewAsks {
		return false
	}
	for i := range asks {
		if asks[i].Penalty != nil || asks[i].MaxDelay != 0 || !kit.Plan(asks[i].Limit).Small() {
			return false
		}
	}
	return true
}

func samePlan(a, b *stint.Limit) bool { return a == b || *kit.Plan(a) == *kit.Plan(b) }

func sameCount(a, b *stint.Ask) bool {
	return a.Limit != nil && b.Limit != nil && a.Key == b.Key && (a.Limit == b.Limit || a.Limit.ID() == b.Limit.ID())
}

func identical(x, y []stint.Ask) bool {
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		a, b := &x[i], &y[i]
		if a.Units() != b.Units() || !sameCount(a, b) || !samePlan(a.Limit, b.Limit) {
			return false
		}
	}
	return true
}

func shareKey(x, y []stint.Ask) bool {
	for i := range x {
		for j := range y {
			if sameCount(&x[i], &y[j]) {
				return true
			}
		}
	}
	return false
}

func (b *batch) command(sc conn.Script) []string {
	keys := len(b.text)
	b.text = append(b.text, b.blob...)
	text := string(b.text)
	b.args = append(b.args[:0], "EVALSHA", sc.SHA, strconv.Itoa(len(b.ends)))
	from := 0
	for _, end := range b.ends {
		b.args = append(b.args, text[from:end])
		from = end
	}
	at := ""
	if !b.at.IsZero() {
		at = strconv.FormatInt(b.at.UnixMicro(), 10)
	}
	b.args = append(b.args, at, text[keys:])
	b.text = b.text[:keys]
	return b.args
}

func (b *batch) key(i int) string {
	from := 0
	if i > 0 {
		from = b.ends[i-1]
	}
	return string(b.text[from:b.ends[i]])
}

// penalties finds the records that a request faces: for each an ask that bears it, and for each
// ask its record's place, from 1.
func penalties(asks []stint.Ask) (places []int, distinct []*stint.Ask) {
	for i := range asks {
		a := &asks[i]
		if a.Penalty == nil {
			continue
		}
		if places == nil {
			places = make([]int, len(asks))
		}
		for j, d := range distinct {
			if d.Key == a.Key && d.Penalty.ID() == a.Penalty.ID() {
				places[i] = j + 1
			}
		}
		if places[i] == 0 {
			distinct = append(distinct, a)
			places[i] = len(distinct)
		}
	}
	return places, distinct
}

var takeScript = conn.NewScript(algo.TakeScript)

func (s *Store) run(ctx context.Context, b *batch) (string, error) {
	reply, err := s.conn.EvalString(ctx, takeScript, b.command(takeScript))
	if err != nil {
		return "", fmt.Errorf("redislimit: %w", markNotCharged(err))
	}
	return reply, nil
}
