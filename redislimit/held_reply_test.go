package redislimit_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/redislimit"
)

// replying is a Store over a Client that answers each script by reply.
func replying(t *testing.T, reply func() (any, error)) *redislimit.Store {
	t.Helper()
	s, err := redislimit.New(t.Context(), fake(func(args []string) (any, error) {
		if args[0] == "INFO" {
			return "redis_version:7.0.0\r\n", nil
		}
		return reply()
	}), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An operator who looks at what a key holds sees what counts at the server's instant. A record that is
// forged, cut short or of another version is an error that says so, and never a hold.
func TestHeldReply(t *testing.T) {
	const second = 1_000_000
	now := int64(1_700_000_000 * second)
	var reply any
	s := replying(t, func() (any, error) { return reply, nil })
	limit := stint.MustLimit("5 in_flight")
	id := stint.HoldID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	field := string(id[4:]) + string(id[:4])
	record := func(until, span int64, units string) string {
		b := binary.BigEndian.AppendUint64(nil, uint64(until))[1:]
		return string(append(b, binary.BigEndian.AppendUint64(nil, uint64(span))[3:]...)) + units
	}
	good := record(now+3*second, 2*second, "\x00\x03")
	for _, c := range []struct {
		name, field, value string
		left               time.Duration // 0: it does not count
		units              int64
		broken             bool
	}{
		{"a hold", field, good, 3 * time.Second, 3, false},
		{"a large one", field, record(now+3*second, 2*second, "\x00\x00\x00\x01\x00\x00\x01"), 3 * time.Second, 1<<24 + 1, false},
		{"its last instant", field, record(now+1, 2*second, "\x01\x00"), time.Microsecond, 256, false},
		{"it has run out", field, record(now, 2*second, "\x00\x01"), 0, 0, false},
		{"the clock was set back a little", field, record(now+4*second, 2*second, "\x00\x01"), 4 * time.Second, 1, false},
		{"the clock was set back far", field, record(now+4*second+1, 2*second, "\x00\x01"), 0, 0, false},
		{"of no units", field, record(now+second, 2*second, "\x00\x00"), 0, 0, false},
		{"the head", "", "P" + strings.Repeat("\x00", 93), 0, 0, false},
		{"an agenda", "a", strings.Repeat("\x00", 38), 0, 0, false},
		{"an identity cut short", field[1:], good, 0, 0, true},
		{"an identity too long", field + "x", good, 0, 0, true},
		{"a record cut short", field, good[1:], 0, 0, true},
		{"a record too long", field, good + "\x00", 0, 0, true},
		{"a large one cut short", field, good + "\x00\x00\x00\x00", 0, 0, true},
		{"a large one too long", field, good + "\x00\x00\x00\x00\x00\x00", 0, 0, true},
		{"nothing", field, "", 0, 0, true},
		{"a head of another version", "", "Q" + strings.Repeat("\x00", 93), 0, 0, true},
		{"a head cut short", "", "P" + strings.Repeat("\x00", 92), 0, 0, true},
		{"an empty head", "", "", 0, 0, true},
		{"an agenda cut short", "a", strings.Repeat("\x00", 20), 0, 0, true},
	} {
		reply = []any{"1700000000", "0", []any{c.field, c.value}}
		held, err := s.Held(t.Context(), "k", []*stint.Limit{stint.MustLimit("9 per 1h"), limit})
		if errors.Is(err, fleet.ErrBroken) != c.broken || !c.broken && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.left == 0 {
			if len(held) > 0 {
				t.Errorf("%s: %+v", c.name, held)
			}
			continue
		}
		if want := (stint.Hold{ID: id, Limit: limit, Units: c.units, Left: c.left, For: 2 * time.Second}); len(held) != 1 || held[0] != want {
			t.Errorf("%s: %+v, want %+v", c.name, held, want)
		}
	}
	for _, reply = range []any{nil, "", int64(1), []any{}, []any{"1700000000", "0"}, []any{"1700000000", "0", []any{}, []any{}},
		[]any{"x", "0", []any{}}, []any{"1700000000", "x", []any{}}, []any{nil, nil, []any{}}} {
		if held, err := s.Held(t.Context(), "k", []*stint.Limit{limit}); err == nil || len(held) > 0 {
			t.Errorf("%q: %+v, %v", reply, held, err)
		}
	}
	reply = nil
	if held, err := s.Held(t.Context(), "k", []*stint.Limit{stint.MustLimit("9 per 1h")}); err != nil || len(held) > 0 {
		t.Errorf("limits that hold nothing were asked for: %+v, %v", held, err)
	}
}

// A caller that settles learns of each call that it failed, and whether it may have been charged: of few
// calls, which go with the requests of others, and of many, which go as a list.
func TestFailedCalls(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	limit := stint.MustLimit("100 per 1h fixed_window hold")
	type answer struct {
		reply any
		err   error
	}
	for _, c := range []struct {
		name       string
		ctx        context.Context
		answer     answer
		notCharged bool
	}{
		{"the caller left", over, answer{}, true},
		{"the server loads", t.Context(), answer{nil, errors.New("LOADING Redis is loading the dataset in memory")}, true},
		{"the connection broke", t.Context(), answer{nil, errors.New("broken pipe")}, false},
		{"no reply", t.Context(), answer{}, false},
		{"a number", t.Context(), answer{reply: int64(1)}, false},
		{"an empty reply", t.Context(), answer{reply: ""}, false},
		{"a short reply", t.Context(), answer{reply: "\x01\x00\x00"}, false},
		{"noise", t.Context(), answer{reply: strings.Repeat("\x7f", 60)}, false},
		{"about a key that was not sent", t.Context(), answer{reply: "\x06\x00\x09" + strings.Repeat("\x00", 8)}, false},
		{"nothing but a head", t.Context(), answer{reply: "\x01" + strings.Repeat("\x00", 10)}, false},
	} {
		for _, n := range []int{1, 3, 100} {
			s := replying(t, func() (any, error) { return c.answer.reply, c.answer.err })
			calls := make([]stint.HoldCall, n)
			for i := range calls {
				calls[i] = stint.HoldCall{Key: "k", Limit: limit, Hold: stint.NewHoldID(), Units: 1, Cost: int64(i)}
			}
			s.Holds(c.ctx, time.Time{}, calls)
			for i := range calls {
				if err := calls[i].Err; err == nil || errors.Is(err, fleet.ErrNotCharged) != c.notCharged || calls[i].Found || calls[i].Charged != 0 {
					t.Errorf("%s, %d of %d: %+v", c.name, i, n, calls[i])
					break
				}
			}
		}
	}
}
