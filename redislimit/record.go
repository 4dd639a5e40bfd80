package redislimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

var (
	recordScript  = conn.NewScript(algo.RecordScript)
	inspectScript = conn.NewScript(algo.InspectScript)
)

// Record implements stint.Inspector, in one round trip that writes nothing.
func (s *Store) Record(ctx context.Context, key string, p *stint.Penalty) (stint.Record, error) {
	name := s.key(key, p.ID())
	reply, err := s.conn.Eval(ctx, recordScript, []string{name})
	if err != nil {
		if conn.IsWrongType(err) {
			return stint.Record{}, brokenKey(name, true)
		}
		return stint.Record{}, fmt.Errorf("redislimit: record: %w", err)
	}
	parts, _ := reply.([]any)
	if len(parts) != 3 {
		return stint.Record{}, fmt.Errorf("redislimit: record: the script replied %T", reply)
	}
	now, err := instant(parts[1:])
	if err != nil {
		return stint.Record{}, fmt.Errorf("redislimit: record: %w", err)
	}
	var record algo.Record
	if parts[0] != nil {
		text, _ := parts[0].(string)
		var ok bool
		if record, ok = algo.ReadRecord(text); !ok {
			return stint.Record{}, brokenKey(name, false)
		}
	}
	return kit.Record(key, p, &record, now), nil
}

func instant(reply any) (int64, error) {
	parts, _ := reply.([]any)
	if len(parts) == 2 {
		s, err1 := strconv.ParseInt(fmt.Sprint(parts[0]), 10, 64)
		us, err2 := strconv.ParseInt(fmt.Sprint(parts[1]), 10, 64)
		if err1 == nil && err2 == nil {
			return s*1_000_000 + us, nil
		}
	}
	return 0, fmt.Errorf("TIME replied %v", reply)
}

// Banned implements stint.Inspector. It scans all keys of the server, about 1,000 at a
// time, and serves others in between; on a server with many keys this takes long. It misses
// no ban that runs the whole time, unless a Cluster moves its slot meanwhile. It skips
// values that are not records.
//
// In a Cluster it asks every master. It fails if a node does not answer, or if the Client
// is your own, because such a Client does not show the nodes.
func (s *Store) Banned(ctx context.Context, yield func(stint.Record) bool) error {
	nodes, err := s.conn.Masters(ctx)
	seen := map[string]bool{}
	for i := 0; err == nil && i < len(nodes); i++ {
		err = s.bannedOn(ctx, nodes[i], seen, yield)
	}
	switch {
	case errors.Is(err, errEnough):
		return nil
	case errors.Is(err, conn.ErrOneNode):
		return fmt.Errorf("redislimit: banned: %w: %w", stint.ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("redislimit: banned: %w", err)
	}
	return nil
}

var errEnough = errors.New("enough")

func (s *Store) bannedOn(ctx context.Context, node conn.Node, seen map[string]bool, yield func(stint.Record) bool) error {
	reply, err := node.Do(ctx, "TIME")
	if err != nil {
		return err
	}
	start, err := instant(reply)
	if err != nil {
		return err
	}
	asked := time.Now()
	return node.Scan(ctx, s.namespace+":{*}p:*", func(keys []string) error {
		values, err := node.Values(ctx, keys)
		if err != nil {
			return err
		}
		now := start + time.Since(asked).Microseconds()
		for i, key := range keys {
			text, _ := values[i].(string)
			r, ok := s.recordUnder(key, text, now)
			if !ok || r.BanLeft == 0 || seen[key] {
				continue
			}
			seen[key] = true
			if !yield(r) {
				return errEnough
			}
		}
		return nil
	})
}

// recordUnder reads a key and its value; not ok: it is not a record. A running ban has no
// violations and no forgotten bans, so the penalty is not needed to count those.
func (s *Store) recordUnder(key, value string, now int64) (r stint.Record, ok bool) {
	subject, hashed, id, ok := s.parse(key)
	name, isPenalty := strings.CutPrefix(id, "p:")
	record, isRecord := algo.ReadRecord(value)
	if !ok || !isPenalty || !isRecord {
		return stint.Record{}, false
	}
	left := new(algo.Penalty).BanLeft(&record, now)
	return stint.Record{Key: subject, Hashed: hashed, Penalty: name, Violations: record.Violations, Bans: record.Bans, BanLeft: algo.Duration(left)}, true
}

// Inspect implements stint.Inspector, in one round trip that writes nothing. Counts in EnvoyKeys
// take two more round trips for each limit, and have no Idle.
func (s *Store) Inspect(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Stored, error) {
	stored, err := s.inspectOwn(ctx, key, limits)
	if s.envoy == nil || err != nil {
		return stored, err
	}
	for i, l := range limits {
		c, ok := s.envoyCount(l, key, 0, envoyInstant(time.Time{}))
		if !ok {
			continue
		}
		if stored[i], err = s.inspectEnvoy(ctx, &c); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

func (s *Store) inspectOwn(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Stored, error) {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = s.key(key, l.ID())
	}
	reply, err := s.conn.Eval(ctx, inspectScript, names)
	if err != nil {
		if conn.IsWrongType(err) {
			return nil, fmt.Errorf("redislimit: inspect: a count of %q holds another type of value: %w", key, fleet.ErrBroken)
		}
		return nil, fmt.Errorf("redislimit: inspect: %w", err)
	}
	parts, _ := reply.([]any)
	if len(parts) != 2+2*len(limits) {
		return nil, fmt.Errorf("redislimit: inspect: the script replied %T to %d keys", reply, len(limits))
	}
	now, err := instant(parts[:2])
	if err != nil {
		return nil, fmt.Errorf("redislimit: inspect: %w", err)
	}
	stored := make([]stint.Stored, len(limits))
	for i := range stored {
		text, _ := parts[2+2*i].(string)
		left, _ := parts[3+2*i].(int64)
		if text == "" {
			continue
		}
		last, ok := algo.ReadLast(text, kit.Plan(limits[i]).Kind)
		if !ok {
			return nil, brokenKey(names[i], false)
		}
		stored[i] = stint.Stored{Held: true, Idle: algo.Duration(max(0, now-last)), Expires: time.Duration(max(0, left)) * time.Millisecond}
	}
	return stored, nil
}
