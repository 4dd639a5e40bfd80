package algo

import (
	"encoding/binary"
	"fmt"
)

// The protocol of the scripts for holds; see protocol.go.

const (
	formCalls  = 254
	heldKind   = 0x80
	heldSize   = 44
	eachCost   = 0x80
	calledHead = 32
	calledRun  = 24
)

// Way is what an admitted request does under a held limit.
type Way uint8

// The numbers are part of the script's protocol.
const (
	WayCharge Way = iota // it is charged
	WayHold              // it holds units
	WayPeek              // neither: a peek, which asks whether one unit would fit
	WayAsk               // neither: it asks whether its units would fit
)

// AppendHeldAsk is AppendAsk for a held limit. span is how long a hold lasts, µs.
func AppendHeldAsk(b []byte, p *Plan, penalty int, cost int64, way Way, span int64) []byte {
	at := len(b)
	b = AppendAsk(b, p, penalty, cost)
	b[at] |= heldKind
	return append56(append(b, byte(way)), span)
}

// AppendHoldID appends the identity of a hold, with its random bytes first, because records are
// found by them.
func AppendHoldID(b []byte, id [12]byte) []byte { return append(append(b, id[4:]...), id[:4]...) }

// The actions of calls.
const (
	CallSettle byte = iota
	CallRenew
	CallRelease
	CallCharge
	CallRenewAgain // and makes a lost record again
)

// AppendCalls appends calls of one action about one key under p. Their count is 1. units, for
// CallRenewAgain, are the units of a record that is made again; span, in µs, is how long renewed or
// released holds last.
func AppendCalls(b []byte, p *Plan, action byte, units, span int64) []byte {
	kind := p.code()
	if p.Held() {
		kind |= heldKind
	}
	b = append56(append(b, formCalls, 0, 1, action, kind), p.Most)
	b = append56(b, p.Unit)
	for _, n := range p.numbers() {
		b = append56(b, n)
	}
	return append56(append56(b, min(units, Exact)), span)
}

// AppendCost appends the cost of a call. The identities of calls are sent beside the requests, and
// after them one cost for all, or one for each.
func AppendCost(b []byte, cost int64) []byte { return append56(b, min(cost, Exact)) }

// SetEachCost marks the calls at a place of b as having a cost each.
func SetEachCost(b []byte, place int) { b[place+3] |= eachCost }

// HeldAnswer has a count and its holds when a request came. Only limits whose states are not small
// have the waits, in µs.
type HeldAnswer struct {
	View
	Retry, Reset int64
	Holds        int64 // how many records count
}

// ReadHeld reads the answer to an ask under a held limit and returns the rest.
func ReadHeld(s string) (a HeldAnswer, rest string, err error) {
	if len(s) < heldSize {
		return a, "", fmt.Errorf("answer of %d bytes: want %d", len(s), heldSize)
	}
	a = HeldAnswer{
		View:  View{Now: read56(s), Used: read56(s[7:]), Held: read56(s[28:]), HeldFor: read56(s[35:])},
		Retry: read56(s[14:]), Reset: read56(s[21:]), Holds: int64(binary.BigEndian.Uint16([]byte(s[42:44]))),
	}
	return a, s[heldSize:], a.check()
}

func (a *HeldAnswer) check() error {
	if a.Now >= Exact || a.Used < 0 || a.Used > Exact || a.Held < 0 || a.Held > Exact {
		return fmt.Errorf("%d used and %d held at %d: not one of this script's", a.Used, a.Held, a.Now)
	}
	return nil
}

// Hold adds n holds with this number of units each.
func (a *HeldAnswer) Hold(n, units, span int64) {
	if n > 0 && units > 0 {
		a.Held += n * units
		a.Holds += n
		a.HeldFor = max(a.HeldFor, span)
	}
}

// FitsHeld is Fits for a request of n units under a held limit.
func (p *Plan) FitsHeld(a *HeldAnswer, n int64, way Way) bool {
	a.Crowded = way != WayCharge && a.Holds >= MostHolds
	return p.Fits(&a.View, n)
}

