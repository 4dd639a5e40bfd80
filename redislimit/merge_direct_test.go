package redislimit

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// witness is a Client that counts the calls that callers make themselves.
type witness struct {
	Client
	alone atomic.Int64
}

func (w *witness) Do(ctx context.Context, args ...string) (any, error) {
	if stack := make([]byte, 16<<10); args[0] == "EVALSHA" && strings.Contains(string(stack[:runtime.Stack(stack, false)]), ").takeDirect(") {
		w.alone.Add(1)
	}
	return w.Client.Do(ctx, args...)
}

// Who finds nobody to go with makes its call itself, unless its context may end.
func TestDirect(t *testing.T) {
	_, s, g := gated(t)
	close(g.pass)
	w := &witness{Client: s.conn}
	s.conn = conn.Over(w)
	limit := stint.MustLimit("3 per 1h")
	mayEnd, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i, c := range []struct {
		ctx     context.Context
		alone   int64
		allowed bool
		left    int64
	}{
		{context.Background(), 1, true, 2},
		{mayEnd, 1, true, 1},
		{context.Background(), 2, true, 0},
		{context.Background(), 3, false, 0},
	} {
		d, err := stint.NewLimiter(s).Allow(c.ctx, "a", limit)
		if err != nil || d.Allowed != c.allowed || d.Remaining != c.left || w.alone.Load() != c.alone {
			t.Errorf("%d: %+v, %v after %d calls by callers", i, d, err, w.alone.Load())
		}
		idle(t, s)
	}
	s.conn = conn.Over(refusing{errors.New("OOM command not allowed")})
	if _, err := stint.NewLimiter(s).Allow(context.Background(), "a", limit); !errors.Is(err, fleet.ErrNotCharged) {
		t.Error(err)
	}
	idle(t, s)
}

// idle waits until no queue and no call is left.
func idle(t *testing.T, s *Store) {
	t.Helper()
	await.Until(t, "no queue and no call is left", func() bool {
		s.merger.mu.Lock()
		defer s.merger.mu.Unlock()
		return len(s.merger.queues) == 0 && s.merger.calls == 0
	})
}

// Those who come while somebody makes a call alone wait as for any other, leave when
// their contexts end, and are served in their order when it returns.
func TestDirectIsFollowed(t *testing.T) {
	_, s, g := gated(t)
	limit := stint.MustLimit("10 per 1h")
	var done sync.WaitGroup
	busy(t, s, g, limit, &done) // the first of these alone
	ctx, leave := context.WithCancel(t.Context())
	left := make([]int64, 3)
	for i := range left {
		done.Go(func() {
			d, err := stint.NewLimiter(s).AllowN(context.Background(), "a", limit, int64(i+1))
			if err != nil {
				t.Error(err)
			}
			left[i] = d.Remaining
		})
		await.Until(t, "it waits", func() bool { return s.queued() == i+1 })
	}
	told := make(chan error)
	go func() {
		_, err := stint.NewLimiter(s).Allow(ctx, "a", limit)
		told <- err
	}()
	await.Until(t, "it waits", func() bool { return s.queued() == len(left)+1 })
	leave()
	if err := <-told; !errors.Is(err, fleet.ErrNotCharged) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	g.pass <- struct{}{} // the first who waits at the gate
	await.Until(t, "those who wait go", func() bool { return g.made() == fewCalls+1 && s.queued() == 0 })
	close(g.pass)
	done.Wait()
	if left[0] != 9 || left[1] != 7 || left[2] != 4 {
		t.Errorf("left %d: not in their order", left)
	}
	idle(t, s)
}

// A call that somebody makes alone, to a server that does not answer, keeps nobody
// else past its deadline.
func TestDirectAtFrozenServer(t *testing.T) {
	server := redistest.Start(t)
	s, err := Connect(t.Context(), server.URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, limit := stint.NewLimiter(s), stint.MustLimit("10 per 1h")
	if _, err := l.Allow(context.Background(), "a", limit); err != nil {
		t.Fatal(err)
	}
	server.Freeze(t)
	lone := make(chan error, 1)
	go func() {
		_, err := l.Allow(context.Background(), "a", limit)
		lone <- err
	}()
	await.Until(t, "it is under way", func() bool {
		s.merger.mu.Lock()
		defer s.merger.mu.Unlock()
		return s.merger.calls == 1
	})
	const wait = 50 * time.Millisecond
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		began := time.Now()
		_, err := l.Allow(ctx, "a", limit)
		cancel()
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > wait+time.Second {
			t.Errorf("%v after %s", err, took)
		}
	}
	server.Resume()
	if err := <-lone; err != nil {
		t.Error(err)
	}
	idle(t, s)
	// Of those three one was on its way, and two had not left.
	if d, err := l.Peek(t.Context(), "a", limit); err != nil || d.Remaining != 7 {
		t.Error(d, err)
	}
}

// hasty is a Client that gives up while it is still sending.
type hasty struct {
	Client
	sending []string
}

func (h *hasty) Do(_ context.Context, args ...string) (any, error) {
	h.sending = args
	return nil, errors.New("gave up")
}

// What a Client that gave up is still sending stays as it is, whoever made the call and
// whatever comes next.
func TestArgumentsAfterCancel(t *testing.T) {
	_, s, g := gated(t)
	close(g.pass)
	limit := stint.MustLimit("3 per 1h")
	mayEnd, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), mayEnd} {
		direct := s.conn
		h := &hasty{Client: direct}
		s.conn = conn.Over(h)
		if _, err := stint.NewLimiter(s).Allow(ctx, "a", limit); err == nil {
			t.Fatal("it answered")
		}
		idle(t, s)
		s.conn = direct
		if _, err := stint.NewLimiter(s).Allow(ctx, "b", limit); err != nil {
			t.Fatal(err)
		}
		idle(t, s)
		if len(h.sending) < 5 || h.sending[0] != "EVALSHA" || !strings.Contains(h.sending[3], ":a}") {
			t.Errorf("sent is %q", h.sending)
		}
	}
}
