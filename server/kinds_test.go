package server_test

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/internal/rulestest"
)

// One word says what became of a request, at every place that says it and behind every door: the counter that
// grew, the live counts, the answer and its status, the spans, the access log, the log of refusals, the debug
// log, and Envoy's metadata. The few places with another spelling are in kindSpellings.
//
// The counter is what the others are compared with, because it tells all words apart.
func TestKinds(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 8
	}
	passes := upstream(t, pass)
	said := sayings{words: map[string]map[string]int{}, rows: map[*kindSpelling]bool{}}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(t, seed, passes, &said)
			for i := range h.scenario.Steps {
				h.step(i)
				if t.Failed() {
					t.Fatalf("at step %d of seed %d:\n%s", i, seed, h.scenario)
				}
			}
			h.end()
			if t.Failed() {
				t.Fatalf("at the end of seed %d:\n%s", seed, h.scenario)
			}
		})
		if t.Failed() {
			return
		}
	}
	said.missing(t, seeds >= 300)
}

// kindWords are the words. Charges and ends of holds have others: they decide nothing.
var kindWords = []string{"allowed", "unmatched", "safe", "limited", "warned", "banned", "blocked", "overloaded", "malformed", "undecided"}

// Parts of the rows of kindSpellings.
const (
	passingWords  = "allowed unmatched safe"
	refusingWords = "limited warned banned blocked"
	failingWords  = "overloaded malformed undecided"
	allKinds      = passingWords + " " + refusingWords + " " + failingWords + " " + unreadWord
	endingWords   = "charged settled renewed unknown"

	// unreadWord is a check that cannot be read. Where no row has this word, it is malformed.
	unreadWord = "unread"

	proxyDoors    = "gateway preflight wrap wrap-grpc"
	decidingDoors = "check list hold authorize ext_authz service quota decide " + proxyDoors
	endingDoors   = "charge charges settle settles renew renews"
)

// kindPlaces are what is compared. A span is that of the decision, and request that of the request.
var kindPlaces = []string{"counter", "live", "answer", "status", "span", "request", "access", "refused", "debug", "metadata"}

// kindSpelling is how places say some words at some doors; empty: they do not say them.
type kindSpelling struct{ places, doors, words, as, why string }

// kindSpellings are the places that say something else than the counter. The first row that fits counts. Each
// must be needed.
var kindSpellings = []*kindSpelling{
	{"request", "charge settle renew", "malformed", "malformed", "docs/traces.md: a request that cannot be read has its outcome"},
	{"span", "check", unreadWord, "", "nothing is decided: only the request's span says it"},

	{"answer", "check list hold", "unmatched safe", "allowed", "docs/check-api.yaml: Decided.outcome; the member list has the safelist"},
	{"answer", "check list hold authorize ext_authz gateway wrap " + endingDoors, "malformed undecided unread", "", "docs/check-api.yaml: Problem.outcome is missing: it could not be decided"},
	{"answer", "authorize ext_authz " + proxyDoors, passingWords, "", "the upstream answers"},
	{"answer", "preflight", allKinds, "", "docs/access.md: preflights are answered with 204, and nothing else"},
	{"answer", "wrap-grpc", allKinds, "", "docs/grpc.md: the answer is a status"},
	{"answer", "service", allKinds, "", "the protocol is Envoy's"},
	{"answer", "quota decide", "unmatched safe", "allowed", "Verdict: List, Rule"},
	{"answer", "quota decide", "blocked", "undecided", "Verdict: Decision is zero, and List says it"},
	{"answer", "quota decide", failingWords, "", "Server.Decide: the error says it"},

	{"live", decidingDoors + " " + endingDoors, "malformed unread", "", "live.Outcomes: Counts.Store has them as BadRequests"},
	{"counter live", endingDoors, endingWords + " undecided", "", "docs/check-api.yaml: a charge is not a decision"},

	{"span", "list", passingWords, "passed", "docs/traces.md: only stint.passed tells of those"},
	{"request", "list charges", allKinds + " " + endingWords, "", "docs/traces.md: the decision's span has all"},
	{"span request debug access refused metadata", endingDoors, endingWords + " malformed undecided", "", "nothing is decided"},

	{"access", "preflight", passingWords, "preflight", "docs/logs.md: it passed the rules, and goes no further"},
	{"access", "check list hold authorize ext_authz service quota decide wrap wrap-grpc", allKinds, "", "docs/logs.md: it is the gateway's"},
	{"refused", decidingDoors, passingWords + " " + failingWords + " " + unreadWord, "", "docs/logs.md: refusals by rules have lines, and overload has its own"},
	{"debug", "check list", unreadWord, "", "nothing is decided"},
	{"metadata", "ext_authz", "unmatched " + failingWords, "", "decisionMetadata: no rule and no list applied"},
	{"metadata", "ext_authz", "safe", "allowed", "as in the answer to a check: the field list has the safelist"},
	{"metadata", "check list hold authorize service quota decide " + proxyDoors, allKinds, "", "it is ext_authz's"},
}

