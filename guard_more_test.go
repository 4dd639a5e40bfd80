package stint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// outcome is what a guarded function of the test returned, in short.
func outcome(r int, err error) string {
	var refused *stint.RefusedError
	if errors.As(err, &refused) {
		return fmt.Sprintf("%s: %s", refused.Outcome, refused.Message)
	}
	return fmt.Sprint(r, err)
}

// A call is charged under all limits of a Guard or under none, and the text tells which refused.
func TestGuardSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := stint.Guard[int, int]{
			Name: "several", Key: func(context.Context, int) string { return "ann" },
			Limit:   stint.MustLimit("second: 2 per 1s fixed_window"),
			More:    []*stint.Limit{stint.MustLimit("hour: 3 per 1h fixed_window")},
			Message: "{limit}, in {retry_after}",
		}.Wrap(one)
		var got []string
		for i := range 6 {
			if i == 3 {
				time.Sleep(time.Second)
			}
			got = append(got, outcome(f(t.Context(), 0)))
		}
		want := []string{"1 <nil>", "1 <nil>", "limited: 2 per 1s fixed_window, in 1s", "1 <nil>", "limited: 3 per 1h fixed_window, in 59m 59s", "limited: 3 per 1h fixed_window, in 59m 59s"}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Of several limits one may be held: what a call did cost is charged under it, and another one limits
// how many run.
func TestGuardHoldsBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := new(stint.Limiter)
		tokens := stint.MustLimit("tokens: 100 per 1h fixed_window hold")
		f := stint.Guard[int, int]{
			Name: "held", Limiter: limiter, Key: func(context.Context, int) string { return "ann" },
			Limit: tokens, More: []*stint.Limit{stint.MustLimit("running: 1 in_flight"), stint.MustLimit("calls: 9 per 1h fixed_window")},
			Cost: func(int) int64 { return 40 }, CostAfter: func(int, int, error) int64 { return 7 },
		}.Wrap(func(context.Context, int) (int, error) { time.Sleep(time.Second); return 1, nil })
		go func() {
			if got := outcome(f(t.Context(), 0)); got != "limited: " { // 40 are more than 9 calls
				t.Error(got)
			}
		}()
		synctest.Wait()
		time.Sleep(time.Minute)

		g := stint.Guard[int, int]{
			Name: "held", Limiter: limiter, Key: func(context.Context, int) string { return "ann" },
			Limit: tokens, More: []*stint.Limit{stint.MustLimit("running: 1 in_flight")},
			Cost: func(int) int64 { return 40 }, CostAfter: func(int, int, error) int64 { return 7 },
		}.Wrap(func(context.Context, int) (int, error) { time.Sleep(time.Second); return 1, nil })
		go func() {
			if got := outcome(g(t.Context(), 0)); got != "1 <nil>" {
				t.Error(got)
			}
		}()
		synctest.Wait()
		if got := outcome(g(t.Context(), 0)); got != "limited: " {
			t.Errorf("while one runs: %s", got)
		}
		time.Sleep(time.Minute)
		d, err := limiter.Peek(t.Context(), "held:ann", tokens)
		if err != nil || d.Remaining != 93 || d.Held != 0 {
			t.Errorf("%d remain, %d held, %v", d.Remaining, d.Held, err)
		}
	})
}

