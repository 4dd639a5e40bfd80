package redislimit

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/stintdev/stint/redislimit/internal/conn"
)

var (
	//go:embed membership.lua
	membershipText string
	//go:embed announce.lua
	announceText string

	membershipScript = conn.NewScript(membershipText)
	announceScript   = conn.NewScript(announceText)
)

// heartbeatLifetime is how long a Heartbeat counts: long enough that one that is late or
// lost changes nothing.
const heartbeatLifetime = 5 * time.Second

// Heartbeat implements stint.Membership: it notes that this Store is alive, and returns how
// many Stores of the namespace have called it in the last five seconds, by the server's
// clock. Two Stores of one process count as two.
func (s *Store) Heartbeat(ctx context.Context) (live int, err error) {
	reply, err := s.conn.Eval(ctx, membershipScript, []string{s.namespace + ":{members}"}, s.id, strconv.FormatInt(heartbeatLifetime.Milliseconds(), 10))
	if err != nil {
		return 0, fmt.Errorf("redislimit: heartbeat: %w", err)
	}
	n, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("redislimit: heartbeat: the script replied %T", reply)
	}
	return int(n), nil
}

// announcementLifetime is how long an announcement counts.
const announcementLifetime = 30 * time.Second

// Announce records a text of this instance, such as which rules it has, and returns what
// instances of the namespace have announced in the last 30 seconds, by the server's clock:
// each text once, up to 100 of them, the newest first, this one among them. To keep a
// text, announce it again every few seconds.
func (d *Documents) Announce(ctx context.Context, text string) ([]string, error) {
	s := d.store
	reply, err := s.conn.Eval(ctx, announceScript, []string{s.namespace + ":{announced}"}, text, strconv.FormatInt(announcementLifetime.Milliseconds(), 10))
	if err != nil {
		return nil, fmt.Errorf("redislimit: announce: %w", err)
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("redislimit: announce: the script replied %T", reply)
	}
	all := make([]string, 0, len(list))
	for _, t := range list {
		text, _ := t.(string)
		all = append(all, text)
	}
	return all, nil
}
