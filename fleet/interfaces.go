package fleet

import (
	"context"

	"github.com/stintdev/stint"
)

// What a shared Store may implement for this package. stint.As finds all but DeadlineKeeper.

// Notifier is a Store that says what others invalidate: that units of a key were refunded,
// or that its counts, violations or bans were forgotten, through any Store over the same
// data. It is what a layer that remembers answers needs.
//
// Notify returns when ctx is done, or at once, with an error that wraps
// stint.ErrUnsupported, if it will never have anything to say.
type Notifier interface {
	Notify(ctx context.Context, l Listener) error
}

// Listener is called by a Notifier, by one goroutine at a time. Its functions must not
// block.
type Listener struct {
	// Connected is called with true when Invalidated will be called for everything that
	// is invalidated from then on, and with false when something may be missed.
	Connected func(bool)
	// Invalidated is called soon after something of a key was refunded or forgotten; with
	// "": of any key. It may also be called for what has not happened.
	Invalidated func(key string)
}

// Membership is a Store that counts the instances that share it. Heartbeat says that this
// instance lives, and returns how many have said so in the last seconds, itself
// among them.
type Membership interface {
	Heartbeat(ctx context.Context) (live int, err error)
}

// Partitioned is a Store whose keys lie on several servers, which may fail one by one. A
// Fallback around it stops asking about the keys of one of them, and goes on to ask about
// all others.
type Partitioned interface {
	// Partition names the server on which a key lies, as far as that is known now; "": it
	// is not, or there is but one. It is called for each request and must not block.
	Partition(key string) string
	// Partitions names all of them, as far as that is known; none: there is but one.
	Partitions() []string
}

// DeadlineKeeper is a Store whose Take keeps a Request's Deadline by itself, so that a
// Fallback need not make a context for each call. Where the Deadline is more than 0
// and that long has passed, Take returns as if its context had ended by then: with an
// error that wraps context.DeadlineExceeded, and stint.ErrNotCharged if nothing was charged,
// for certain. The context still counts, if it ends before. Of its other methods nothing
// is promised: those are bounded by their contexts alone.
type DeadlineKeeper interface {
	// KeepsDeadline reports whether the Store does. A wrapper does if its Store does, and
	// its Take asks that no more than once. The answer must not change.
	KeepsDeadline() bool
}

// keepsDeadline does not look at what s wraps: s may ask that twice.
func keepsDeadline(s stint.Store) bool {
	k, ok := s.(DeadlineKeeper)
	return ok && k.KeepsDeadline()
}