// Each outcome can have a text of its own, with placeholders as rules have them.
func TestGuardMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := stint.Guard[int, int]{
			Name: "texts", Key: func(context.Context, int) string { return "ann" }, Limit: stint.MustLimit("1 per 1h fixed_window"),
			Penalty:  penalty(t, stint.PenaltySpec{Name: "p", WarnAfter: 2, BanAfter: 3, BanFor: 90 * time.Minute}),
			Message:  "{{{limit}}}: no",
			Messages: stint.Messages{Warned: "{violations} of {ban_after}, the first warning came at {warn_after}", Banned: "banned after {violations}, for {ban_left}"},
		}
		for name, banned := range map[string]string{
			"":                        "banned: banned after 3, for 1h 29m",
			"banned for {ban_left}":   "banned: banned for 1h 29m",
			"还有 {ban_left}，共 {limit}": "banned: 还有 1 小时 29 分钟，共 1 per 1h fixed_window",
			"還有 {retry_after}，請稍後再試":  "banned: 還有 1 小時 29 分鐘，請稍後再試",
			"あと {retry_after}（3 回）です": "banned: あと 1h 29m（3 回）です",
		} {
			guard.Limiter, guard.Messages.StillBanned = new(stint.Limiter), name
			f := guard.Wrap(one)
			for i, want := range []string{
				"1 <nil>", "limited: {1 per 1h fixed_window}: no", "warned: 2 of 3, the first warning came at 2",
				"banned: banned after 3, for 1h 30m", banned, banned,
			} {
				if i == 4 {
					time.Sleep(time.Minute)
				}
				if got := outcome(f(t.Context(), 0)); got != want {
					t.Errorf("call %d: %s, want %s", i, got, want)
				}
			}
		}
	})
	for text, want := range map[string]string{
		"{retry_aftr}": `the text "{retry_aftr}" of a Guard: unknown placeholder {retry_aftr}: did you mean {retry_after}?`,
		"{":            `a { without a }`,
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
					t.Errorf("%s: %s", text, p)
				}
			}()
			stint.Guard[int, int]{Messages: stint.Messages{Banned: text}}.Wrap(one)
		}()
	}
}

// The Fallback answers where the function is not called, and is told why.
func TestGuardFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := logged(t)
		guard := stint.Guard[int, int]{
			Name: "cached", Key: func(context.Context, int) string { return "ann" }, Limit: stint.MustLimit("1 per 1h"),
			Fallback: func(_ context.Context, a int, why error) (int, error) {
				if a < 0 {
					return 0, why
				}
				return 100 + a, nil
			},
		}
		f := guard.Wrap(one)
		for i, want := range []string{"1 <nil>", "107 <nil>", "107 <nil>"} {
			if got := outcome(f(t.Context(), 7)); got != want {
				t.Errorf("call %d: %s, want %s", i, got, want)
			}
		}
		if got := outcome(f(t.Context(), -1)); got != "limited: " {
			t.Errorf("the error is not the caller's: %s", got)
		}
		guard.Limiter, guard.OnError = stint.NewLimiter(undecidable{}), stint.OnErrorDeny
		if got := outcome(guard.Wrap(one)(t.Context(), 7)); got != "107 <nil>" {
			t.Errorf("without a decision: %s", got)
		}
		guard.OnError = stint.OnErrorAllow
		if got := outcome(guard.Wrap(one)(t.Context(), 7)); got != "1 <nil>" {
			t.Errorf("OnErrorAllow: %s", got)
		}
		synctest.Wait()
		if got := text(); strings.Count(got, "\n") != 1 {
			t.Errorf("the log: %s", got)
		}
	})
}

// undecidable is a Store that decides nothing.
type undecidable struct{}

func (undecidable) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, errors.New("the store is away")
}

// A Guard limits a part of a function of any signature. It shares its counts with Wrap under the same
// Name.
func TestGuardInline(t *testing.T) {
	guard := stint.Guard[int, int]{Name: "inline", Limiter: new(stint.Limiter), Key: byArgument[int], Limit: stint.MustLimit("2 per 1h")}
	load := guard.Inline()
	twice := func(ctx context.Context, id int, deep bool) (n int, ok bool) {
		n, err := load(ctx, id, func(context.Context) (int, error) {
			if deep {
				return 2 * id, nil
			}
			return id, nil
		})
		return n, err == nil
	}
	for i, want := range []string{"6 true", "0 false"} {
		if got := fmt.Sprint(twice(t.Context(), 3, true)); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
		if _, err := guard.Wrap(one)(t.Context(), 3); (err == nil) != (i == 0) {
			t.Errorf("Wrap, call %d: %v", i, err)
		}
	}
	defer func() {
		if p := recover(); p != "stint: a Guard that is used inline needs a Name" {
			t.Errorf("without a name: %v", p)
		}
	}()
	stint.Guard[int, int]{}.Inline()
}
