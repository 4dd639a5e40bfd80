package check

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/server/internal/decide"
)

// checkHold has the held units of one check. Its text is the opaque hold of the check API: every instance can
// settle and renew it, because it has everything that a Holder needs. It has keys of clients in a readable
// form. It is not signed: callers of the check API may charge any key anyway.
type checkHold struct {
	id   stint.HoldID
	last time.Duration // without renewal
	asks []heldAsk     // at least one
}

// heldAsk is an ask that holds units.
type heldAsk struct {
	key   string
	limit *stint.Limit
	units int64
	by    stint.Source // ByStore or ByLocal
	// shadow means that a rule in shadow mode asked, which the caller does not see.
	shadow bool
}

// inShadow is the source in the text of a heldAsk in shadow. The store decides all of them.
const inShadow = 2

const (
	holdVersion = 1
	// maxHoldBytes is the size of the largest checkHold before it is written in base64.
	maxHoldBytes = 48 << 10
	maxHoldText  = maxHoldBytes / 3 * 4
	// heldBytes is the memory of a heldAsk after reading, with its call and answer, without key and limit.
	heldBytes = 640

	shortestHold, longestHold = time.Millisecond, 24 * time.Hour
)

var errHoldText = errors.New("it is not a hold that this API returned")

// parseHoldFor reads how long a hold lasts.
func parseHoldFor(text string) (time.Duration, error) {
	d, err := limittext.Period(text)
	if err != nil || d < shortestHold || d > longestHold || d%time.Microsecond != 0 {
		return 0, errors.New(`want how long it lasts without renewal, such as "60s", from 1ms to 24h`)
	}
	return d, nil
}

// size is at least the size of h in bytes, before base64.
func (h *checkHold) size() int {
	n := 32
	for i := range h.asks {
		n += h.asks[i].size()
	}
	return n
}

func (a *heldAsk) size() int { return len(a.key) + len(a.limit.String()) + 16 }

// text is h in base64url: version, identity, duration in µs, the number of asks, and for each
// the key (empty: the previous ask's), the limit, the units and the source. Numbers are uvarints; texts have
// their length before them.
func (h *checkHold) text() string {
	b := make([]byte, 0, h.size())
	b = append(append(b, holdVersion), h.id[:]...)
	b = binary.AppendUvarint(b, uint64(h.last.Microseconds()))
	b = binary.AppendUvarint(b, uint64(len(h.asks)))
	before := ""
	for i := range h.asks {
		a := &h.asks[i]
		key := a.key
		if key == before {
			key = ""
		}
		before = a.key
		limit := a.limit.String()
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		b = append(binary.AppendUvarint(b, uint64(len(limit))), limit...)
		source := byte(a.by)
		if a.shadow {
			source = inShadow
		}
		b = append(binary.AppendUvarint(b, uint64(a.units)), source)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// holdReader reads texts of checkHolds. The checkHolds that it returns share their limits.
type holdReader struct {
	limits map[string]*stint.Limit
}

// read reads what text wrote, and nothing else.
func (r *holdReader) read(text string) (*checkHold, error) {
	if len(text) > maxHoldText {
		return nil, errHoldText
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errHoldText
	}
	h, err := r.decode(data)
	if err != nil {
		return nil, err
	}
	if h.text() != text { // a number or a key could be written in another way
		return nil, errHoldText
	}
	return h, nil
}

func (r *holdReader) decode(data []byte) (*checkHold, error) {
	d := holdBytes{rest: data}
	if version := d.byte(); d.wrong || version != holdVersion {
		return nil, errHoldText
	}
	h := new(checkHold)
	copy(h.id[:], d.bytes(uint64(len(h.id))))
	last, n := d.number(), d.number()
	h.last = time.Duration(last) * time.Microsecond
	if d.wrong || h.id == (stint.HoldID{}) || last > uint64(longestHold.Microseconds()) || h.last < shortestHold || n < 1 || n > stint.MaxAsks {
		return nil, errHoldText
	}
	for i := range n {
		a, err := r.ask(&d)
		if err != nil {
			return nil, err
		}
		if a.key == "" && i > 0 {
			a.key = h.asks[i-1].key
		}
		if a.key == "" || len(a.key) > stint.MaxKey {
			return nil, errHoldText
		}
		h.asks = append(h.asks, a)
	}
	if len(d.rest) > 0 {
		return nil, errHoldText
	}
	return h, h.checkPairs()
}

func (r *holdReader) ask(d *holdBytes) (a heldAsk, err error) {
	a.key = string(d.bytes(d.number()))
	limit := string(d.bytes(d.number()))
	units := d.number()
	source := d.byte()
	if d.wrong || units < 1 || units >= 1<<52 || source > inShadow {
		return a, errHoldText
	}
	a.units = int64(units)
	if a.shadow = source == inShadow; !a.shadow {
		a.by = stint.Source(source)
	}
	a.limit, err = r.limit(limit)
	return a, err
}

// limit is the limit of a text. It must be held.
func (r *holdReader) limit(text string) (*stint.Limit, error) {
	if l := r.limits[text]; l != nil {
		return l, nil
	}
	l, err := stint.ParseLimit(text)
	if err != nil || !l.IsHeld() {
		return nil, errHoldText
	}
	if r.limits == nil {
		r.limits = map[string]*stint.Limit{}
	}
	r.limits[text] = l
	return l, nil
}

// checkPairs returns an error if two asks are about one record.
func (h *checkHold) checkPairs() error {
	type record struct{ key, limit string }
	seen := make(map[record]bool, len(h.asks))
	for i := range h.asks {
		r := record{h.asks[i].key, h.asks[i].limit.ID()}
		if seen[r] {
			return errHoldText
		}
		seen[r] = true
	}
	return nil
}

// holdBytes is the unread rest. wrong means that something was missing.
type holdBytes struct {
	rest  []byte
	wrong bool
}

func (d *holdBytes) bytes(n uint64) []byte {
	if d.wrong || n > uint64(len(d.rest)) {
		d.wrong = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *holdBytes) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *holdBytes) number() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.wrong || n <= 0 {
		d.wrong = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// FitsHold returns an error if asks that hold would make a checkHold that is too large.
func FitsHold(asks []stint.Ask) error {
	var h checkHold
	for i := range asks {
		if a := &asks[i]; decide.HoldsBy(a, stint.ByStore) {
			h.asks = append(h.asks, heldAsk{a.Key, a.Limit, a.Units(), stint.ByStore, false})
		}
	}
	if h.size() > maxHoldBytes {
		return BadInput("hold: the keys of its %d limits are too long for one hold: at most %d KiB in all", len(h.asks), maxHoldBytes>>10)
	}
	return nil
}

// heldText is the opaque hold of t's held units; empty: none.
func heldText(t *decide.Request) string {
	if !t.Opaque || t.Err != nil || !t.Allowed {
		return ""
	}
	h := checkHold{id: t.Hold, last: t.HoldFor}
	t.EachHeld(func(a *stint.Ask, by stint.Source, shadow bool) {
		h.asks = append(h.asks, heldAsk{a.Key, a.Limit, a.Units(), by, shadow})
	})
	if len(h.asks) == 0 {
		return ""
	}
	return h.text()
}

// calls are calls about all asks of h, in their order.
func (h *checkHold) calls(action stint.HoldAction) []stint.HoldCall {
	calls := make([]stint.HoldCall, len(h.asks))
	for i := range h.asks {
		a := &h.asks[i]
		calls[i] = stint.HoldCall{Action: action, Key: a.key, Limit: a.limit, Hold: h.id, Units: a.units, For: h.last, By: a.by}
	}
	return calls
}
