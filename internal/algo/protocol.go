package algo

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Messages to and from the scripts are packed, big-endian: a call has two arguments and one reply
// for any number of limits, and the script reads it without making strings. The forms below and the
// unpack calls in take.lua, refund.lua and violate.lua must be changed together.
//
// A request may stand for several identical ones (its count), which are decided one after another:
// its answer says how many of them were admitted.
//
//	plain     kind 1 (0 to 2, 6), count 2, cost 7, capacity 7, unit 7, and four
//	          numbers of its algorithm, 7 each: a request of one ask and no penalty
//	again     3 1, count 2: a plain one that differs from the plain one before it
//	          in its key alone
//	request   255 1, count 2, penalties 2, asks 2; then each penalty, then each ask
//	penalty   warn 4, ban 4, term 7, forget 7, growth 4, most 7
//	ask       kind 1, penalty 2 (0: none, else its place), full 7, cost 7,
//	          capacity 7, unit 7, and four numbers of its algorithm, 7 each
//	held ask  the same with bit 0x80 in its kind; then its way 1 (see Way), how long it holds 7
//	calls     254 1, count 2, action 1, kind 1 (0x80: the limit is held), most 7, unit 7,
//	          four numbers of its algorithm, units 7, how long holds last 7: calls of one
//	          action about one key under one limit
//	answer    outcome 1, who 2, number 8; then each ask's view or verdict, unless
//	          a broken key ended it
//	view      now 7, used before the request 7: of buckets and fixed windows
//	verdict   fits 1, remaining 7, retry 7, reset 7, delay 7: of the others
//	held      now 7, used 7, retry 7, reset 7, held 7, until the last hold runs out 7,
//	          holds 2: of an ask whose limit is held
//	called    now 7, used before 7, reset before and after a charge 7 each; then of each
//	          call: found 1, charged 7, held 7, until the last hold runs out 7
//	record    form and last 7, violations 4, end of the last ban 8, bans 4, forget 7;
//	          as it lies under its key (penalty.lua)
//
// Beside the requests, in their order, are the identities of each request that holds, as many as
// its count, and of each call: identity 12, cost 7.
const (
	formAgain   = 3
	formWhole   = 255
	askSize     = 59
	headSize    = 11
	viewSize    = 14
	verdictSize = 29
	recordSize  = 30
	never       = 1<<53 - 1
)

// MaxCount is how many identical requests may be sent as one.
const MaxCount = 1<<16 - 1

// AppendPlain appends a request of one ask, of a Plan that is Small. Its count is 1.
func AppendPlain(b []byte, p *Plan, cost int64) []byte {
	return p.appendNumbers(append(b, p.code(), 0, 1), cost)
}

// AppendAgain appends a plain request with the Plan and cost of the one before it,
// which must be plain. Its count is 1.
func AppendAgain(b []byte) []byte { return append(b, formAgain, 0, 1) }

// SetCount sets the count of the request that was appended to a b of length at.
func SetCount(b []byte, at, count int) { binary.BigEndian.PutUint16(b[at+1:], uint16(count)) }

// AppendRequest appends the head of a request. Its count is 1.
func AppendRequest(b []byte, penalties, asks int) []byte {
	b = binary.BigEndian.AppendUint16(append(b, formWhole, 0, 1), uint16(penalties))
	return binary.BigEndian.AppendUint16(b, uint16(asks))
}

// AppendPenalty appends a penalty.
func AppendPenalty(b []byte, p *Penalty) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(p.Warn))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Ban))
	b = append56(b, p.BanFor)
	b = append56(b, p.Forget)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Growth))
	return append56(b, p.MaxBan)
}

// AppendAsk appends an ask. penalty is the place of its penalty in the request, from 1; 0: none.
func AppendAsk(b []byte, p *Plan, penalty int, cost int64) []byte {
	b = binary.BigEndian.AppendUint16(append(b, p.code()), uint16(penalty))
	return p.appendNumbers(append56(b, p.Full), cost)
}

