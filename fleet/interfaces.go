package fleet

import (
	"context"
	"errors"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// Optional interfaces of a shared Store, for this package. stint.As finds all but DeadlineKeeper.

// Errors that those of a shared Store wrap, besides errors of package stint.
var (
	// ErrNotCharged means that certainly nothing was charged: the request was not sent, or was
	// refused as a whole. After another error of a Store behind a network, it is unknown whether
	// the request was charged.
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
	// Invalidated is called soon after key was refunded or reset. An empty key stands for any key.
	// It may also be called when nothing has changed.
	Invalidated func(key string)
}

// Membership is a Store that counts the instances that share it. Heartbeat records that
// this instance is alive, and returns how many instances, including this one, have done so
// in the last seconds.
type Membership interface {
	Heartbeat(ctx context.Context) (live int, err error)
}

// Partitioned is a Store with counts on several servers that may fail separately. A Fallback has
// one circuit breaker for each server: it stops asking one that fails, and goes on asking the
// others.
type Partitioned interface {
	// Partition names the server that has the count of key under l, as far as the Store knows. A
	// nil l: only a penalty of the key. "": it does not know, or there is only one server. It is
	// called for each request and must not block.
	Partition(l *stint.Limit, key string) string
	// Partitions names all servers that the Store knows. None: there is only one server.
	Partitions() []string
}

// DeadlineKeeper is a Store whose Take obeys a Request's Deadline, so that a Fallback does not need
// a context for each call. If the Deadline is positive and has passed, Take returns an error that
// wraps context.DeadlineExceeded, and ErrNotCharged if certainly nothing was charged. Take also
// returns when its context is done. Other methods may ignore the Deadline: only their contexts
// bound them.
type DeadlineKeeper interface {
	// KeepsDeadline reports whether the Store obeys deadlines. The answer must not change.
	// A wrapper obeys them if its Store does and its Take asks that Store at most once.
	KeepsDeadline() bool
}

// keepsDeadline ignores the Store that s wraps: s may ask it twice.
func keepsDeadline(s stint.Store) bool {
	k, ok := s.(DeadlineKeeper)
	return ok && k.KeepsDeadline()
}
