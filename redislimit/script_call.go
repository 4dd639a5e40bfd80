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

// batch has the arguments of a script call. It is reused.
type batch struct {
	at     time.Time // of all requests; zero: the server's clock
	text   []byte    // the keys, one after another
	ends   []int     // of each key in text
	blob   []byte
	groups []group
	asks   int        // and calls, of all groups
	holds  bool       // a limit is held
	plain  *stint.Ask // the last one, if another request may follow as "again"
	args   []string   // the command that is sent
}

// group has requests with the same question that are sent as one, or calls about one key under one
// limit.
type group struct {
	asks    []stint.Ask // of the first request; for calls, one with key and limit
	calls   bool
	action  action       // of calls
	holdID  stint.HoldID // of the first request
	holdFor time.Duration
	count   int
	place   int    // in blob
	single  bool   // no identical request may join it
	beside  []byte // the identities of the requests, or of the calls
	costs   []byte // of calls
	each    bool   // the costs differ
}

// reset empties b. err is the error of its call: a Client that gave up may still be sending
// the arguments, so they are not reused then.
func (b *batch) reset(err error) {
	if err != nil {
		b.args = nil
	}
	for i := range b.groups {
		b.groups[i] = group{beside: b.groups[i].beside[:0], costs: b.groups[i].costs[:0]}
	}
	clear(b.args)
	*b = batch{text: b.text[:0], ends: b.ends[:0], blob: b.blob[:0], groups: b.groups[:0], args: b.args[:0]}
}

func (b *batch) addKey(s *Store, subject, id string) {
	b.text = s.appendKey(b.text, subject, id)
	b.ends = append(b.ends, len(b.text))
}

// newGroup appends a group; its request must follow in the blob.
func (b *batch) newGroup(asks []stint.Ask) *group {
	n := len(b.groups)
	if n == cap(b.groups) {
		b.groups = append(b.groups, group{})
	}
	b.groups = b.groups[:n+1]
	g := &b.groups[n]
	*g = group{asks: asks, count: 1, place: len(b.blob), beside: g.beside[:0], costs: g.costs[:0]}
	return g
}

// join looks for a group that same accepts and that a request, or a call, about asks may join, and adds
// it there. Groups that share a count are decided in their order. That does not matter between waiting
// calls and requests, because each hold's own request was answered before; keeping it would make small
// groups.
func (b *batch) join(asks []stint.Ask, calls bool, same func(*group) bool) (at spot, joined bool) {
	for i := len(b.groups) - 1; i >= max(0, len(b.groups)-mostCompared); i-- {
		g := &b.groups[i]
		if g.calls != calls {
			continue
		}
		if !g.single && g.count < algo.MaxCount && same(g) {
			at = spot{i, g.count}
			g.count++
			algo.SetCount(b.blob, g.place, g.count)
			return at, true
		}
		if g.single && len(g.asks) > fewAsks || shareKey(g.asks, asks) {
			break
		}
	}
	return at, false
}

// add appends a request. It keeps asks, which share a record if they share key and penalty.
func (s *Store) add(b *batch, r *stint.Request) spot {
	asks, hold := r.Asks, kit.Holds(r)
	grouped := mayJoin(asks, hold)
	if grouped {
		at, joined := b.join(asks, false, func(g *group) bool {
			return sameQuestion(&stint.Request{Asks: g.asks, Hold: g.holdID, HoldFor: g.holdFor}, r)
		})
		if joined {
			if hold {
				g := &b.groups[at.group]
				g.beside = algo.AppendHoldID(g.beside, r.Hold)
			}
			return at
		}
	}
	g := b.newGroup(asks)
	g.single, g.holdID, g.holdFor = !grouped, r.Hold, r.HoldFor
	if hold {
		g.beside = algo.AppendHoldID(g.beside, r.Hold)
	}
	at := spot{len(b.groups) - 1, 0}
	b.asks += len(asks)
	if a := &asks[0]; len(asks) == 1 && a.Penalty == nil && a.MaxDelay == 0 && kit.Plan(a.Limit).Small() && !a.Limit.IsHeld() {
		b.addKey(s, a.Key, a.Limit.ID())
		if p := b.plain; p != nil && p.Units() == a.Units() && samePlan(p.Limit, a.Limit) {
			b.blob = algo.AppendAgain(b.blob)
		} else {
			b.blob = algo.AppendPlain(b.blob, s.around(b, kit.Plan(a.Limit)), a.Units())
			b.plain = a
		}
		return at
	}
	places, penalised := penalties(asks)
	s.addPenalties(b, penalised, counts(asks))
	for i := range asks {
		place := 0
		if asks[i].Penalty != nil {
			place = places[i]
		}
		s.addAsk(b, r, &asks[i], place)
	}
	return at
}

