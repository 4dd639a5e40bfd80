package stint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
)

func byArgument[A any](_ context.Context, a A) string { return fmt.Sprint(a) }

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := stint.Guard[int, string]{
			Limit:   stint.MustLimit("2 per 10s"),
			Key:     byArgument[int],
			Cost:    func(id int) int64 { return int64(id) },
			Message: "slow down",
		}.Wrap(func(_ context.Context, id int) (string, error) { calls++; return fmt.Sprint("user ", id), nil })
		if s, err := f(t.Context(), 2); s != "user 2" || err != nil {
			t.Errorf("%q, %v", s, err)
		}
		_, err := f(t.Context(), 2)
		var refused *stint.RefusedError
		if !errors.As(err, &refused) || refused.Message != "slow down" || refused.RetryAfter != 10*time.Second || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
		if want := "stint: limited to 2 per 10s: retry after 10s (slow down)"; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if _, err := f(t.Context(), 3); !errors.As(err, &refused) || refused.RetryAfter != stint.Never {
			t.Errorf("a cost of 3: %v", err)
		}
		if _, err := f(t.Context(), -1); !errors.Is(err, stint.ErrRequest) {
			t.Errorf("a cost of −1: %v", err)
		}
	})
}

func one(context.Context, int) (int, error) { return 1, nil }
func two(context.Context, int) (int, error) { return 2, nil }

// The zero Guard works: 100 calls a minute for each subject or client address. Calls without one
// are refused, share one count or pass, as it is told.
func TestGuardZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limiter stint.Limiter
		f := stint.Guard[int, int]{Limiter: &limiter}.Wrap(one)
		shared := stint.Guard[int, int]{Limiter: &limiter, Anonymous: stint.AnonymousShare}.Wrap(one)
		allowed := stint.Guard[int, int]{Limiter: &limiter, Anonymous: stint.AnonymousAllow}.Wrap(one)
		ann, client := stint.WithSubject(t.Context(), "ann"), stint.WithClient(t.Context(), "192.0.2.1")
		for _, c := range []struct {
			name string
			ctx  context.Context
			f    func(context.Context, int) (int, error)
			want int
		}{
			{"ann", ann, f, 100},
			{"ann, from an address", stint.WithClient(ann, "192.0.2.1"), shared, 0},
			{"an address", client, f, 100},
			{"a subject that looks like it", stint.WithSubject(t.Context(), "192.0.2.1"), f, 100},
			{"a subject that looks like the key of it", stint.WithSubject(t.Context(), "client=192.0.2.1"), f, 100},
			{"nobody", t.Context(), f, 0},
			{"nobody, shared", t.Context(), shared, 100},
			{"an empty subject, shared", stint.WithSubject(t.Context(), ""), shared, 0},
			{"nobody, allowed", t.Context(), allowed, 150},
		} {
			got := 0
			for range 150 {
				_, err := c.f(c.ctx, got)
				if err == nil {
					got++
				}
				var refused *stint.RefusedError
				if err != nil && errors.As(err, &refused) == (c.name == "nobody") {
					t.Fatal(err)
				}
			}
			if got != c.want {
				t.Errorf("%s: %d calls, want %d", c.name, got, c.want)
			}
		}
	})
}

// Names tell the counts of Guards apart, whatever the names and keys hold.
func TestGuardNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		limit := stint.MustLimit("1 per 1h")
		penalty, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		guard := func(name, key string, f func(context.Context, int) (int, error)) bool {
			t.Helper()
			_, err := stint.Guard[int, int]{Name: name, Limiter: &l, Limit: limit, Penalty: penalty,
				Key: func(context.Context, int) string { return key }}.Wrap(f)(t.Context(), 0)
			return err == nil
		}
		for _, c := range []struct {
			name, key string
			f         func(context.Context, int) (int, error)
			want      bool
		}{
			{"", "a", one, true},
			{"", "a", one, false}, // banned now, under this name alone
			{"", "a", two, true},
			{"github.com/stintdev/stint_test.one", "a", two, false},
			{"x", "1:y", one, true},
			{"x:1", "y", one, true},
			{"x:1:", "y", one, true},
			{"x", ":1:y", one, true},
			{"x", "1:y", two, false},
		} {
			if got := guard(c.name, c.key, c.f); got != c.want {
				t.Errorf("name %q, key %q: %v, want %v", c.name, c.key, got, c.want)
			}
		}
	})
}

