package redislimit

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"
)

//go:embed announce.lua
var announceScript string

// announcementCounts is for how long a text counts.
const announcementCounts = 30 * time.Second

// Announce notes that an instance says a text, such as which rules it has, and returns
// what instances of the namespace have said in the last 30 seconds, by the server's
// clock: each text once, up to 100 of them, the newest first, this one among them. So
// that a text stays, it is to be said again every few seconds.
func (d *Documents) Announce(ctx context.Context, text string) ([]string, error) {
	s := d.store
	reply, err := s.announce.eval(ctx, s.client, []string{s.namespace + ":{roll}"}, text, strconv.FormatInt(announcementCounts.Milliseconds(), 10))
	if err != nil {
		return nil, fmt.Errorf("redislimit: announce: %w", advise(err))
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("redislimit: announce: the script replied %T", reply)
	}
	all := make([]string, 0, len(list))
	for _, t := range list {
		said, _ := t.(string)
		all = append(all, said)
	}
	return all, nil
}
