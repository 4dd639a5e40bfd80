package main

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Tokens that an instance knows, where it wants one.
const (
	adminToken  = "geheim-admin-0123456789"
	readerToken = "geheim-reader-0123456789"
)

// home is this package's directory, however tests change theirs.
var home, _ = filepath.Abs(".")

// noon is the time of the fleet while an instance of a test answers calls.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// shelf is server.Documents in memory.
type shelf struct {
	away atomic.Bool // every call fails

	mu       sync.Mutex
	versions map[string][][]byte
	race     func() // called once, before the next Write of rules; nil: nothing is

	reports reported
}

var errAway = errors.New("connection refused \x1b[2J")

func (s *shelf) lock() (unlock func(), err error) {
	if s.away.Load() {
		return nil, errAway
	}
	s.mu.Lock()
	return s.mu.Unlock, nil
}

func (s *shelf) Now(context.Context) (time.Time, error) {
	if s.away.Load() {
		return time.Time{}, errAway
	}
	return noon, nil
}

func (s *shelf) Newest(_ context.Context, name string) (int64, string, error) {
	unlock, err := s.lock()
	if err != nil {
		return 0, "", err
	}
	defer unlock()
	all := s.versions[name]
	if len(all) == 0 {
		return 0, "", nil
	}
	return int64(len(all)), fmt.Sprintf("%x", sha1.Sum(all[len(all)-1])), nil
}

func (s *shelf) Read(_ context.Context, name string, number int64) ([]byte, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if all := s.versions[name]; number >= 1 && number <= int64(len(all)) {
		return all[number-1], nil
	}
	return nil, nil
}

func (s *shelf) Write(_ context.Context, name string, number int64, text []byte) (bool, error) {
	unlock, err := s.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if race := s.race; race != nil && name == "rules" {
		s.race = nil
		race()
	}
	if number != int64(len(s.versions[name]))+1 {
		return false, nil
	}
	s.versions[name] = append(s.versions[name], text)
	return true, nil
}

func (s *shelf) Watch(ctx context.Context, _ func()) { <-ctx.Done() }

// put adds a version, as another instance of the fleet has written it.
func (s *shelf) put(t *testing.T, name string, version map[string]any) {
	version["at"] = noon.Add(-time.Hour)
	text, err := json.Marshal(version)
	if err != nil {
		t.Fatal(err)
	}
	s.versions[name] = append(s.versions[name], text)
}