// addAsk appends an ask of r. place is the place of its penalty.
func (s *Store) addAsk(b *batch, r *stint.Request, a *stint.Ask, place int) {
	switch {
	case a.Limit == nil:
	case a.Limit.IsHeld():
		n, way := wayOf(r, a)
		s.addHeldKeys(b, a.Key, a.Limit)
		b.blob = algo.AppendHeldAsk(b.blob, s.around(b, kit.Plan(a.Limit)), place, n, way, span(a.Limit, r.HoldFor))
	default:
		b.addKey(s, a.Key, a.Limit.ID())
		b.blob = algo.AppendAsk(b.blob, s.around(b, kit.PlanOf(a)), place, a.Units())
	}
}

func counts(asks []stint.Ask) (n int) {
	for i := range asks {
		if asks[i].Limit != nil {
			n++
		}
	}
	return n
}

// addPenalties appends the beginning of a request with this number of asks.
func (s *Store) addPenalties(b *batch, penalised []*stint.Ask, asks int) {
	b.blob = algo.AppendRequest(b.blob, len(penalised), asks)
	for _, a := range penalised {
		b.addKey(s, a.Key, a.Penalty.ID())
		b.blob = algo.AppendPenalty(b.blob, kit.PenaltyPlan(a.Penalty))
	}
}

// fewAsks and mostCompared bound the requests that are compared to find identical ones.
const (
	fewAsks      = 4
	mostCompared = mergedAsks
)

func mayJoin(asks []stint.Ask, hold bool) bool {
	if len(asks) > fewAsks {
		return false
	}
	for i := range asks {
		a := &asks[i]
		if a.Penalty != nil || a.MaxDelay != 0 {
			return false
		}
		if p := kit.Plan(a.Limit); !p.Small() && p.Kind != algo.InFlight && !(hold && p.Held()) {
			return false
		}
	}
	return true
}

func samePlan(a, b *stint.Limit) bool { return a == b || *kit.Plan(a) == *kit.Plan(b) }

func sameCount(a, b *stint.Ask) bool {
	return a.Limit != nil && b.Limit != nil && a.Key == b.Key && (a.Limit == b.Limit || a.Limit.ID() == b.Limit.ID())
}

// sameQuestion reports whether one answer serves x and y, which may join a group.
func sameQuestion(x, y *stint.Request) bool {
	if len(x.Asks) != len(y.Asks) {
		return false
	}
	for i := range x.Asks {
		a, b := &x.Asks[i], &y.Asks[i]
		if !sameCount(a, b) || !samePlan(a.Limit, b.Limit) {
			return false
		}
		// A peek of a request with a Hold needs room under a held limit; other peeks need none.
		n, way := wayOf(x, a)
		m, other := wayOf(y, b)
		if n != m || way != other || way == algo.WayHold && x.HoldFor != y.HoldFor {
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
	beside := len(b.text)
	for i := range b.groups {
		g := &b.groups[i]
		b.text = append(b.text, g.beside...)
		if g.calls && !g.each {
			b.text = append(b.text, g.costs[:7]...)
		} else {
			b.text = append(b.text, g.costs...)
		}
	}
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
	if !b.holds {
		b.args = append(b.args, at, text[keys:])
	} else {
		b.args = append(b.args, at, text[keys:beside], text[beside:])
	}
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

// penalties returns an ask for each record of a request, and the place of each ask's record,
// from 1.
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
