package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stintdev/stint/server"
)

// seen is what the places say of one request, or of the checks of a list.
type seen struct {
	asked      string
	raw        string                       // the answer, as TestDoorsGolden has it
	at         map[string][]string          // words, by place
	byID       map[string]map[string]string // words, by the decision's ID and place
	ended      []string                     // words of charges and of ends of holds, by status and answer
	degraded   []string                     // words of decisions without the store
	violations []string                     // words of responses that count as violations, in the log
	violate    []string                     // the same in spans
	more       wordCounts                   // refusals without a line
	bare       bool                         // Envoy gets no metadata with the permission
	unread     int                          // how many checks cannot be read
}

// add adds words that a place says.
func (s *seen) add(place string, words ...string) {
	if s.at == nil {
		s.at = map[string][]string{}
	}
	for _, word := range words {
		if word != "" {
			s.at[place] = append(s.at[place], word)
		}
	}
}

// identify records what a place says of the decision with an ID.
func (s *seen) identify(place, id, word string) {
	if id == "" || word == "" || word == "preflight" {
		return
	}
	if s.byID == nil {
		s.byID = map[string]map[string]string{}
	}
	if s.byID[id] == nil {
		s.byID[id] = map[string]string{}
	}
	s.byID[id][place] = word
}

// statusAt is the status of an answer at a door about a request of that kind.
func statusAt(door, word string) string {
	passed := slices.Contains(strings.Fields(passingWords+" "+endingWords), word)
	if door == "preflight" {
		return "204"
	}
	if passed {
		switch door {
		case "gateway", "wrap", "wrap-grpc", "quota", "decide":
			return "passed"
		case "service":
			return "OK"
		}
		return "200"
	}
	of := map[string]struct{ http, grpc, service, err string }{
		"limited":    {"429", "8", "OVER_LIMIT", "refused"},
		"warned":     {"429", "8", "OVER_LIMIT", "refused"},
		"banned":     {"429", "8", "OVER_LIMIT", "refused"},
		"blocked":    {"403", "7", "OVER_LIMIT", "refused"},
		"unread":     {"400", "3", "InvalidArgument", "malformed"},
		"malformed":  {"400", "3", "InvalidArgument", "malformed"},
		"overloaded": {"503", "14", "Unavailable", "overloaded"},
		"undecided":  {"503", "14", "Unavailable", "undecided"},
	}[word]
	switch door {
	case "wrap-grpc":
		return of.grpc
	case "service":
		return of.service
	case "quota", "decide":
		return of.err
	}
	return of.http
}

// outcomeJSON is what an answer, or an element of a list, says.
type outcomeJSON struct {
	Outcome string
	Status  int
	ID      string `json:"decision_id"`
	Detail  string
}

// answered reads an answer.
func (s *seen) answered(status int, h http.Header, body []byte) {
	s.raw = rawAnswer(status, h, body)
	var j outcomeJSON
	_ = json.Unmarshal(body, &j) // an upstream's is no JSON
	j.Status, j.ID = status, h.Get("Stint-Decision")
	s.read(&j)
}

// read reads an answer or an element of a list. The status tells what its problem does not.
func (s *seen) read(j *outcomeJSON) {
	s.add("answer", j.Outcome)
	s.add("status", strconv.Itoa(j.Status))
	if j.Outcome != "allowed" {
		s.identify("answer", j.ID, j.Outcome)
	}
	word := j.Outcome
	switch j.Status {
	case http.StatusBadRequest:
		word = "malformed"
	case http.StatusServiceUnavailable:
		word = "undecided"
	}
	s.ended = append(s.ended, word)
}

// readList reads the elements of a list in place of the whole.
func (s *seen) readList(w *httptest.ResponseRecorder) {
	s.at, s.ended = nil, nil
	var each []outcomeJSON
	if err := json.Unmarshal(w.Body.Bytes(), &each); err != nil {
		panic(err)
	}
	for i := range each {
		s.read(&each[i])
	}
}

// aCounter is a line of the metrics that counts requests.
var aCounter = regexp.MustCompile(`(?m)^stint_(decisions_total|bad_requests_total|overload_refusals_total)(?:\{(?:outcome|reason)="([a-z_]*)"[^}]*\})? (\S+)$`)

// counters are the requests that the metrics count, by word.
func (d *doorsOfKinds) counters(s *server.Server) wordCounts {
	r := httptest.NewRequest("GET", "/metrics", nil)
	w := httptest.NewRecorder()
	s.Check().ServeHTTP(w, r)
	all := wordCounts{}
	for _, m := range aCounter.FindAllStringSubmatch(w.Body.String(), -1) {
		n, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			panic(err)
		}
		switch word := m[2]; {
		case m[1] == "bad_requests_total":
			all["malformed"] += int(n)
		case m[1] == "decisions_total":
			all[word] += int(n)
		case word != "limit" && word != "bytes": // those here are decisions, too
			all["overloaded"] += int(n)
		}
	}
	return all
}

// readSpans reads the span of the request, and that of the decision.
func (s *seen) readSpans(spans tracetest.SpanStubs) {
	for _, span := range spans {
		of := map[string]string{}
		for _, a := range span.Attributes {
			of[string(a.Key)] = a.Value.String()
		}
		switch outcome := of["stint.outcome"]; {
		case span.Name == "violate":
			s.violate = append(s.violate, outcome)
		case span.Name != "decide":
			if !strings.HasPrefix(span.Name, "stint.store") && span.Name != "upstream" {
				s.add("request", outcome)
			}
		case of["stint.checks"] == "":
			s.add("span", outcome)
			s.identify("span", of["stint.decision.id"], outcome)
		default:
			passed, _ := strconv.Atoi(of["stint.passed"])
			s.add("span", slices.Repeat([]string{"passed"}, passed)...)
			for _, e := range span.Events {
				of := map[string]string{}
				for _, a := range e.Attributes {
					of[string(a.Key)] = a.Value.String()
				}
				s.add("span", of["stint.outcome"])
				s.identify("span", of["stint.decision.id"], of["stint.outcome"])
			}
		}
	}
}

// readLog reads the lines about decisions.
func (s *seen) readLog(t testing.TB, text string) {
	for line := range strings.Lines(text) {
		var j struct {
			Msg, Outcome, Decision           string
			Limited, Warned, Banned, Blocked int
		}
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			t.Fatal(err, line)
		}
		switch j.Msg {
		case "decided":
			s.add("debug", j.Outcome)
		case "refused":
			s.add("refused", j.Outcome)
			s.identify("refused", j.Decision, j.Outcome)
		case "decided without the store":
			s.degraded = append(s.degraded, j.Outcome)
		case "violation by a response":
			s.violations = append(s.violations, j.Outcome)
		case "more refusals":
			s.more = wordCounts{"limited": s.more["limited"] + j.Limited, "warned": s.more["warned"] + j.Warned, "banned": s.more["banned"] + j.Banned, "blocked": s.more["blocked"] + j.Blocked}
		}
	}
}

// readAccess reads the lines about requests of the gateway.
func (s *seen) readAccess(t testing.TB, text string) {
	for line := range strings.Lines(text) {
		var j struct{ Outcome, Decision string }
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			t.Fatal(err, line)
		}
		s.add("access", j.Outcome)
		s.identify("access", j.Decision, j.Outcome)
	}
}