func TestGuardEnabled(t *testing.T) {
	on := true
	f := stint.Guard[int, int]{Limit: stint.MustLimit("1 per 1h"), Enabled: func() bool { return on }, Anonymous: stint.AnonymousShare}.Wrap(one)
	for i, c := range []struct{ on, want bool }{{true, true}, {true, false}, {false, true}, {false, true}, {true, false}} {
		on = c.on
		if _, err := f(t.Context(), 0); (err == nil) != c.want {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestGuardWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := stint.Guard[string, int]{
			Limit: stint.MustLimit("1 per 10s"),
			Key:   byArgument[string],
			Wait:  true,
		}.Wrap(func(context.Context, string) (int, error) { return 1, nil })
		start := time.Now()
		for range 3 {
			if _, err := f(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(start) != 20*time.Second {
			t.Errorf("three calls took %s, want 20s", time.Since(start))
		}
	})
}

func TestGuardMisuse(t *testing.T) {
	p, err := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, wrap := range map[string]func(){
		"no function":      func() { stint.Guard[int, int]{}.Wrap(nil) },
		"penalty and wait": func() { stint.Guard[int, int]{Wait: true, Penalty: p}.Wrap(one) },
		"a cost after without a hold": func() {
			stint.Guard[int, int]{Limit: stint.MustLimit("5 per 1m"), CostAfter: func(int, int, error) int64 { return 1 }}.Wrap(one)
		},
		"a cost after in flight": func() {
			stint.Guard[int, int]{Limit: stint.MustLimit("5 in_flight"), CostAfter: func(int, int, error) int64 { return 1 }}.Wrap(one)
		},
		"allow and wait": func() { stint.Guard[int, int]{Wait: true, OnError: stint.OnErrorAllow}.Wrap(one) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			wrap()
		}()
	}
}

// logged collects what is logged meanwhile.
func logged(t *testing.T) func() string {
	t.Helper()
	var mu sync.Mutex
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	}), nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A Guard that may share its counts by accident says so when it is made.
func TestGuardWarnsOfSharing(t *testing.T) {
	closure := func(ctx context.Context, n int) (int, error) { return one(ctx, n) }
	remote := stint.NewLimiter(&limittest.Faulty{Store: new(stint.Memory)})
	for name, c := range map[string]struct {
		guard stint.Guard[int, int]
		f     func(context.Context, int) (int, error)
		warns bool
	}{
		"a closure":            {stint.Guard[int, int]{Limiter: remote}, closure, true},
		"with a name":          {stint.Guard[int, int]{Limiter: remote, Name: "load"}, closure, false},
		"under a named limit":  {stint.Guard[int, int]{Limiter: remote, Limit: stint.MustLimit("load: 5 per 1m")}, closure, false},
		"a function":           {stint.Guard[int, int]{Limiter: remote}, one, false},
		"in memory of its own": {stint.Guard[int, int]{}, closure, false},
		"in a Memory":          {stint.Guard[int, int]{Limiter: stint.NewLimiter(new(stint.Memory))}, closure, false},
	} {
		t.Run(name, func(t *testing.T) {
			text := logged(t)
			f := c.guard.Wrap(c.f)
			for range 3 {
				if _, err := f(stint.WithSubject(t.Context(), "ann"), 1); err != nil {
					t.Fatal(err)
				}
			}
			got := text()
			if n := strings.Count(got, "counts together"); (n == 1) != c.warns || n > 1 || c.warns && !strings.Contains(got, "TestGuardWarnsOfSharing.func1") {
				t.Errorf("the log: %q", got)
			}
		})
	}
}

// broken is a Store that fails, and nothing else.
type broken struct{ err error }

func (b broken) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, b.err
}

// Of a Store without a Fallback, OnErrorAllow alone calls the function, and says so in
// one line of the log; whose own fault it is gets an error in any case.
func TestGuardOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := logged(t)
		down := errors.New("down")
		for onError, want := range map[stint.OnError]error{stint.OnErrorAllow: nil, stint.OnErrorDeny: down, stint.OnErrorLocal: down} {
			f := stint.Guard[int, int]{Limiter: stint.NewLimiter(broken{down}), OnError: onError, Anonymous: stint.AnonymousShare}.Wrap(one)
			for range 1000 {
				if _, err := f(t.Context(), 0); !errors.Is(err, want) {
					t.Fatalf("%s: %v", onError, err)
				}
			}
			if _, err := f(stint.WithSubject(t.Context(), strings.Repeat("x", 5000)), 0); !errors.Is(err, stint.ErrRequest) {
				t.Errorf("%s: a key that is too long: %v", onError, err)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := f(gone, 0); onError == stint.OnErrorAllow && err == nil {
				t.Errorf("%s: its caller has left: %v", onError, err)
			}
		}
		synctest.Wait()
		if got := text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "down") {
			t.Errorf("the log: %s", got)
		}
	})
}

