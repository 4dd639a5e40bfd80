package rpclimit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/rpclimit"
)

// said is where it is said what happens without the store. Local is not said.
type said struct{ ask, door, limiter stint.OnError }

// wins is the order in docs/reliability.md.
func (s said) wins() stint.OnError { return cmp.Or(s.ask, s.door, s.limiter) }

var oneAnHour = stint.MustLimit("door: 1 per 1h")

// doors are all that asks a Limiter. Each is made for one case, and is then called: it returns pass,
// refuse or undecided. ask and door tell where the OnError can be said.
var doors = map[string]struct {
	ask, door bool
	open      func(l *stint.Limiter, s said) func(context.Context) string
}{
	"Limiter.Allow": {false, false, func(l *stint.Limiter, _ said) func(context.Context) string {
		return func(ctx context.Context) string {
			d, err := l.Allow(ctx, "ann", oneAnHour)
			return result(d.Allowed, err)
		}
	}},
	"Limiter.Take": {true, false, func(l *stint.Limiter, s said) func(context.Context) string {
		return func(ctx context.Context) string {
			d, err := l.Take(ctx, &stint.Request{Asks: asks(s)}, nil)
			return result(d.Allowed, err)
		}
	}},
	"Limiter.TakeBatch": {true, false, func(l *stint.Limiter, s said) func(context.Context) string {
		return func(ctx context.Context) string {
			answers, rs := make([]stint.Answer, 1), []stint.Request{{Asks: asks(s)}}
			l.TakeBatch(ctx, rs, answers)
			if rs[0].Asks[0].OnError != s.ask {
				return "the caller's asks were changed"
			}
			return result(answers[0].Allowed, answers[0].Err)
		}
	}},
	"Limiter.Reserve": {true, false, func(l *stint.Limiter, s said) func(context.Context) string {
		return func(ctx context.Context) string {
			r, d, err := l.Reserve(ctx, &stint.Request{Asks: asks(s)})
			_ = r.Settle(ctx)
			return result(d.Allowed, err)
		}
	}},
	"Limiter.Wait": {false, false, func(l *stint.Limiter, _ said) func(context.Context) string {
		return func(ctx context.Context) string { return waited(l.Wait(ctx, "ann", oneAnHour)) }
	}},
	"Guard": {false, true, func(l *stint.Limiter, s said) func(context.Context) string {
		f := stint.Guard[int, int]{Name: "g", Limiter: l, Limit: oneAnHour, OnError: s.door, Key: func(context.Context, int) string { return "ann" }}.Wrap(
			func(context.Context, int) (int, error) { return 0, nil })
		return func(ctx context.Context) string { _, err := f(ctx, 0); return waited(err) }
	}},
	"Middleware, By":     {false, true, middleware(func(l *stint.Limiter, _ said) httplimit.Decide { return httplimit.By(l, oneAnHour, eachRequest) })},
	"Middleware, Shape":  {false, true, middleware(func(l *stint.Limiter, _ said) httplimit.Decide { return httplimit.Shape(l, oneAnHour, eachRequest) })},
	"Middleware, Budget": {true, true, middleware(budget)},
	"Middleware, Watch": {true, true, middleware(func(l *stint.Limiter, s said) httplimit.Decide {
		p, _ := stint.NewPenalty(stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
		return httplimit.Watch(budget(l, s), stint.NewLimiter(nil), eachRequest, p, 401)
	})},
	"Gate": {true, true, func(l *stint.Limiter, s said) func(context.Context) string {
		g := httplimit.Middleware{Decide: budget(l, s), OnError: s.door}.Gate()
		return func(ctx context.Context) string {
			running, refused := g.Begin(httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			if refused != nil {
				return status(refused.Status)
			}
			running.End(func() int { return 200 })
			return "pass"
		}
	}},
	"Transport": {false, false, func(l *stint.Limiter, _ said) func(context.Context) string {
		t := &httplimit.Transport{Limit: oneAnHour, Limiter: l, Key: eachRequest, Refuse: true, Base: http.NewFileTransport(http.Dir("."))}
		return func(ctx context.Context) string {
			r, err := t.RoundTrip(httptest.NewRequestWithContext(ctx, "GET", "http://example.com/", nil))
			if err == nil {
				_ = r.Body.Close()
			}
			return waited(err)
		}
	}},
	"rpclimit.Server, By": {false, true, func(l *stint.Limiter, s said) func(context.Context) string {
		return called(rpclimit.Server{Decide: rpclimit.By(l, oneAnHour, eachCall), OnError: s.door})
	}},
	"rpclimit.Server, Budget": {true, true, func(l *stint.Limiter, s said) func(context.Context) string {
		return called(rpclimit.Server{OnError: s.door, Decide: rpclimit.Budget{Limiter: l, Asks: func(context.Context, *rpclimit.Call) ([]stint.Ask, error) {
			return asks(s), nil
		}}.Decide()})
	}},
	"rpclimit.Server, messages": {false, true, func(l *stint.Limiter, s said) func(context.Context) string {
		g := rpclimit.Server{Received: rpclimit.By(l, oneAnHour, eachCall), OnError: s.door}.Gate()
		return func(ctx context.Context) string {
			running, refused := g.Begin(ctx, &rpclimit.Call{})
			if refused == nil {
				refused = running.Received(nil, true)
			}
			return coded(refused)
		}
	}},
	"rpclimit.Client": {false, false, func(l *stint.Limiter, _ said) func(context.Context) string {
		p := rpclimit.Client{Limiter: l, Limit: oneAnHour, Key: eachCall, Refuse: true}.Pacer(func(error) (time.Duration, bool) { return 0, false })
		return func(ctx context.Context) string {
			_, refused := p.Begin(ctx, &rpclimit.Call{Target: "example"})
			return coded(refused)
		}
	}},
}

func asks(s said) []stint.Ask { return []stint.Ask{{Key: "ann", Limit: oneAnHour, OnError: s.ask}} }

func eachRequest(*http.Request) string                { return "ann" }
func eachCall(context.Context, *rpclimit.Call) string { return "ann" }
func budget(l *stint.Limiter, s said) httplimit.Decide {
	return httplimit.Budget{Limiter: l, Asks: func(*http.Request) ([]stint.Ask, error) { return asks(s), nil }}.Decide()
}

func middleware(decide func(*stint.Limiter, said) httplimit.Decide) func(*stint.Limiter, said) func(context.Context) string {
	return func(l *stint.Limiter, s said) func(context.Context) string {
		// A Guard within is not what the Middleware speaks for.
		own := stint.NewLimiter(failing{})
		h := httplimit.Middleware{Decide: decide(l, s), OnError: s.door}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, err := own.Allow(r.Context(), "ann", oneAnHour); err == nil {
				http.Error(w, d.By.String(), http.StatusTeapot)
			}
		}))
		return func(ctx context.Context) string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			return status(w.Code)
		}
	}
}

