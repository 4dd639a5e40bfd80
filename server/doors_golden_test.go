package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/internal/rulestest"
)

const (
	goldenDoors    = "testdata/doors.golden"
	goldenRequests = 50               // in each part
	goldenProbe    = 10 * time.Minute // from when on a breaker probes; longer than a store is away
	allCalls       = -1               // for goldenHistory.fails
)

// TestDoorsGolden sends 400 requests through all doors, and compares every word that comes of them with
// testdata/doors.golden: answers, lines of the log and the access log, spans, metrics, an explanation, a
// preview and a simulation. It is for changes that move code and change no word.
//
// A part of the file has a line of settings in a comment, the rules, and after "-- envoy" a file of Envoy's
// form. Under "> number, pause, door" are a request, its answer, and the lines of the logs. What is at random is
// written as *, or as the number of the request that made it.
//
// The requests are those of package rulestest, so a change of its grammar changes the file, too.
func TestDoorsGolden(t *testing.T) {
	all := &goldenRun{upstream: upstream(t, answersUsage), came: map[string]int{}, told: map[string]bool{}}
	before := map[string]golden.Part{}
	for _, p := range golden.Read(t, goldenDoors) {
		before[p.Given] = p
	}
	golden.Run(t, goldenDoors, func(t *testing.T, given string) (out string) {
		all.parts++
		synctest.Test(t, func(t *testing.T) { out = all.play(t, given) })
		if golden.Updates() {
			return out
		}
		p := before[given]
		firstDifference(t, p.Title, out, p.Want)
		return p.Want // it was compared
	})
	n := 0
	for _, times := range all.came {
		n += times
	}
	t.Logf("%d requests: %v", n, all.came)
	if n != 400 {
		t.Errorf("%d requests, want 400", n)
	}
	for _, door := range strings.Fields(decidingDoors + " " + endingDoors + " shadow explain malformed ambiguous ban lift override") {
		if all.came[door] == 0 {
			t.Errorf("no request came by %s", door)
		}
	}
}

