package redislimit

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"
)

//go:embed census.lua
var censusScript string

// wordCounts is for how long a Heartbeat counts: long enough that one that is late, or
// lost, changes nothing.
const wordCounts = 5 * time.Second

// Heartbeat implements stint.Membership: it says that this Store's process lives, and returns
// how many Stores of the namespace have said so in the last five seconds, by the
// server's clock. Two Stores of one process count as two.
func (s *Store) Heartbeat(ctx context.Context) (live int, err error) {
	reply, err := s.census.eval(ctx, s.client, []string{s.namespace + ":{census}"}, s.id, strconv.FormatInt(wordCounts.Milliseconds(), 10))
	if err != nil {
		return 0, fmt.Errorf("redislimit: census: %w", advise(err))
	}
	n, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("redislimit: census: the script replied %T", reply)
	}
	return int(n), nil
}
