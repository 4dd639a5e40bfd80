package server

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
		d := decisionJSON{i%2 == 0, number(0), number(1), number(2), number(3), number(4)}
		r := replyJSON{Outcome: text(0), Rule: text(1), Message: text(2), By: text(3), decisionJSON: d, BanLeft: number(1), Decisions: []namedJSON{}}
		for j := range i % 4 {
			r.Decisions = append(r.Decisions, namedJSON{text(j), text(4), text(5), text(6), d})
		}
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.appendTo(nil); string(got) != string(want) {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}
