package redislimit

import (
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// FuzzAnswer holds that whatever string the script's call returns is an answer to
// the request that was asked, or an error.
func FuzzAnswer(f *testing.F) {
	verdict := "\x01" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x03", 4)
	f.Add("\x01"+strings.Repeat("\x00", 10)+verdict, uint8(0))
	f.Add("\x02"+strings.Repeat("\x00", 10)+verdict+verdict, uint8(1))
	f.Add("\x05\x00\x01"+strings.Repeat("\x00", 6)+"\x07\x07", uint8(1))
	s, err := newStore(conn.Over(nil), Options{})
	if err != nil {
		f.Fatal(err)
	}
	limit := stint.MustLimit("10 per 1s")
	penalty, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 2, BanFor: time.Minute})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, reply string, asks uint8) {
		r := stint.Request{}
		for i := range int(asks)%4 + 1 {
			r.Asks = append(r.Asks, stint.Ask{Key: string(rune('a' + i)), Limit: limit, Penalty: penalty, Cost: 1})
		}
		d, err := s.read(reply, &r, int(asks)%3, nil)
		if err == nil && (d.Allowed != (d.Outcome == stint.Allowed) || d.Remaining < 0 || d.Remaining > limit.Capacity() || d.BanLeft < 0 || d.RetryAfter < 0) {
			t.Fatalf("%q: %+v", reply, d)
		}
	})
}
