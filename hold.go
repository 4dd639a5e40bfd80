package stint

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/limittext"
)

// HoldID identifies the holds of one request: the second at which it was made, in 4 bytes, and
// 64 random bits. The zero HoldID: no hold.
type HoldID [12]byte

// NewHoldID returns a new HoldID.
func NewHoldID() (id HoldID) {
	binary.BigEndian.PutUint32(id[:], uint32(time.Now().Unix()))
	rand.Read(id[4:]) // never fails
	return id
}

// ParseHoldID is the inverse of String. For any other text, and for the zero HoldID, it
// returns an error that wraps ErrRequest.
func ParseHoldID(text string) (id HoldID, err error) {
	if len(text) == 2*len(id) {
		if _, err = hex.Decode(id[:], []byte(text)); err == nil && id != (HoldID{}) {
			return id, nil
		}
	}
	return HoldID{}, fmt.Errorf("stint: %w: hold %q: must be 24 hexadecimal digits", ErrRequest, limittext.Clip(text))
}

// String is id as 24 hexadecimal digits.
func (id HoldID) String() string { return hex.EncodeToString(id[:]) }

// Made is the second at which id was made, by the clock of the process that made it.
func (id HoldID) Made() time.Time { return time.Unix(int64(binary.BigEndian.Uint32(id[:])), 0) }

// HoldAction is what a HoldCall does.
type HoldAction uint8

const (
	// HoldSettle ends a hold: its record is removed, and Cost units are charged. If no
	// record counts any more, nothing is charged.
	HoldSettle HoldAction = iota
	// HoldRenew makes a hold last for another HoldCall.For from now.
	HoldRenew
	// HoldRelease removes the record of a hold and charges nothing. HoldCall.Again cannot
	// put it back.
	HoldRelease
	// HoldCharge charges Cost units whether they fit or not. It needs no hold.
	HoldCharge
)

// HoldCall is one operation of a Holder, and its answer.
type HoldCall struct {
	// Action is what to do. The zero HoldAction is HoldSettle.
	Action HoldAction
	// Key and Limit are those of the hold, with Limit as it was then. HoldCharge may have
	// any Limit that is not InFlight; the other actions need a held one.
	Key   string
	Limit *Limit
	// Hold is the identity of the request that holds. HoldCharge ignores it.
	Hold HoldID
	// Units is how many units the record holds: the Units of its ask. HoldCharge ignores
	// it.
	Units int64
	// For is how long the hold lasts without renewal, as at its start. 0: Spec.Hold.
	For time.Duration
	// Cost is, for HoldSettle and HoldCharge, how many units to charge: not negative, and 0
	// charges nothing. Under an InFlight limit nothing is charged.
	Cost int64
	// Again makes HoldRenew put a record that the store has lost back, whether it fits or
	// not, unless it was released. Set it only if the hold was not settled and no other
	// call about it is under way.
	Again bool
	// By is the Decision.By of the ask that made the hold.
	By Source

	// Found says that there was a record that counts. It is true for a HoldCharge.
	Found bool
	// Released says that a HoldRenew found no record because of a HoldRelease: stop
	// renewing.
	Released bool
	// Charged is how many units were charged. It is less than Cost if usage would rise
	// above the capacity plus Spec.Debt.
	Charged int64
	// Remaining, Held and ResetAfter are as in a Decision, after the call.
	Remaining, Held int64
	ResetAfter      time.Duration
	// Err is not nil if the store did not answer, or refused the call. HoldSettle may be
	// sent again after any error; HoldCharge only after one that wraps fleet.ErrNotCharged.
	Err error
}

// Hold is a hold as a Holder lists it: request ID holds Units under Limit.
type Hold struct {
	ID    HoldID
	Limit *Limit
	Units int64
	// Left is how long it still counts without renewal. For was that time when it was made
	// or renewed.
	Left, For time.Duration
}

// Holder is a Store that keeps holds. It decides requests with a Request.Hold. A Store that is
// not a Holder returns an error that wraps ErrUnsupported for a request that would hold units.
//
// Holds makes all calls at the instant at (zero: now, by the Store's clock), as if one after
// another in their order, and fills in their answers. Calls about different keys are
// independent.
//
// Held lists the holds of key that count under limits, which are held, in no order.
type Holder interface {
	Holds(ctx context.Context, at time.Time, calls []HoldCall)
	Held(ctx context.Context, key string, limits []*Limit) ([]Hold, error)
}

// Holds makes calls by the Holder that s is or wraps. Each Err wraps ErrUnsupported if there
// is none.
func Holds(ctx context.Context, s Store, at time.Time, calls []HoldCall) {
	if h, ok := As[Holder](s); ok {
		h.Holds(ctx, at, calls)
		return
	}
	for i := range calls {
		calls[i].Err = unsupported("holds")
	}
}