func called(s rpclimit.Server) func(context.Context) string {
	g := s.Gate()
	return func(ctx context.Context) string {
		running, refused := g.Begin(ctx, &rpclimit.Call{})
		if refused == nil {
			_ = running.Run(nil, func() error { return nil })
		}
		return coded(refused)
	}
}

func result(allowed bool, err error) string {
	switch {
	case err != nil:
		return "undecided"
	case allowed:
		return "pass"
	}
	return "refuse"
}

func waited(err error) string {
	var refused *stint.RefusedError
	if errors.As(err, &refused) {
		return "refuse"
	}
	return result(true, err)
}

func status(n int) string {
	return map[int]string{200: "pass", 429: "refuse", 503: "undecided"}[n] + strings.Repeat(fmt.Sprint(n), map[bool]int{true: 1}[n == http.StatusTeapot])
}

func coded(r *rpclimit.Refusal) string {
	if r == nil {
		return "pass"
	}
	return map[code.Code]string{code.Code_RESOURCE_EXHAUSTED: "refuse", code.Code_UNAVAILABLE: "undecided"}[r.Code]
}

// failing is a Store that is away.
type failing struct{}

func (failing) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, errors.New("away")
}

// Through each door, the nearest to the limit that says what happens without the store is obeyed, and
// the log has the key. Over a Store without a fallback nobody counts in its place, and an ask by itself
// changes nothing.
func TestOnError(t *testing.T) {
	all := []stint.OnError{stint.OnErrorLocal, stint.OnErrorAllow, stint.OnErrorDeny}
	for name, d := range doors {
		for i := range 27 {
			s := said{all[i%3], all[i/3%3], all[i/9]}
			if !d.ask && s.ask != 0 || !d.door && s.door != 0 {
				continue
			}
			for _, layered := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s,%s,%s,%t", name, s.ask, s.door, s.limiter, layered), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						log := new(lines)
						before := slog.Default()
						slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
						defer slog.SetDefault(before)
						store := stint.Store(failing{})
						if layered {
							f := fleet.New(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Err: errors.New("away")} }}, fleet.Options{})
							defer f.Close()
							store = f
						}
						call := d.open(&stint.Limiter{Store: store, OnError: s.limiter}, s)
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						got := []string{call(ctx), call(ctx)}
						want := map[stint.OnError][]string{
							stint.OnErrorLocal: {"pass", "refuse"}, stint.OnErrorAllow: {"pass", "pass"}, stint.OnErrorDeny: {"undecided", "undecided"},
						}[s.wins()]
						if !layered && (s.wins() == stint.OnErrorLocal || cmp.Or(s.door, s.limiter) != stint.OnErrorAllow) {
							want = []string{"undecided", "undecided"}
						}
						if !slices.Equal(got, want) {
							t.Errorf("%s, want %s", got, want)
						}
						synctest.Wait()
						if text := log.String(); want[1] == "pass" && !(strings.Contains(text, "OnError decides instead") && strings.Contains(strings.ReplaceAll(text, "key=g:", "key="), " key=ann")) {
							t.Errorf("the log: %s", text)
						}
					})
				})
			}
		}
	}
}

// lines are those of a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