// sayings are the words that occurred at each door, and the kindSpellings that were used.
type sayings struct {
	words map[string]map[string]int // by door, word
	rows  map[*kindSpelling]bool
}

// at is how a place says a word at a door.
func (s *sayings) at(place, door, word string) string {
	has := func(list, one string) bool { return slices.Contains(strings.Fields(list), one) }
	for _, row := range kindSpellings {
		if has(row.places, place) && has(row.doors, door) && has(row.words, word) {
			s.rows[row] = true
			return row.as
		}
	}
	if word == unreadWord {
		return "malformed"
	}
	return word
}

// missing reports what did not occur: a word at no door and, if all is true, a spelling that nothing needs.
func (s *sayings) missing(t *testing.T, all bool) {
	occurred := map[string]bool{}
	for _, door := range slices.Sorted(maps.Keys(s.words)) {
		var not []string
		for word := range s.words[door] {
			occurred[word] = true
		}
		for _, word := range kindWords {
			if s.words[door][word] == 0 {
				not = append(not, word)
			}
		}
		t.Logf("%s: %v, never: %v", door, s.words[door], not)
	}
	for _, word := range kindWords {
		if !occurred[word] {
			t.Errorf("no request was %s", word)
		}
	}
	for _, door := range strings.Fields(decidingDoors + " " + endingDoors) {
		if all && s.words[door] == nil {
			t.Errorf("no request came by %s", door)
		}
	}
	for _, row := range kindSpellings {
		if all && !s.rows[row] {
			t.Errorf("nothing needs this spelling of %s at %s, %s: %q, because of %s", row.words, row.doors, row.places, row.as, row.why)
		}
	}
}

// kindHistory is a scenario at a server with all doors.
type kindHistory struct {
	*play
	*doorsOfKinds
	random   *rand.Rand
	scenario *rulestest.Scenario
	said     *sayings
	down     atomic.Bool // the store
	faulty   bool        // the store may be
	few      bool        // most refusals have no line
	grown    wordCounts
	lines    wordCounts // refusals by the log, of all steps
	all      wordCounts // what the counters said, of all steps
}

// wordCounts has numbers by word.
type wordCounts map[string]int

// newHistory adds to what rulestest draws: lists that HTTP requests can be on, a limit of the instance, and a
// store that fails now and then, or that is full.
func newHistory(t *testing.T, seed uint64, upstream *url.URL, said *sayings) *kindHistory {
	h := &kindHistory{random: rand.New(rand.NewPCG(seed, 1)), scenario: rulestest.Draw(seed), said: said, few: seed%4 == 3}
	text := func(list, entries string) {
		if before := list + ": ["; strings.Contains(h.scenario.Rules, before) {
			h.scenario.Rules = strings.Replace(h.scenario.Rules, before, before+entries+", ", 1)
		} else {
			h.scenario.Rules = before + entries + "]\n" + h.scenario.Rules
		}
	}
	text("blocklist", `'request.path == "/blocked"', 'attrs.user == "blocked"'`)
	text("safelist", `'request.path == "/safe"', 'attrs.user == "safe"'`)
	h.scenario.Rules = "trusted_proxies: [10.0.0.1]\n" + h.scenario.Rules + `
  - {name: headed, match: '"x-size" in request.headers', key: '"all"', cost: 'int(request.headers["x-size"])', limits: [1000000 per 1s]}
  - {name: sized, match: 'has(attrs.size)', key: '"all"', cost: int(attrs.size), limits: [1000000 per 1s]}
`
	if seed%3 == 0 {
		h.scenario.Rules += "  - {name: slots, match: has(attrs.user), key: attrs.user, limits: [50 in_flight]}\n" +
			`  - {name: origins, match: 'request.path == "/v1/x"', key: client.ip, limits: [2 per 1m], preflights: true}
`
	}
	if seed%5 == 2 {
		h.scenario.Rules += "  - {name: denied, key: client.ip, limits: [1000 per 1s], on_store_error: deny}\n"
	}
	h.doorsOfKinds = &doorsOfKinds{random: h.random, violates: !h.few}
	h.start(t, upstream, func(c *server.Config) {
		if h.few {
			c.Settings.Log.Refusals = 1
		}
		if seed%2 == 1 {
			c.Settings.Instance.Limit = stint.MustLimit("9 per 10s fixed_window")
		}
		switch seed % 5 {
		case 2, 3:
			h.faulty = true
			c.Limiter = stint.NewLimiter(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (f limittest.Fault) {
				if h.down.Load() {
					f.Err = limittest.ErrFault
				}
				return f
			}})
		case 4:
			c.Limiter = stint.NewLimiter(&stint.Memory{MaxKeys: 4})
		}
	})
	return h
}