// SettleHeld is Settle from a script's answer. For a state that is not small, the answer is that
// after a charge.
func (p *Plan) SettleHeld(a *HeldAnswer, n int64, way Way, span int64, allowed bool) (d Verdict) {
	small := p.Small() || p.Kind == InFlight
	d.Allowed = allowed || p.FitsHeld(a, n, way)
	switch {
	case allowed && way == WayHold:
		a.Hold(1, n, span)
	case allowed && way == WayCharge && small:
		a.Used += n * p.Unit
	case d.Allowed:
	case n > p.Capacity:
		d.Retry = Never
	case a.Used+n*p.Unit <= p.Full:
		d.Retry, d.Busy = p.Busy, true
	case small:
		d.Retry = p.retry(nil, &a.View, n)
	default:
		d.Retry = a.Retry
	}
	p.stand(a, &d)
	return d
}

func (p *Plan) stand(a *HeldAnswer, d *Verdict) {
	d.Remaining, d.Held, d.Reset = max(0, p.Left(&a.View)-a.Held), a.Held, a.Reset
	if p.Small() {
		d.Reset = p.reset(nil, &a.View)
	}
	d.Reset = max(d.Reset, a.HeldFor)
}

// Called is the answer to a call.
type Called struct {
	Found    bool
	Released bool
	Charged  int64
	Verdict
}

// ReadCalled reads the answer to the call at this place. The answer has runs of calls that found the
// same, then the charged units of each call that found a record, or one number for all.
func (p *Plan) ReadCalled(s string, place int) (c Called, err error) {
	size, err := CalledSize(s)
	if err != nil {
		return c, err
	}
	a := HeldAnswer{View: View{Now: read56(s), Used: read56(s[7:])}, Reset: read56(s[14:])}
	used, late := a.Used, read56(s[21:])
	runs := s[calledHead : calledHead+read16(s[28:])*calledRun]
	charges := s[calledHead+len(runs) : size]
	each := len(charges) > 7
	if each && place*7 >= len(charges) {
		return c, fmt.Errorf("answer with %d charges: want that of call %d", len(charges)/7, place+1)
	}
	for from := 0; from <= place; {
		if runs == "" {
			return c, fmt.Errorf("answer to %d calls: want that of call %d", from, place+1)
		}
		n := min(read16(runs), place+1-from)
		c.Found, c.Released, c.Charged = runs[2] == 1, runs[2] == 2, 0
		if c.Found && !each {
			c.Charged = read56(charges)
			a.Used += int64(n) * c.Charged * p.Unit
		}
		a.Held = read56(runs[3:]) + int64(read16(runs)-n)*read56(runs[10:])
		a.HeldFor = read56(runs[17:])
		from, runs = from+max(1, n), runs[calledRun:]
	}
	if each {
		for i := range place + 1 {
			c.Charged = read56(charges[7*i:])
			a.Used += c.Charged * p.Unit
		}
	}
	if a.Used > used {
		a.Reset = late
	}
	if err = a.check(); err == nil {
		p.stand(&a, &c.Verdict)
	}
	return c, err
}

// CalledSize is how many bytes of the answers to calls follow their Head.
func CalledSize(s string) (int, error) {
	if len(s) >= calledHead {
		if n := calledHead + read16(s[28:])*calledRun + max(1, read16(s[30:]))*7; n <= len(s) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("answer of %d bytes to calls: not one of this script's", len(s))
}

func read16(s string) int { return int(s[0])<<8 | int(s[1]) }

// HoldRecord is a record of a hold in Redis.
type HoldRecord struct {
	ID                 [12]byte
	Units, Until, Span int64 // Until and Span in µs
}

// Counts reports whether r counts at an instant.
func (r *HoldRecord) Counts(now int64) bool {
	return r.Units > 0 && now < r.Until && r.Until <= now+2*r.Span
}

// ReadHoldRecord reads a field of a hash of holds and its value, as held.lua has them; ok is false for
// anything else. The head and a part of the agenda are not records: their Units are 0.
func ReadHoldRecord(field, value string) (r HoldRecord, ok bool) {
	const head, entry, record, large = 94, 19, 14, 19
	switch {
	case len(field) == 1:
		return r, len(value)%entry == 0
	case field == "":
		return r, len(value) == head && value[0] == 80
	case len(field) != len(r.ID) || len(value) != record && len(value) != large:
		return r, false
	}
	copy(r.ID[4:], field[:8])
	copy(r.ID[:4], field[8:])
	r.Until = read56(value)
	for i, b := range []byte(value[7:]) {
		if i < 5 {
			r.Span = r.Span<<8 | int64(b)
		} else {
			r.Units = r.Units<<8 | int64(b)
		}
	}
	return r, true
}