// A Guard under a held limit holds its cost while the function runs, and then charges what it did
// cost, or the cost if the function panics.
func TestGuardCostAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		limit := stint.MustLimit("tokens: 100 per 1h fixed_window hold")
		failed := errors.New("failed")
		guard := stint.Guard[string, int]{
			Name: "g", Limiter: &l, Limit: limit,
			Key:  func(context.Context, string) string { return "k" },
			Cost: func(a string) int64 { return int64(len(a)) },
			CostAfter: func(a string, r int, err error) int64 {
				if err != nil {
					return -5
				}
				return int64(r)
			},
		}
		left := int64(100)
		remains := func(want int64) {
			t.Helper()
			if got := remaining(t, &l, "g:k", limit); got != want {
				t.Errorf("%d remain, want %d", got, want)
			}
		}
		f := guard.Wrap(func(_ context.Context, a string) (int, error) {
			time.Sleep(5 * time.Minute)
			remains(left - int64(len(a)))
			switch a {
			case "panics":
				panic(a)
			case "fails":
				return 0, failed
			}
			return 30, nil
		})
		gone, cancel := context.WithCancel(t.Context())
		for _, c := range []struct {
			a    string
			cost int64
		}{{"more", 30}, {"fails", 0}, {"panics", 6}, {"", 30}, {"long long long", 30}} {
			func() {
				defer func() {
					if recover() == nil != (c.a != "panics") {
						t.Errorf("%q: the panic is lost, or new", c.a)
					}
				}()
				if _, err := f(gone, c.a); err != nil && err != failed {
					t.Errorf("%q: %v", c.a, err)
				}
			}()
			left -= c.cost
			remains(left)
		}
		var refused *stint.RefusedError
		if _, err := f(gone, "too much"); !errors.As(err, &refused) || refused.Busy {
			t.Errorf("%v", err)
		}
		cancel()
	})
}

// A Guard under an in_flight limit bounds how many calls run at once; one that waits gives each its
// turn, and one whose caller leaves while it waits holds nothing.
func TestGuardInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, waits := range []bool{false, true} {
			limit := stint.MustLimit("2 in_flight retry 100ms")
			l := stint.NewLimiter(new(stint.Memory))
			var running, most, refused int
			var mu sync.Mutex
			f := stint.Guard[int, int]{Name: "g", Limiter: l, Limit: limit, Wait: waits, Anonymous: stint.AnonymousShare}.Wrap(func(context.Context, int) (int, error) {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Minute)
				mu.Lock()
				running--
				mu.Unlock()
				return 0, nil
			})
			var callers sync.WaitGroup
			for range 6 {
				callers.Go(func() {
					var limited *stint.RefusedError
					if _, err := f(t.Context(), 0); errors.As(err, &limited) && limited.Busy {
						mu.Lock()
						refused++
						mu.Unlock()
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			if waits {
				callers.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(150*time.Second, cancel)
					time.Sleep(121 * time.Second) // when the last two run
					if _, err := f(ctx, 0); err != context.Canceled {
						t.Errorf("the caller who left: %v", err)
					}
				})
			}
			callers.Wait()
			want := 4
			if waits {
				want = 0
			}
			if most != 2 || refused != want || remaining(t, l, "g:(anonymous)", limit) != 2 {
				t.Errorf("waits %v: %d at once, %d refused, %d remain", waits, most, refused, remaining(t, l, "g:(anonymous)", limit))
			}
		}
	})
}

// A call that waits to leave at the pace of the instance gives back what it holds if its caller
// leaves.
func TestGuardInFlightPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := stint.MustLimit("5 in_flight")
		l := &stint.Limiter{Instance: stint.MustLimit("1 per 10s leaky_bucket burst 5")}
		calls := 0
		f := stint.Guard[int, int]{Name: "g", Limiter: l, Limit: limit, Wait: true, Anonymous: stint.AnonymousShare}.Wrap(func(context.Context, int) (int, error) { calls++; return 0, nil })
		if _, err := f(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := f(ctx, 0); err != context.Canceled || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
		time.Sleep(time.Second)
		if n := remaining(t, l, "g:(anonymous)", limit); n != 5 {
			t.Errorf("%d remain, want 5", n)
		}
	})
}

// If the store cannot hold, OnError decides as ever, and nothing is settled.
func TestGuardHeldOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged(t)
		down := errors.New("down")
		f := stint.Guard[int, int]{Limiter: stint.NewLimiter(broken{down}), Limit: stint.MustLimit("2 in_flight"), OnError: stint.OnErrorAllow, Anonymous: stint.AnonymousShare}.Wrap(one)
		if n, err := f(t.Context(), 0); n != 1 || err != nil {
			t.Error(n, err)
		}
		time.Sleep(time.Hour) // the keeper gives up
	})
}
