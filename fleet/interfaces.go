package fleet

import (
	"context"
	"errors"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// What a shared Store may implement for this package. stint.As finds all but DeadlineKeeper.

// What the errors of a shared Store wrap, beside those of package stint.
var (
	// ErrNotCharged means that nothing was charged, for certain: the request was not sent,
	// or was refused as a whole. After another error of a Store that is asked over a
	// network, it is unknown whether the request was charged.
	ErrNotCharged = stint.Internal(friend.Of{}).ErrNotCharged()
	// ErrBroken means that the store holds something other than a count where a count
	// should be. It concerns some keys; requests about others can be decided.
	ErrBroken = errors.New("the store holds something other than a count")
	// ErrBadReply means that the store's answer cannot be right. It is unknown whether the
	// request was charged. A Fallback charges what it admits instead, so that such answers
	// let nothing through for free: the request may then be charged twice.
	ErrBadReply = errors.New("the answer cannot be right")
)

// Notifier is a Store that sends notifications when units of a key are refunded, or its
// counts, violations or bans are reset, through any Store over the same data. Layers that
// remember answers need it.
//
// Notify calls l until ctx is done. If it can never send notifications, it returns at once
// with an error that wraps stint.ErrUnsupported.
type Notifier interface {
	Notify(ctx context.Context, l Listener) error
}

// Listener receives the notifications of a Notifier, which calls its functions from one
// goroutine at a time. They must not block.
type Listener struct {
	// Connected is called with true when every invalidation from then on will be notified,
	// and with false when notifications may be lost.
	Connected func(bool)
	// Invalidated is called soon after something of key was refunded or reset. An empty key
	// stands for any key. It may also be called when nothing has changed.
	Invalidated func(key string)
}

// Membership is a Store that counts the instances that share it. Heartbeat records that
// this instance is alive, and returns how many instances, including this one, have done so
// in the last seconds.
type Membership interface {
	Heartbeat(ctx context.Context) (live int, err error)
}

// Partitioned is a Store whose counts lie on several servers, each of which may fail alone. A
// Fallback has one circuit breaker for each server: it stops asking one that fails, and
// goes on asking the others.
type Partitioned interface {
	// Partition names the server that has the count of key under l, as far as the Store
	// knows. l is nil for a penalty of the key alone. "": it does not know, or there is only
	// one server. It is called for each request and must not block.
	Partition(l *stint.Limit, key string) string
	// Partitions names all servers that the Store knows. None: there is only one server.
	Partitions() []string
}

// DeadlineKeeper is a Store whose Take obeys a Request's Deadline, so that a Fallback need
// not make a context for each call. If the Deadline is positive and has passed, Take
// returns an error that wraps context.DeadlineExceeded, and ErrNotCharged if
// certainly nothing was charged. Take also returns when its context is done. Other methods
// need not obey the Deadline: only their contexts bound them.
type DeadlineKeeper interface {
	// KeepsDeadline reports whether the Store obeys deadlines. The answer must not change.
	// A wrapper obeys them if its Store does and its Take asks that Store at most once.
	KeepsDeadline() bool
}

// keepsDeadline does not look at what s wraps: s may ask that twice.
func keepsDeadline(s stint.Store) bool {
	k, ok := s.(DeadlineKeeper)
	return ok && k.KeepsDeadline()
}