// appendNumbers appends the numbers that plain requests and asks share. All costs that are never
// allowed are the same.
func (p *Plan) appendNumbers(b []byte, cost int64) []byte {
	b = append56(b, min(cost, Exact))
	b = append56(b, p.Capacity)
	b = append56(b, p.Unit)
	for _, n := range p.numbers() {
		b = append56(b, n)
	}
	return b
}

// numbers are a, b, c and d of the algorithm's twin.
func (p *Plan) numbers() [4]int64 {
	switch p.Kind {
	case FixedWindow:
		if p.Calendar != nil {
			return *p.around
		}
		return [4]int64{p.Period}
	case SlidingLog:
		return [4]int64{p.Period, p.instantBytes()}
	case SlidingWindow:
		return [4]int64{p.Width, p.Buckets, p.Tick}
	default:
		return [4]int64{p.Rate, p.Tick, p.Amount, p.Period}
	}
}

// codeCalendar is the kind of a fixed window of the calendar, whose numbers are Calendar.Around.
const codeCalendar = 6

// code is the scripts' code for the kind of p.
func (p *Plan) code() byte {
	if p.Calendar != nil {
		return codeCalendar
	}
	return byte(p.Kind)
}

// Around returns p for a script whose clock is about now: if p has a calendar, with the windows
// around now.
func (p *Plan) Around(now int64) *Plan {
	if p.Calendar == nil {
		return p
	}
	around := *p
	windows := p.Calendar.Around(now)
	around.around = &windows
	return &around
}

// marksInBlock is how many marks a block of a log holds (log.lua).
const marksInBlock = 128

// instantBytes is the bytes of an instant within a block of a log: enough for a block of evenly
// spread marks. A mark that is too late opens a new block.
func (p *Plan) instantBytes() int64 {
	span := uint64(max(1, p.Period/p.Amount)) * marksInBlock
	return int64(bits.Len64(min(span, uint64(p.Period)))+7) / 8
}

