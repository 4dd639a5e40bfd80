package dry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/internal/check"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/kind"
)

// simulatedJSON is a line that Simulate writes.
type simulatedJSON struct {
	Outcome   string           `json:"outcome"`
	Rule      string           `json:"rule"`
	Detail    string           `json:"detail,omitempty"` // why it is malformed
	Decisions []check.Decision `json:"decisions"`
	BanLeft   int64            `json:"ban_left_us"`
}

// Simulate replays events by their own clock; see server.Server.Simulate.
func Simulate(ctx context.Context, d *door.Door, in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	w := bufio.NewWriterSize(out, 1<<16)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	run := &simulation{Door: d, held: map[string]*simulatedHold{}}
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, w.Flush())
		}
		line, err := readLine(lines)
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := run.simulate(ctx, line, encoder); err != nil {
				return errors.Join(fmt.Errorf("line %d: %w", n, err), w.Flush())
			}
		}
		if errors.Is(err, io.EOF) {
			return w.Flush()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("line %d: %w", n, err), w.Flush())
		}
	}
}

// readLine reads a line of at most check.MaxBody bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.ReadSlice('\n')
		long = append(long, line...)
		if len(long) > check.MaxBody {
			return nil, errors.New("longer than 2 MiB")
		}
	}
	return long, err
}

// anything is an ask to have an instant checked.
var anything = []stint.Ask{{Key: "anything", Limit: stint.MustLimit("1 per 1s")}}

func malformed(err error) simulatedJSON {
	return simulatedJSON{Outcome: kind.Malformed.Answer(), Detail: err.Error(), Decisions: []check.Decision{}}
}

// simulate replays one event.
func (s *simulation) simulate(ctx context.Context, line []byte, out *json.Encoder) error {
	q, err := check.ReadOne(line)
	if errors.As(err, new(check.InputError)) {
		return out.Encode(malformed(err))
	}
	if err != nil {
		return err
	}
	if !q.Timed || q.At < 0 {
		return check.BadInput("t_us: want the instant in µs since 1970")
	}
	at := time.UnixMicro(q.At)
	if err := stint.Internal(friend.Of{}).Check(&stint.Request{At: at, Asks: anything}); err != nil {
		return err
	}
	event := s.request
	switch q.Kind {
	case check.ChargeUnits:
		event = s.charge
	case check.SettleHold, check.RenewHold:
		event = s.settle
	}
	answer, err := event(ctx, q, at)
	if errors.Is(err, stint.ErrRequest) {
		answer, err = malformed(err), nil
	}
	if err != nil {
		return err
	}
	return out.Encode(answer)
}

// request decides an event, and holds its units if it names a hold.
func (s *simulation) request(ctx context.Context, q *check.Input, at time.Time) (any, error) {
	one := make([]decide.Request, 1)
	t := &one[0]
	t.In = &q.Input
	if q.Kind == check.HoldUnits {
		t.Hold = s.newID(at)
	}
	s.Decide(ctx, one, at, true)
	if t.Err != nil {
		return nil, t.Err
	}
	if q.Kind == check.HoldUnits {
		s.held[q.Hold] = &simulatedHold{t.Hold, t.Asks, t.Allowed}
	}
	v := &t.Verdict
	j := simulatedJSON{Outcome: v.Kind.Answer(), Decisions: make([]check.Decision, 0, len(v.Each)), BanLeft: v.BanLeft.Microseconds()}
	if v.Rule != nil {
		j.Rule = v.Rule.Name
	}
	for i := range v.Each {
		j.Decisions = append(j.Decisions, check.DecisionOf(&v.Each[i]))
	}
	return j, nil
}
