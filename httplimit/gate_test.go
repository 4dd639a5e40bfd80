package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// framework is a handler as a framework has it, which is no http.Handler.
type framework func(r *http.Request) (status int, body string)

// behind runs f behind a gate, as an adapter does, and answers as a framework.
func (f framework) behind(g *httplimit.Gate) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		running, refused := g.Begin(r)
		if refused != nil {
			for name, lines := range refused.Header {
				w.Header()[name] = lines
			}
			w.WriteHeader(refused.Status)
			_, _ = w.Write(refused.Body)
			return
		}
		status, body := 0, ""
		defer running.End(func() int { return status })
		for name, lines := range running.Header {
			w.Header()[name] = lines
		}
		status, body = f(running.Request)
		running.Begun(status, http.Header{"Content-Type": {"application/json"}})
		_, _ = running.Write([]byte(body))
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// A Gate decides as the Middleware does: the same statuses, headers, bodies and ends.
func TestGateIsTheMiddleware(t *testing.T) {
	ban := newPenalty(t, stint.PenaltySpec{BanAfter: 2, BanFor: time.Hour})
	clients := httplimit.Clients{}
	for name, make := range map[string]func() httplimit.Middleware{
		"by": func() httplimit.Middleware {
			return httplimit.Middleware{Clients: &clients, Decide: httplimit.By(nil, stint.MustLimit("a: 2 per 1h"), clients.Key)}
		},
		"in flight": func() httplimit.Middleware {
			return httplimit.Middleware{Decide: httplimit.By(nil, stint.MustLimit("a: 1 in_flight"), everyone)}
		},
		"watch": func() httplimit.Middleware {
			return httplimit.Middleware{Decide: httplimit.Watch(nil, nil, everyone, ban, 401), Violations: true}
		},
		"capped": func() httplimit.Middleware { return httplimit.Middleware{MaxInFlight: 1, Dialect: httplimit.Draft11} },
		"malformed": func() httplimit.Middleware {
			return httplimit.Middleware{Decide: httplimit.By(nil, nil, httplimit.Header("X-User"))}
		},
		"refused": func() httplimit.Middleware {
			return httplimit.Middleware{Decide: httplimit.By(nil, stint.MustLimit("a: 1 per 1h"), everyone), Refused: func(w http.ResponseWriter, _ *http.Request, a *httplimit.Answer) {
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, a.Outcome, " by ", a.Limit)
			}}
		},
		"budget": func() httplimit.Middleware {
			limit := stint.MustLimit("tokens: 100 per 1h fixed_window hold")
			usage := []string{"tokens"}
			return httplimit.Middleware{Decide: httplimit.Budget{
				Asks: func(*http.Request) ([]stint.Ask, error) { return []stint.Ask{{Key: "k", Limit: limit, Cost: 60}}, nil },
				CostAfter: func(r *httplimit.Response) (int64, bool) {
					n, ok := r.JSON(usage)
					tokens, _ := n.(int64)
					return tokens, ok
				},
				Usage: [][]string{usage},
			}.Decide()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var whole, gated http.Handler
			var inner func() http.Handler
			f := framework(func(r *http.Request) (int, string) {
				if r.Header.Get("X-Inner") == "" { // another request comes while this one runs
					in := get()
					in.Header.Set("X-Inner", "1")
					w := httptest.NewRecorder()
					inner().ServeHTTP(w, in)
					return 401, fmt.Sprintf(`{"tokens": 30, "inner": "%d", "caller": %q}`, w.Code, stint.Caller(r.Context()))
				}
				return 401, `{"tokens": 10}`
			})
			whole = make().Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner = func() http.Handler { return whole }
				status, body := f(r)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			}))
			gatedBy := f.behind(make().Gate())
			gated = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner = func() http.Handler { return gated }
				gatedBy(w, r)
			})
			refusals := 0
			for i := range 5 {
				a, b := httptest.NewRecorder(), httptest.NewRecorder()
				whole.ServeHTTP(a, get())
				gated.ServeHTTP(b, get())
				a.Header().Del("Content-Type")
				b.Header().Del("Content-Type")
				if a.Code != b.Code || a.Body.String() != b.Body.String() || fmt.Sprint(a.Header()) != fmt.Sprint(b.Header()) {
					t.Errorf("request %d: the Middleware %d %v %s, the Gate %d %v %s", i, a.Code, a.Header(), a.Body, b.Code, b.Header(), b.Body)
				}
				if a.Code != 401 || strings.Contains(a.Body.String(), `"inner": "4`) && !strings.Contains(a.Body.String(), `"inner": "401`) || strings.Contains(a.Body.String(), `"inner": "503`) {
					refusals++
				}
			}
			if refusals == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

// A handler that panics ends its request.
func TestGateEndsAfterAPanic(t *testing.T) {
	g := httplimit.Middleware{MaxInFlight: 1, Decide: httplimit.By(nil, stint.MustLimit("a: 1 in_flight"), everyone)}.Gate()
	h := framework(func(r *http.Request) (int, string) { panic(http.ErrAbortHandler) }).behind(g)
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it was refused")
				}
			}()
			h(httptest.NewRecorder(), get().WithContext(context.Background()))
		}()
	}
}
