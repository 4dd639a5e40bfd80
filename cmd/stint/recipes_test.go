package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
)

// recipeStep is a request to a recipe's server, and what becomes of it.
type recipeStep struct {
	wait  time.Duration // before it, on the bubble's clock
	leave bool          // the requests that stay end before it
	times int           // 0: once

	firstRequest
	api    string // check or admin, which the request asks; "": the application, behind the rules
	stays  bool   // in the application
	status int    // of the application's answer; 0: 200
	answer string // its body
	seen   string // in the body of the request that the application gets

	want int    // the status that the client gets
	says string // in the body that the client gets
	mail string // what Alertmanager has got ten seconds later
}

// The rules of docs/recipes.md do what the page says: each file, as it stands there, against the
// steps of its heading. A recipe without steps fails.
func TestRecipes(t *testing.T) {
	page := readText(t, "../../docs/recipes.md")
	recipe := regexp.MustCompile("(?s)^([^\n]+)\n.*?```yaml\n(.*?)```")
	headings := map[string]bool{}
	for _, section := range strings.Split(page, "\n## ")[1:] {
		m := recipe.FindStringSubmatch(section)
		if m == nil {
			t.Errorf("no recipe below %.40q", section)
			continue
		}
		heading, file := m[1], m[2]
		headings[heading] = true
		t.Run(heading, func(t *testing.T) {
			stories := recipeStories[heading]
			if len(stories) == 0 {
				t.Fatal("the recipe has no steps")
			}
			if n := strings.Count(file, "\n"); n > 15 {
				t.Errorf("%d lines, want 15 at most", n)
			}
			path := filepath.Join(t.TempDir(), "stint.yaml")
			put(t, path, file)
			if code, out, errs := call("", "rules", "check", "--strict", path); code != 0 {
				t.Fatal(out, errs)
			}
			for _, steps := range stories {
				takeSteps(t, file, steps)
			}
		})
	}
	for heading := range recipeStories {
		if !headings[heading] {
			t.Errorf("docs/recipes.md has no recipe %q", heading)
		}
	}
}

// takeSteps takes the steps at a new server with the recipe's file.
func takeSteps(t *testing.T, file string, steps []recipeStep) {
	t.Helper()
	mail := receivesAlerts(t)
	path := filepath.Join(t.TempDir(), "stint.yaml")
	put(t, path, strings.ReplaceAll(file, "http://alertmanager:9093", mail.url))
	synctest.Test(t, func(t *testing.T) {
		s, err := server.Load(path, server.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		r := recipeServer{T: t, check: s.Check(), admin: s.Admin(), mail: mail, leave: make(chan bool)}
		r.rules = s.Wrap(http.HandlerFunc(r.application))
		for i, step := range steps {
			for range max(step.times, 1) {
				r.take(i+1, step)
			}
		}
		r.empty()
		s.Close()
	})
}

// recipeServer is the server of a recipe.
type recipeServer struct {
	*testing.T
	rules, check, admin http.Handler
	mail                *alertsReceived

	now     recipeStep
	leave   chan bool      // closed when those that stay end
	staying sync.WaitGroup // their requests
	hold    string         // of the last check that held something
}

func (r *recipeServer) application(w http.ResponseWriter, req *http.Request) {
	step, leave := r.now, r.leave
	if body, _ := io.ReadAll(req.Body); !strings.Contains(string(body), step.seen) {
		r.Errorf("the application got %s, want %q", body, step.seen)
	}
	if step.stays {
		<-leave
	}
	w.Header().Set("Content-Type", "application/json")
	if step.status != 0 {
		w.WriteHeader(step.status)
	}
	fmt.Fprint(w, step.answer)
}

func (r *recipeServer) empty() {
	close(r.leave)
	r.staying.Wait()
	r.leave = make(chan bool)
}

func (r *recipeServer) take(number int, step recipeStep) {
	r.Helper()
	time.Sleep(step.wait)
	if step.leave {
		r.empty()
	}
	r.now = step
	if !step.stays {
		r.ask(number, step)
		return
	}
	r.staying.Go(func() { r.ask(number, step) })
	synctest.Wait()
}

func (r *recipeServer) ask(number int, step recipeStep) {
	q, h := step.firstRequest, r.rules
	if step.api != "" {
		h = map[string]http.Handler{"check": r.check, "admin": r.admin}[step.api]
		q.client, q.headers = "127.0.0.1", []string{"Content-Type: application/json"}
		q.path, q.body = "http://localhost"+q.path, strings.ReplaceAll(q.body, "HOLD", r.hold)
	}
	w := guarded{r.T, h}.ask(q)
	if w.Code != step.want || !strings.Contains(w.Body.String(), step.says) {
		r.Errorf("step %d: %+v: %d, want %d and %q\n%s", number, q, w.Code, step.want, step.says, w.Body)
	}
	var answer struct{ Hold string }
	if json.Unmarshal(w.Body.Bytes(), &answer) == nil && answer.Hold != "" {
		r.hold = answer.Hold
	}
	if step.mail != "" {
		time.Sleep(10 * time.Second)
		if got := r.mail.names(); got != step.mail {
			r.Errorf("step %d: Alertmanager got %q, want %q", number, got, step.mail)
		}
	}
}

// alertsReceived is an Alertmanager outside of the bubble.
type alertsReceived struct {
	url string
	mu  sync.Mutex
	got []string
}

func receivesAlerts(t *testing.T) *alertsReceived {
	a := new(alertsReceived)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var alerts []struct{ Labels map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil || r.URL.Path != "/api/v2/alerts" {
			t.Errorf("%s: %v", r.URL, err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, one := range alerts {
			a.got = append(a.got, fmt.Sprint(one.Labels["alertname"], " of ", one.Labels["key"], " to ", one.Labels["to"]))
		}
	}))
	t.Cleanup(s.Close)
	s.Config.SetKeepAlivesEnabled(false) // an open connection would stop the bubble's clock
	a.url = s.URL
	return a
}

func (a *alertsReceived) names() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := strings.Join(a.got, ", ")
	a.got = nil
	return text
}