func append56(b []byte, n int64) []byte {
	return append(b, byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func read56(b string) int64 {
	_ = b[6]
	return int64(b[0])<<48 | int64(b[1])<<40 | int64(b[2])<<32 | int64(b[3])<<24 | int64(b[4])<<16 | int64(b[5])<<8 | int64(b[6])
}

// Result is the outcome in the script's answer to a request.
type Result uint8

const (
	ResultAllowed Result = 1 + iota
	ResultLimited
	ResultWarned
	ResultBanned  // by this request; verdicts follow
	ResultRunning // a ban ran already; verdicts follow, without charges
	ResultBroken  // a key holds something else, or could not be written; no verdicts follow
)

// Head is the head of an answer.
type Head struct {
	Result Result
	// Who is the place, from 1, of the penalty that bans or counted a violation (0: none), or of the
	// broken key, penalties first.
	Who int
	// Left is how long a ban lasts from now, µs. For a broken key: 1 wrong type, 2 unreadable, 3 or more not
	// writable (room.lua), or Outside. For ResultAllowed, and ResultLimited with Who 0: how many identical
	// requests were admitted. After a violation without a ban: how many count.
	Left int64
}

// Names reports whether Who fits a request with these numbers of penalties and asks, and Left is
// not negative.
func (h *Head) Names(penalties, asks int) bool {
	if h.Left < 0 {
		return false
	}
	switch h.Result {
	case ResultLimited:
		return h.Who == 0 || h.Who <= penalties && h.Left >= 1
	case ResultWarned:
		return h.Who >= 1 && h.Who <= penalties && h.Left >= 1
	case ResultBanned, ResultRunning:
		return h.Who >= 1 && h.Who <= penalties
	case ResultBroken:
		return h.Who >= 1 && h.Who <= penalties+asks
	}
	return true
}

// Admitted is how many of the identical requests were admitted.
func (h *Head) Admitted() int64 {
	if h.Result == ResultAllowed || h.Result == ResultLimited && h.Who == 0 {
		return h.Left
	}
	return 0
}

// Outside reports whether nothing was decided because the store's clock was in none of a calendar's
// windows, and returns that clock, µs.
func (h *Head) Outside() (clock int64, ok bool) {
	return h.Left - Exact, h.Result == ResultBroken && h.Left >= Exact
}

// Punishment is the outcome of a violation under p, the penalty at place Who.
func (h *Head) Punishment(p *Penalty) Punishment {
	switch {
	case h.Result == ResultBanned:
		return Punishment{Banned, p.Ban, h.Left}
	case h.Result == ResultWarned:
		return Punishment{Warned, h.Left, 0}
	case h.Result == ResultLimited && h.Who > 0:
		return Punishment{Limited, h.Left, 0}
	}
	return Punishment{Sentence: Limited}
}

// Verdicts reports whether verdicts follow.
func (h *Head) Verdicts() bool { return h.Result <= ResultRunning }

// ReadHead reads the head of an answer and returns the rest.
func ReadHead(s string) (Head, string, error) {
	if len(s) < headSize || s[0] == 0 || s[0] > byte(ResultBroken) {
		return Head{}, "", fmt.Errorf("answer of %d bytes: not one of this script's", len(s))
	}
	h := Head{Result: Result(s[0]), Who: int(s[1])<<8 | int(s[2]), Left: int64(s[3])<<56 | read56(s[4:])}
	return h, s[headSize:], nil
}

// ReadVerdict reads the verdict of an ask and returns the rest.
func ReadVerdict(s string) (Verdict, string, error) {
	if len(s) < verdictSize {
		return Verdict{}, "", fmt.Errorf("verdict of %d bytes: want %d", len(s), verdictSize)
	}
	v := Verdict{Allowed: s[0] == 1, Remaining: read56(s[1:]), Retry: read56(s[8:]), Reset: read56(s[15:]), Delay: read56(s[22:])}
	if v.Retry == never {
		v.Retry = Never
	}
	return v, s[verdictSize:], nil
}

// ReadView reads the view of an ask and returns the rest.
func ReadView(s string) (View, string, error) {
	if len(s) < viewSize {
		return View{}, "", fmt.Errorf("view of %d bytes: want %d", len(s), viewSize)
	}
	v := View{Now: read56(s), Used: read56(s[7:])}
	if v.Now >= Exact || v.Used > Exact {
		return View{}, "", fmt.Errorf("view of %d used at %d: not one of this script's", v.Used, v.Now)
	}
	return v, s[viewSize:], nil
}

// AnswerSize is how many bytes of an ask's answer follow a Head that says so.
func (p *Plan) AnswerSize() int {
	if p.Held() {
		return heldSize
	}
	if p.Small() {
		return viewSize
	}
	return verdictSize
}

// ReadRecord reads the value that a script wrote under a record's key; ok is false for anything
// else.
func ReadRecord(s string) (r Record, ok bool) {
	const form = 4
	if len(s) != recordSize || s[0]>>4 != form {
		return Record{}, false
	}
	r.Last = read56(s) & (1<<52 - 1)
	r.Violations = int64(s[7])<<24 | int64(s[8])<<16 | int64(s[9])<<8 | int64(s[10])
	r.Until = int64(s[11])<<56 | read56(s[12:])
	r.Bans = int64(s[19])<<24 | int64(s[20])<<16 | int64(s[21])<<8 | int64(s[22])
	r.Forget = read56(s[23:])
	return r, true
}

// ReadLast reads the instant of the last charge, µs, from the value under a count's key, or from
// the last block of a log's list; ok is false for anything else.
func ReadLast(s string, k Kind) (last int64, ok bool) {
	if k == SlidingLog {
		const head = 16
		if len(s) <= head {
			return 0, false
		}
		wide, deep := int(s[14]), int(s[15])
		if wide < 1 || wide > 7 || deep < 1 || deep > 7 || (len(s)-head)%(wide+deep) > 0 {
			return 0, false
		}
		var mark int64 // counted from the block's first
		for _, b := range []byte(s[len(s)-wide-deep:][:wide]) {
			mark = mark<<8 | int64(b)
		}
		return read56(s) + mark, true
	}
	const shortest = 12
	if len(s) < shortest && k != SlidingWindow || len(s) <= 8 {
		return 0, false
	}
	switch form := s[0] >> 4; {
	case k <= LeakyBucket && form > 1, k == FixedWindow && form != 2 && form != 5, k == SlidingWindow && form != 3:
		return 0, false
	}
	return read56(s) & (1<<52 - 1), true
}
