package check

import (
	"encoding/json"
	"math"
	"testing"
)

// What is written by hand is what encoding/json writes.
func TestAppendReply(t *testing.T) {
	texts := []string{"", "login", "a\"b\\c", "<&>", "é\u2028😀", "\x00\n\x7f", "\xff"}
	numbers := []int64{0, -1, 7, math.MaxInt64, math.MinInt64}
	for i := range 70 {
		text := func(n int) string { return texts[(i+n*i)%len(texts)] }
		number := func(n int) int64 { return numbers[(i+n)%len(numbers)] }
		d := Decision{i%2 == 0, number(0), number(1), number(2), number(3), number(4)}
		r := replyJSON{Outcome: text(0), Rule: text(1), Message: text(2), By: text(3), Decision: d, Used: number(2), Held: number(3), Busy: i%3 == 0, BanLeft: number(1),
			Violations: number(0), WarnAfter: number(2), BanAfter: number(3), List: text(4), Entry: text(5)}
		n := namedJSON{text(2), text(4), text(5), text(6), d, number(3), number(0), i%3 == 1}
		for _, c := range []struct {
			value any
			got   []byte
		}{{r, append(r.appendTo([]byte("{")), '}')}, {n, n.appendTo(nil)}} {
			want, err := json.Marshal(c.value)
			if err != nil {
				t.Fatal(err)
			}
			if string(c.got) != string(want) {
				t.Errorf("\n got %s\nwant %s", c.got, want)
			}
		}
	}
}