// start makes the server, and opens its doors.
func (h *kindHistory) start(t *testing.T, upstream *url.URL, change func(*server.Config)) {
	set, err := h.scenario.Set()
	if err != nil {
		t.Fatal(err)
	}
	h.spans, h.play = tracetest.NewInMemoryExporter(), &play{TB: t, held: map[string]string{}}
	h.s = newServer(t, "rules: []", everythingTo(upstream), withCORS(httplimit.CORS{Origins: []string{app}}), accessTo(&h.access), func(c *server.Config) {
		c.Rules, c.Settings.MaxDelay, c.Settings.Log.Refusals = set, 10_000*time.Hour, 1000
		c.Log = slog.New(slog.NewJSONHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.TracerProvider = sdk.NewTracerProvider(sdk.WithSyncer(h.spans))
	}, change)
	h.h = h.s.Admin()
	h.open(h.s)
	h.grown, h.lines, h.all = h.counters(h.s), wordCounts{}, wordCounts{}
}

// step carries out a step of the scenario, by a door that it fits.
func (h *kindHistory) step(i int) {
	step := &h.scenario.Steps[i]
	time.Sleep(step.After)
	synctest.Wait() // for what the last step began
	h.readMore()
	h.spans.Reset()
	if h.faulty && h.random.IntN(8) == 0 {
		h.down.Store(!h.down.Load())
	}
	switch step.Do {
	case rulestest.Ban, rulestest.Lift, rulestest.Override:
		h.admin(map[rulestest.Action]string{rulestest.Ban: "/v1/bans", rulestest.Lift: "/v1/bans/lift", rulestest.Override: "/v1/overrides"}[step.Do], step.Body)
		return // it may fail with the store
	}
	var door string
	saw := h.look(func() (s *seen) {
		door, s = h.visit(h, step, i)
		return s
	})
	if saw.asked != "" {
		h.compare(door, saw)
	}
}

// look collects what all places say of a request, beside its answer.
func (h *kindHistory) look(ask func() *seen) *seen {
	before := h.s.ReadCounters()
	saw := ask()
	synctest.Wait()
	now := h.counters(h.s)
	saw.add("counter", now.since(h.grown)...)
	h.grown = now
	saw.add("live", liveSince(before, h.s.ReadCounters())...)
	saw.readSpans(h.spans.GetSpans())
	saw.readLog(h.TB, h.log.taken())
	saw.readAccess(h.TB, h.access.taken())
	return saw
}

// compare holds all that was seen of a request, or of the checks of a list, to what the counters say.
func (h *kindHistory) compare(door string, saw *seen) {
	words := slices.Sorted(slices.Values(saw.at["counter"]))
	if slices.Contains(strings.Fields(endingDoors), door) {
		words = saw.ended
	}
	for range saw.unread {
		if at := slices.Index(words, "malformed"); at >= 0 {
			words[at] = unreadWord
		}
	}
	if h.said.words[door] == nil {
		h.said.words[door] = map[string]int{}
	}
	for _, word := range words {
		h.said.words[door][word]++
		h.all[word]++
	}
	for _, word := range saw.at["refused"] {
		h.lines[word]++
	}
	for _, place := range kindPlaces {
		got, want := slices.Sorted(slices.Values(saw.at[place])), h.want(place, door, words)
		switch {
		case place == "refused" && h.few: // end compares
		case place == "metadata" && saw.bare && slices.Equal(words, []string{"allowed"}): // no rule decided
		case !slices.Equal(got, want):
			h.Errorf("by %s, the counters say %v, but the place %s says %q, want %q\nasked: %s\nseen: %s", door, words, place, got, want, saw.asked, saw)
		}
	}
	for id, all := range saw.byID {
		if len(slices.Compact(slices.Sorted(maps.Values(all)))) > 1 {
			h.Errorf("by %s, of the decision %s: %v\nasked: %s", door, id, all, saw.asked)
		}
	}
	for _, word := range saw.degraded {
		if !slices.Contains(words, word) {
			h.Errorf("by %s, the counters say %v, but a decision without the store was %s\nasked: %s", door, words, word, saw.asked)
		}
	}
	if !slices.Equal(saw.violations, saw.violate) {
		h.Errorf("by %s, a response is a violation, %q by the log, %q by spans\nasked: %s", door, saw.violations, saw.violate, saw.asked)
	}
}

// want are the words of requests at a place, sorted.
func (h *kindHistory) want(place, door string, words []string) []string {
	var want []string
	for _, word := range words {
		as := ""
		if place == "status" {
			as = statusAt(door, word)
		} else {
			as = h.said.at(place, door, word)
		}
		if as != "" {
			want = append(want, as)
		}
	}
	slices.Sort(want)
	return want
}

// end compares what is told of the whole history.
func (h *kindHistory) end() {
	time.Sleep(2 * time.Second) // lines that count others have come, and live counts are read
	synctest.Wait()
	h.readMore()
	total := h.s.FleetTotals().Outcomes
	for i, word := range live.Outcomes {
		if got, want := int(total[i]), h.grown[word]; got != want {
			h.Errorf("live totals: %d %s, want %d", got, word, want)
		}
	}
	for _, word := range strings.Fields(refusingWords) {
		if h.lines[word] != h.all[word] {
			h.Errorf("the log has %d %s, the counters %d", h.lines[word], word, h.all[word])
		}
	}
}

// readMore reads the lines that count refusals without a line. They come a second later.
func (h *kindHistory) readMore() {
	var saw seen
	saw.readLog(h.TB, h.log.taken())
	for word, n := range saw.more {
		h.lines[word] += n
	}
}

// since are the words whose counters have grown since before, as often as they have.
func (c wordCounts) since(before wordCounts) []string {
	var words []string
	for word, n := range c {
		for range n - before[word] {
			words = append(words, word)
		}
	}
	return words
}

// liveSince is the same for live counts.
func liveSince(before, now *live.Counts) []string {
	sum := func(c *live.Counts) wordCounts {
		all := wordCounts{}
		for i, word := range live.Outcomes {
			all[word] = int(c.Outcomes[i])
			for _, r := range c.Rules {
				if i <= live.Banned {
					all[word] += int(r[i])
				}
			}
		}
		return all
	}
	return sum(now).since(sum(before))
}

// pass is an upstream, or a handler, that answers with the status of the query. Its connections end, because
// time would stand still for one that waits.
func pass(w http.ResponseWriter, r *http.Request) {
	status, _ := strconv.Atoi(r.URL.Query().Get("status"))
	w.Header().Set("Connection", "close")
	w.Header().Set("X-Passed", "yes")
	w.WriteHeader(cmp.Or(status, http.StatusOK))
	_, _ = io.WriteString(w, "passed")
}

// A preview calls recent requests by the words of the answers that they got.
func TestKindsOfPreviews(t *testing.T) {
	seeds, refused := uint64(150), 0
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			scenario := rulestest.Draw(seed)
			p := newPlay(t, scenario)
			said := map[time.Time]string{} // answers, by instant
			for i := range scenario.Steps {
				if step := &scenario.Steps[i]; step.Do == rulestest.Check {
					time.Sleep(min(time.Millisecond+step.After, 2*time.Second))
					var answer struct{ Outcome string }
					p.read(check(p.s, step.Body), &answer)
					said[time.Now().UTC()] = answer.Outcome
				}
			}
			var preview adminapi.Preview
			p.read(p.admin("/v1/rules/preview", checkText("rules: []")), &preview)
			for _, c := range preview.Sample {
				if refused++; c.Now != said[c.At] || c.Then != "allowed" {
					t.Errorf("seed %d: the answer was %s, and previewed %s, then %s\n%s", seed, said[c.At], c.Now, c.Then, scenario)
				}
			}
		})
	}
	if refused == 0 {
		t.Error("no preview shows a request")
	}
}

func (s *seen) String() string {
	var all []string
	for _, place := range slices.Sorted(maps.Keys(s.at)) {
		all = append(all, fmt.Sprintf("%s %q", place, s.at[place]))
	}
	return strings.Join(all, ", ")
}