// answersUsage is an upstream that says what some requests did cost, does not know others, and has the status
// of the query.
func answersUsage(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/x":
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"total_tokens":7}}`)
		return
	case "/other":
		r.URL.RawQuery = "status=404"
	}
	pass(w, r)
}

// goldenRun is what all parts have in common.
type goldenRun struct {
	upstream *url.URL
	parts    uint64
	came     map[string]int  // requests, by door
	told     map[string]bool // what metrics are
}

// goldenHistory is a kindHistory that is written down.
type goldenHistory struct {
	*goldenRun
	*kindHistory
	out     strings.Builder
	options string
	calls   *limittest.Faulty
	fails   atomic.Int64      // the call of the store that fails; 0: none
	n       int               // requests
	running []string          // names of holds
	names   map[string]string // of what is at random: holds, and the IDs of changes
}

// play sends the requests of a part, and returns what came of them.
func (all *goldenRun) play(t *testing.T, given string) string {
	file, envoy, _ := strings.Cut(given, "-- envoy\n")
	options, _, _ := strings.Cut(file, "\n")
	random := rand.New(rand.NewPCG(all.parts, 2))
	g := &goldenHistory{goldenRun: all, options: options, names: map[string]string{}, kindHistory: &kindHistory{random: random}}
	g.calls = &limittest.Faulty{Store: new(stint.Memory), Fault: func(call int) (f limittest.Fault) {
		if fails := g.fails.Load(); fails == allCalls || fails == int64(call) {
			f.Err = limittest.ErrFault
		}
		return f
	}}
	envoy = cmp.Or(envoy, "domain: shop\n")
	g.scenario = rulestest.DrawSteps(all.parts, file, envoy)
	for more := all.parts + 1000; len(g.scenario.Steps) < 3*goldenRequests; more += 1000 {
		g.scenario.Steps = append(g.scenario.Steps, rulestest.DrawSteps(more, file, envoy).Steps...)
	}
	g.doorsOfKinds = &doorsOfKinds{random: g.random, violates: true, short: true}
	g.start(t, all.upstream, g.set)
	start := time.Now()
	for i := range g.scenario.Steps {
		if g.n < goldenRequests {
			g.step(i)
		}
	}
	time.Sleep(2 * time.Second) // lines that count others have come
	synctest.Wait()
	g.write("at the end", &seen{asked: "/v1/rules/preview", raw: rawRecorded(g.admin("/v1/rules/preview", checkText("rules: []")))})
	g.simulate(t, start)
	time.Sleep(10 * time.Minute) // what the store did not take is tried again
	synctest.Wait()
	g.metrics()
	return g.out.String()
}

// call names an ID or a hold, if there is one.
func (g *goldenHistory) call(random, kind string) {
	if random != "" && g.names[random] == "" {
		g.names[random] = fmt.Sprintf("(%s %d)", kind, g.n+1)
	}
}

func (g *goldenHistory) has(option string) bool { return strings.Contains(g.options, option) }

// set changes what the server is made of.
func (g *goldenHistory) set(c *server.Config) {
	level := slog.LevelInfo
	if g.has("debug lines") {
		level = slog.LevelDebug
	}
	untimed := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	c.Log, c.AccessLog = slog.New(slog.NewJSONHandler(&g.log, untimed)), slog.New(slog.NewJSONHandler(&g.access, untimed))
	c.Limiter, c.Settings.MaxDelay = stint.NewLimiter(g.calls), 15*time.Second
	c.Settings.DegradedHeader, c.Settings.ViolationsHeader = g.has("headers"), g.has("headers")
	c.Settings.HashKeys = g.has("hashes")
	c.Settings.Breaker.Wait, c.Settings.Breaker.MaxWait = goldenProbe, goldenProbe
	if g.has("a store of which calls fail") {
		c.Settings.Breaker.Failures = -1
	}
	if g.has("few lines") {
		c.Settings.Log.Refusals = 1
	}
	if g.has("an instance limit") {
		c.Settings.Instance.Limit = stint.MustLimit("3 per 10s fixed_window")
	}
}

// step makes the request of a step, and writes down what comes of it.
func (g *goldenHistory) step(i int) {
	step := &g.scenario.Steps[i]
	if step.Do == rulestest.Hold && !g.has("holds") && g.random.IntN(3) > 0 {
		step.Do = rulestest.Check // which has more doors
	}
	if !g.has("pauses") {
		step.After = min(step.After, time.Second)
	}
	time.Sleep(step.After)
	synctest.Wait()
	g.spans.Reset()
	g.fail()
	door, saw := g.ask(step, i)
	synctest.Wait()
	if g.fails.Load() > 0 {
		g.fails.Store(0) // what is tried again comes at no fixed time
	}
	if saw.asked == "" {
		return // it settles what was not held
	}
	g.n++
	g.came[door]++
	g.write(fmt.Sprintf("%d after %s by %s", g.n, step.After, door), saw)
}

// fail makes the store fail. Calls for shadow rules and probes come at no fixed time, so one call fails only
// where there are neither.
func (g *goldenHistory) fail() {
	switch {
	case g.has("a store of which calls fail"):
		if g.random.IntN(2) == 0 {
			g.fails.Store(int64(g.calls.Calls() + 1 + max(0, g.random.IntN(4)-1)))
		}
	case !g.has("a store that is away") || g.random.IntN(8) > 0:
	case g.fails.Load() == 0:
		g.fails.Store(allCalls)
	default:
		g.fails.Store(0)
		time.Sleep(2 * goldenProbe) // the breaker closes
		synctest.Wait()
	}
}

// ask asks by a door that a step fits, also by those that doorsOfKinds does not have.
func (g *goldenHistory) ask(step *rulestest.Step, i int) (string, *seen) {
	admin := func(path, body string) *seen {
		w := g.admin(path, body)
		var changed struct{ ID string }
		g.read(w, &changed)
		g.call(changed.ID, "change")
		return &seen{asked: body, raw: rawRecorded(w)}
	}
	if slices.Contains([]rulestest.Action{rulestest.Ban, rulestest.Lift, rulestest.Override}, step.Do) && g.random.IntN(3) > 0 {
		return "", new(seen) // requests are more important
	}
	switch step.Do {
	case rulestest.Ban:
		return "ban", admin("/v1/bans", step.Body)
	case rulestest.Lift:
		return "lift", admin("/v1/bans/lift", step.Body)
	case rulestest.Override:
		return "override", admin("/v1/overrides", step.Body)
	case rulestest.Charge:
		if g.random.IntN(4) == 0 {
			return g.ends("charge", "/v1/check", `{"charge":true,"client":"192.0.2.1","operation":"login","attrs":{"user":"u1","size":"x"}}`)
		}
	case rulestest.Check:
		switch g.random.IntN(14) {
		case 0:
			s, _ := g.asks("/v1/check?shadow=true", step.Body)
			return "shadow", s
		case 1:
			return "explain", admin("/v1/explain", step.Body)
		case 2:
			s, _ := g.asks(g.one("/v1/check", "/v1/check", "/v1/settle", "/v1/renew"), g.one(malformed...))
			return "malformed", s
		case 3:
			return "ambiguous", g.ambiguous()
		case 4, 5, 6: // the grammar settles too little, and nothing twice
			if len(g.running) == 0 {
				break
			}
			hold, cost := g.held[g.one(g.running...)], g.random.Int64N(9)
			if g.random.IntN(3) > 0 {
				return g.settle(hold, cost)
			}
			return g.ends("settle", "/v1/settle", fmt.Sprintf(`{"hold":%q,"costs":{"client1":%d}}`, hold, cost))
		}
	}
	door, saw := g.visit(g.kindHistory, step, i)
	if hold := g.held[step.Hold]; hold != "" && step.Do == rulestest.Hold {
		g.call(hold, "hold")
		g.running = append(g.running, step.Hold)
	}
	return door, saw
}

// ambiguous sends a request that servers read in different ways, or about which too little is known.
func (g *goldenHistory) ambiguous() *seen {
	target := g.one("/v1/x", "/v1/..;/x", "/v1%2Fx", "/v1/x?a=1&a=2")
	r := httptest.NewRequest("GET", target, nil)
	r.RemoteAddr, r.Header["X-Size"] = "192.0.2.1:1", []string{"1", "2"}
	door, to := "gateway", g.gateway
	switch g.random.IntN(3) {
	case 0:
		door, to = "wrap", g.wrapped
	case 1:
		door, to = "authorize", g.api
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.RemoteAddr = "/v1/authorize", "", "", g.one("10.0.0.1:1", "10.0.0.2:1")
		r.RequestURI = r.URL.Path
		r.Header.Set("X-Original-Uri", target)
		r.Header.Set(g.one("X-Original-Method", "X-Forwarded-For"), "GET")
	}
	w := httptest.NewRecorder()
	to.ServeHTTP(final{w}, r)
	return &seen{asked: fmt.Sprintln(door, target, r.RemoteAddr, r.Header), raw: rawRecorded(w)}
}

// simulate simulates the first events, at a server of its own.
func (g *goldenHistory) simulate(t *testing.T, at time.Time) {
	other := &kindHistory{random: g.random, scenario: g.scenario, doorsOfKinds: &doorsOfKinds{random: g.random}}
	other.start(t, g.upstream, func(c *server.Config) { c.Limiter = nil })
	var events, out bytes.Buffer
	for i := range g.scenario.Steps[:4] {
		step := &g.scenario.Steps[i]
		at = at.Add(step.After)
		fmt.Fprintln(&events, step.Event(at))
	}
	err := other.s.Simulate(t.Context(), &events, &out)
	fmt.Fprintf(&g.out, "> simulated: %v\n%s", err, masked(out.String()))
}

// metrics writes the metrics without times. What each is comes where it is first, and series of zero where a
// part asks for them.
func (g *goldenHistory) metrics() {
	w := httptest.NewRecorder()
	g.api.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	fmt.Fprintln(&g.out, "> metrics")
	for line := range strings.Lines(w.Body.String()) {
		if aTimingSeries.MatchString(line) || g.told[line] || strings.HasSuffix(line, " 0\n") && !g.has("all metrics") {
			continue
		}
		if g.has("a store") && strings.HasPrefix(line, "stint_store_seconds_count ") {
			line = "stint_store_seconds_count *\n" // how often is at random
		}
		g.out.WriteString(masked(line))
		g.told[line] = line[0] == '#'
	}
}

var aTimingSeries = regexp.MustCompile(`^(# \w+ )?(go_|process_)|^\w+_(bucket|sum)\b|^stint_build_info`)

// write writes what a request led to.
func (g *goldenHistory) write(title string, s *seen) {
	lines := slices.Collect(strings.Lines(g.log.taken()))
	if g.has("few lines") || g.has("a store that is away") { // timers and a breaker log in goroutines of their own
		slices.Sort(lines)
	}
	text := fmt.Sprintf("> %s: %s\n%s\n%s%s", title, strings.TrimSpace(s.asked), s.raw, strings.Join(lines, ""), g.access.taken())
	if g.has("spans") {
		text += spansText(g.spans.GetSpans())
	}
	if strings.Contains(text, "busy") { // when to come again is at random
		text = aRetry.ReplaceAllString(text, "$1*")
	}
	for random, name := range g.names {
		text = strings.ReplaceAll(text, random, name)
	}
	g.out.WriteString(masked(text))
}

func spansText(spans tracetest.SpanStubs) string {
	var b strings.Builder
	attributes := func(all []attribute.KeyValue) {
		for _, a := range all {
			fmt.Fprintf(&b, " %s=%s", a.Key, a.Value.String())
		}
		b.WriteByte('\n')
	}
	for _, span := range spans {
		fmt.Fprintf(&b, "span %s %s %s", span.Name, span.Status.Code, span.Status.Description)
		attributes(span.Attributes)
		for _, e := range span.Events {
			b.WriteString("  event " + e.Name)
			attributes(e.Attributes)
		}
	}
	return b.String()
}

var (
	aRetry = regexp.MustCompile(`(Retry-After: |"retry_after":|"bytes":|Retry after )\d+(?: seconds?\.)?`)
	masks  = []struct {
		what *regexp.Regexp
		by   string
	}{
		{regexp.MustCompile(`\b((?:decision_id|decision|stint\.decision\.id)"?[:=]"?)[0-9a-f]{16}\b`), "$1*"},
		{regexp.MustCompile(`127\.0\.0\.1:\d{4,5}`), "127.0.0.1:*"},
		{regexp.MustCompile(`(port=)\d{4,5}`), "$1*"},
		{regexp.MustCompile(`\bh:[0-9a-f]{16}\b`), "h:*"},
		{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "*"},
		// The rest makes the file shorter.
		{regexp.MustCompile(`"([a-z_0-9.]+)":`), "$1:"},
		{regexp.MustCompile(`_after_us:`), "_us:"},
		{regexp.MustCompile(`limit_text:`), "text:"},
		{regexp.MustCompile(`mode:"enforce"`), "enforced"},
		{regexp.MustCompile(`X-Ratelimit-`), "XR-"},
		{regexp.MustCompile(`\{level:"(\w+)",msg:`), "$1 {"},
	}
)

// masked is text without what is at random.
func masked(text string) string {
	for _, m := range masks {
		text = m.what.ReplaceAllString(text, m.by)
	}
	return text
}

// notShown are headers that say nothing about limits.
var notShown = []string{"Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Stint-Decision", "Vary", "X-Passed",
	"Content-Security-Policy", "Cross-Origin-Resource-Policy", "Referrer-Policy", "X-Content-Type-Options", "X-Frame-Options"}

func rawRecorded(w *httptest.ResponseRecorder) string {
	return rawAnswer(w.Code, w.Header(), w.Body.Bytes())
}

// rawAnswer is an answer in a line.
func rawAnswer(status int, h http.Header, body []byte) string {
	shown := h.Clone()
	for _, name := range notShown {
		shown.Del(name)
	}
	var b strings.Builder
	_ = shown.Write(&b) // in order
	return fmt.Sprintf("%d %s%s", status, strings.ReplaceAll(b.String(), "\r\n", "; "), bytes.TrimSpace(body))
}

// rawMessage is a message in a line, without the blanks that protojson puts anywhere.
func rawMessage(m proto.Message) string {
	text, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return err.Error()
	}
	return b.String()
}

// firstDifference reports which request differs first, and where.
func firstDifference(t *testing.T, part, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	begin := strings.LastIndexByte(got[:n], '\n') + 1
	request := strings.LastIndex("\n"+got[:begin], "\n> ")
	if end, _, _ := strings.Cut(got[begin:], "\n"); strings.HasPrefix(end, "> ") {
		request = begin
	}
	line := func(text string, from int) string { line, _, _ := strings.Cut(text[from:], "\n"); return line }
	from := max(begin, n-200) // lines are long
	t.Errorf("in the part %q, it differs first at the request\n%s\nfrom byte %d of a line on:\n got %s\nwant %s\nIf it should: go test ./server -run TestDoorsGolden -update, and read the diff.",
		part, line(got, max(0, request)), from-begin, line(got, from), line(want, from))
}
