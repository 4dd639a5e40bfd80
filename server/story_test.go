package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// newServer is a Server with these rules, in memory unless a change says
// otherwise. It logs nothing.
func newServer(t testing.TB, file string, changes ...func(*server.Config)) *server.Server {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	c := server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)}
	c.Settings.Check.Hosts = []string{"", "example.com", "x", "shop.example"} // which tests send
	for _, change := range changes {
		change(&c)
	}
	s := server.New(c)
	testOf.Store(s, t)
	t.Cleanup(func() { s.Close(); testOf.Delete(s) })
	return s
}

// asByDefault lets the check API be asked as a server that was given no settings does.
func asByDefault(c *server.Config) { c.Settings.Check = config.Default().Check }

// over has a server count in s. If s is a Redis, decisions wait for it longer than by default: on a
// busy machine it may take more than 25 ms, and then the server would decide without it.
func over(s stint.Store) func(*server.Config) {
	return func(c *server.Config) {
		c.Limiter = stint.NewLimiter(s)
		if _, ok := s.(*redislimit.Store); ok {
			c.Settings.DecisionTimeout = 20 * time.Second
		}
	}
}

func from(client string) *rules.Input {
	return &rules.Input{Client: netip.MustParseAddr(client), Cost: 1}
}

func doing(operation string) *rules.Input { return &rules.Input{Operation: operation, Cost: 1} }

// noon is when stories begin.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// say puts a verdict into words: "limited by login, 0 left, retry 12s".
func say(v *server.Verdict, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	if v.List == rules.Blocked {
		return "blocked"
	}
	text := v.Outcome.String()
	if v.Rule != nil {
		text += " by " + v.Rule.Name
	}
	if v.Limit != nil {
		text += fmt.Sprintf(", %d left", v.Remaining)
	}
	if v.BanLeft > 0 {
		text += fmt.Sprintf(", banned for %s", v.BanLeft)
	}
	switch {
	case v.RetryAfter == stint.Never:
		text += ", never"
	case v.RetryAfter > 0 && v.RetryAfter != v.BanLeft:
		text += fmt.Sprintf(", retry %s", v.RetryAfter)
	}
	if v.Delay > 0 {
		text += fmt.Sprintf(", delay %s", v.Delay)
	}
	return text
}

// sayEach tells of each limit its rule and what is left: "login 0!, api 7"; a "!"
// is a refusal, and a "?" means that nothing was decided.
func sayEach(v *server.Verdict) string {
	var all []string
	for i := range v.Each {
		text := fmt.Sprintf("%s %d", v.Rules[i].Name, v.Each[i].Remaining)
		switch {
		case v.Each[i].Outcome == 0:
			text += "?"
		case !v.Each[i].Allowed:
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// step is a request of a story and what comes of it.
type step struct {
	after time.Duration // noon
	in    *rules.Input
	want  string // see say
	each  string // see sayEach; not looked at where empty
}

// tell plays a story on its own clock.
func tell(t *testing.T, s *server.Server, story []step) {
	t.Helper()
	for i, step := range story {
		v, err := s.Decide(context.Background(), step.in, noon.Add(step.after))
		if got := say(&v, err); got != step.want {
			t.Errorf("step %d, after %s:\n got %s\nwant %s", i, step.after, got, step.want)
		}
		if got := sayEach(&v); step.each != "" && got != step.each {
			t.Errorf("step %d, after %s: of each\n got %s\nwant %s", i, step.after, got, step.each)
		}
	}
}