// pushedRules are the rules of version 2, as testdata/files/pulled.yaml holds them.
func pushedRules(t *testing.T) string {
	data, err := os.ReadFile(filepath.Join(home, "testdata/files/pulled.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "\n")
	return text
}

// controls are what was changed at run time where an instance is not new. Reasons with what
// a terminal would obey cannot be given to an instance, but may stand in its store.
func controls(silences bool) map[string]any {
	note := func(id, author, reason string, minutes int) rules.Note {
		n := rules.Note{ID: id, Author: author, Reason: reason, At: noon.Add(-time.Hour)}
		if minutes > 0 {
			n.Until = noon.Add(time.Duration(minutes) * time.Minute)
		}
		return n
	}
	pair, _ := rules.JoinKey("ann", "/v1\x1b[2J")
	all := rules.Controls{
		Overrides: []rules.Override{
			{Note: note("o1", "bob", "the fair", 90), Rule: "export", Key: "ann", Times: 10},
			{Note: note("o2", "", "", 0), Rule: "export", Tier: "silver", Limits: []string{"50 per 1m", "900 per 1h"}},
		},
		Safelist:  []rules.Listed{{Note: note("s3", "bob", "", 0), Network: "10.0.0.0/8"}},
		Blocklist: []rules.Listed{{Note: note("b4", "", "", 1), Match: `request.path == "/x"`}},
		Bans: []rules.Ban{
			{Note: note("b5", "bob", "tries \x1b[31m passwords", 90), Rule: "login", Key: "192.0.2.7"},
			{Note: note("b6", "", "", 0), Rule: "path", Key: pair},
			{Note: note("b7", "", "", 0), Network: "198.51.100.0/24"},
		},
	}
	if silences {
		all.Silences = []rules.Silence{
			{Note: note("q1", "bob", "the fair", 90), Alert: "blocked"},
			{Note: note("q2", "bob", "", 90), Alert: "blocket"},
		}
	}
	return map[string]any{"author": "bob", "controls": all}
}

// running is an instance that answers calls of its admin API.
type running struct {
	url   string
	admin http.Handler
	used  map[string]bool // patterns of the calls so far
}

// start starts an instance of a fleet, in a state: "empty" has no store and nothing was
// changed; "file" takes its rules from its file; "full" has rules, controls, bans and counts;
// so have "busy", which has decided requests, "race", where another pushes rules just before, "evil", whose rules hold what no
// file may, "away", whose store has gone, "closed", which wants a token,
// "held", in which requests in flight hold units, and "alerts", which has alerts, silences and a webhook that nobody answers.
func start(t *testing.T, state string, used map[string]bool) *running {
	t.Helper()
	text := pushedRules(t)
	if state == "alerts" {
		text += "alerts:\n  - {name: blocked, when: block_rate() > 0.1, for: 5m, severity: critical}\n  - {name: near, when: usage > 80% of login}\n"
	}
	if state == "held" {
		text += "  - {name: tokens, match: operation == \"ask\", key: attrs.user, cost: cost, limits: [60 per 1h, 1000 per 1d fixed_window hold 20h, 3 in_flight hold 20h]}\n"
	}
	set, err := rules.Parse("stint.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	documents := &shelf{versions: map[string][][]byte{}}
	c := server.Config{Settings: config.Default(), Rules: set, Documents: documents, Log: slog.New(slog.DiscardHandler), Program: "stint v1.2.3"}
	c.Settings.Memory = 1 << 30
	if state == "alerts" {
		c.Settings.Webhooks = []config.Webhook{{Name: "ops", Kind: config.JSON, URL: "http://127.0.0.1:1/secret", Timeout: time.Second}}
	}
	if state != "file" {
		c.Settings.RulesFrom = config.FromFleet
	}
	if state == "closed" {
		t.Setenv("STINT_TEST_ADMIN", adminToken)
		t.Setenv("STINT_TEST_READER", readerToken)
		c.Settings.Admin.Tokens = []config.Token{{Name: "ops", Scope: config.WriteScope, Env: "STINT_TEST_ADMIN"}, {Name: "looker", Scope: config.ReadScope, Env: "STINT_TEST_READER"}}
	}
	if state != "empty" && state != "file" {
		c.Settings.Store, c.Settings.Namespace = "redis://127.0.0.1", "shop"
		banned := "203.0.113.9"
		if state == "evil" {
			banned = "\u009b2J\u202e" // which is no address, but may stand in the store
		}
		c.Limiter = stint.NewLimiter(&limittest.Faulty{Store: filled(t, set, banned), Fault: func(int) (f limittest.Fault) {
			if documents.away.Load() {
				f.Err = errAway
			}
			return f
		}})
		if state == "held" {
			store := filled(t, set, banned)
			holding(t, store, set.Rules[len(set.Rules)-1])
			c.Limiter = stint.NewLimiter(store)
		}
		documents.put(t, "rules", map[string]any{"author": "bob", "note": "first", "text": strings.Replace(text, "5 per", "4 per", 1)})
		if state == "evil" {
			text = "rules: []\x1b[2J\n"
		}
		documents.put(t, "rules", map[string]any{"author": "bob", "note": "more \x1b[31m for all", "text": text})
		documents.put(t, "controls", controls(state == "alerts"))
		audited(t, documents)
	}
	if state == "race" {
		documents.race = func() {
			documents.put(t, "rules", map[string]any{"author": "bob", "note": "mine \x1b]0;title\a", "text": "rules: []\n"})
		}
	}
	s := server.New(c)
	t.Cleanup(s.Close)
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	s.Follow(t.Context())
	documents.away.Store(state == "away")
	if state == "busy" {
		for range 6 {
			in := &rules.Input{Client: netip.MustParseAddr("192.0.2.77"), Cost: 1, Operation: "login", Request: &rules.Request{Method: "POST", Path: "/login\x1b[2J", Host: "shop.example"}}
			if _, err := s.Decide(t.Context(), in, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := &running{admin: s.Admin(), used: used}
	var mu sync.Mutex // a stream may end after the next call
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.admin.ServeHTTP(w, q)
		mu.Lock()
		defer mu.Unlock()
		used[q.Pattern] = true
	}))
	t.Cleanup(listening.Close)
	r.url = listening.URL
	return r
}

// filled is a store in which keys have used something, and one is banned by a penalty.
func filled(t *testing.T, set *rules.Set, banned string) stint.Store {
	t.Helper()
	store := &stint.Memory{}
	limiter := stint.NewLimiter(store)
	login := set.Rules[0]
	for key, violations := range map[string]int{"203.0.113.8": 1, banned: 2, "192.0.2.7": 1} {
		for range violations {
			if _, err := limiter.Violate(t.Context(), key, login.Penalty); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, key := range []string{"192.0.2.1", "192.0.2.7"} {
		for range 4 {
			for _, limit := range login.Limits {
				if _, err := limiter.Allow(t.Context(), key, limit); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return store
}

// holding lets three requests hold units of ann's by rule. Their identities say that they have
// begun later than now, so that their age is 0 whenever the test runs.
func holding(t *testing.T, store stint.Store, rule *rules.Rule) {
	t.Helper()
	for i, cost := range []int64{300, 250, 40} {
		r := stint.Request{Hold: stint.HoldID{0: 0xff, 11: byte(i + 1)}}
		for _, l := range rule.Limits {
			a := stint.Ask{Key: "ann", Limit: l}
			if rules.IsBudget(l) {
				a.Cost = cost
			}
			r.Asks = append(r.Asks, a)
		}
		if d, err := store.Take(t.Context(), &r, nil); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
}

var (
	fraction = regexp.MustCompile(`(2026-03-01T\d\d:\d\d:\d\d)\.\d+Z`)
	anyTime  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	charged  = regexp.MustCompile(`\d+m?s ago *`)
	waits    = regexp.MustCompile(`(allow|unused) in [\dhms.]+`)
	duration = regexp.MustCompile(`"(\w+_us)":\d+`)
	ahead    = regexp.MustCompile(`(\d+h)?(\d+m)?\d+s AHEAD`)
	lineTime = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  `)
	entryID  = regexp.MustCompile(`"id":"([a-z2-7]{10})"`)
)

// settle replaces what differs from one run to the next: the address of the instance, the
// IDs of entries that were just made, the present, and durations in JSON.
func (r *running) settle(text string) string {
	_, port, _ := strings.Cut(strings.TrimPrefix(r.url, "http://"), ":")
	text = strings.NewReplacer(r.url, "ADMIN", ":"+port, ":PORT").Replace(text)
	for _, path := range []string{"/v1/overrides", "/v1/bans", "/v1/lists/safelist", "/v1/lists/blocklist", "/v1/silences"} {
		w := httptest.NewRecorder()
		r.admin.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
		for _, id := range entryID.FindAllStringSubmatch(w.Body.String(), -1) {
			text = strings.ReplaceAll(text, id[1], "new")
		}
	}
	text = fraction.ReplaceAllString(text, "${1}Z")
	text = anyTime.ReplaceAllStringFunc(text, func(at string) string {
		if when, err := time.Parse(time.RFC3339, at); err == nil && time.Since(when).Abs() < time.Hour {
			return "NOW"
		}
		return at
	})
	text = ahead.ReplaceAllString(text, "1h AHEAD")
	text = lineTime.ReplaceAllString(text, "hh:mm:ss  ")
	text = waits.ReplaceAllString(text, "$1 in 1h")
	text = charged.ReplaceAllStringFunc(text, func(cell string) string { return fmt.Sprintf("%-*s", len(cell), "0s ago") })
	return duration.ReplaceAllString(text, `"$1":0`)
}
