package redislimit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// A refund or reset makes refusals that other instances remember wrong. So its script publishes
// the keys on one channel; in a Cluster all nodes pass messages on.

// invalidations names the channel, NAMESPACE:{invalidated}.
const invalidations = "invalidated"

// The first byte of a message. A key follows invalidatedKey.
const (
	invalidatedKey = "k"
	invalidatedAll = "a"
)

func (s *Store) invalidationChannel() string { return s.namespace + ":{" + invalidations + "}" }

// appendInvalidations appends the channel and a message for each key of r, for a script.
func (s *Store) appendInvalidations(argv []string, r *stint.Request) []string {
	argv = append(argv, s.invalidationChannel())
	messages := argv[len(argv):]
	for i := range r.Asks {
		if m := invalidatedKey + r.Asks[i].Key; !slices.Contains(messages, m) {
			messages = append(messages, m)
		}
	}
	return append(argv, messages...)
}

// Notify implements fleet.Notifier. It uses a connection of its own, which it makes again
// until ctx is done. To prove that messages arrive, it publishes one to itself every second
// through the ordinary connections. It is connected once such a message has arrived, so the
// user needs the permission to publish. It is disconnected if none has arrived, or none
// could be published, for 3 seconds. The log says so; see Options.Log. An instance whose
// user may not publish changes counts without notifying others. With a Client of your own,
// Notify returns an error that wraps stint.ErrUnsupported.
func (s *Store) Notify(ctx context.Context, l fleet.Listener) error {
	err := s.conn.Listen(ctx, s.namespace, invalidations, conn.Listener{
		Connected: l.Connected,
		Message: func(text string) {
			if key, ok := strings.CutPrefix(text, invalidatedKey); ok {
				l.Invalidated(key)
			} else if text == invalidatedAll {
				l.Invalidated("")
			}
		},
	})
	if errors.Is(err, conn.ErrCannotListen) {
		return fmt.Errorf("redislimit: notify: %w: %w", stint.ErrUnsupported, err)
	}
	return err
}

//go:embed membership.lua
var membershipText string

var membershipScript = conn.NewScript(membershipText)

// heartbeatLifetime is long enough to survive one late or lost Heartbeat.
const heartbeatLifetime = 5 * time.Second

// Heartbeat implements fleet.Membership: it records that this Store is alive, and returns
// how many Stores of the namespace have called it in the last five seconds, by the server's
// clock. Two Stores of one process count as two.
func (s *Store) Heartbeat(ctx context.Context) (live int, err error) {
	reply, err := s.conn.Eval(ctx, membershipScript, []string{s.namespace + ":{members}"}, s.id, strconv.FormatInt(heartbeatLifetime.Milliseconds(), 10))
	if err != nil {
		return 0, fmt.Errorf("redislimit: heartbeat: %w", err)
	}
	n, err := replied[int64]("heartbeat", reply)
	return int(n), err
}

var _ fleet.Partitioned = (*Store)(nil)

// Partition implements fleet.Partitioned. It returns the address of the Cluster node that
// has the key, as the Cluster reported it in the last seconds.
func (s *Store) Partition(_ *stint.Limit, key string) string {
	return s.conn.Topology().Node(slot(key))
}

// Partitions implements fleet.Partitioned.
func (s *Store) Partitions() []string { return s.conn.Topology().Nodes() }
