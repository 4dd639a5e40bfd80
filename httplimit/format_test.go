package httplimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

func newFormat(t testing.TB, spec httplimit.ErrorFormatSpec) *httplimit.ErrorFormat {
	t.Helper()
	f, err := httplimit.NewErrorFormat(spec)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const (
	jsonBody = `{"code": "{outcome}", "status": {status}, "wait": {retry_after_seconds}, "text": "{message}", "numbers": [{violations}, {warn_after}, {ban_after}], "limit": "{limit_name}: {limit}", "id": "{decision_id}", "left": "{ban_left}", "in": "{retry_after}"}`
	htmlBody = `<h1>{status} {outcome}</h1><p title="{limit}">{message}</p>`
)

// formats has one format for refusals and one for other answers.
func formats(t testing.TB) (refusals, others *httplimit.ErrorFormat) {
	refusals = newFormat(t, httplimit.ErrorFormatSpec{
		Status:  420,
		Headers: map[string]string{"x-error-code": "{outcome} {message}", "X-Wait": "{retry_after_seconds}"},
		Bodies: []httplimit.ErrorBody{
			{Type: "application/json", Text: jsonBody},
			{Type: "text/html", Text: htmlBody},
			{Type: "application/graphql-response+json", Text: `{"errors": [{"message": "{message}"}]}`, Status: 200},
		},
		Code:        "unavailable",
		GRPCMessage: "{outcome}: 100% {message}",
	})
	others = newFormat(t, httplimit.ErrorFormatSpec{
		Status: 418, // which only refusals have
		Bodies: []httplimit.ErrorBody{{Type: "text/plain", Text: "{status} {outcome} {retry_after}: {message}"}, {Type: "application/json", Text: jsonBody, Status: 200}},
	})
	return refusals, others
}

// decisions are answers of a Decide by name.
func decisions() map[string]func() (httplimit.Answer, error) {
	limit := stint.MustLimit("login: 5 per 1m")
	answer := func(d stint.Decision) func() (httplimit.Answer, error) {
		return func() (httplimit.Answer, error) {
			return httplimit.Answer{Decision: d, ID: "00ff", Message: `"no" é`}, nil
		}
	}
	spec := stint.PenaltySpec{WarnAfter: 3, BanAfter: 9, BanFor: time.Hour}
	banned := violation(stint.Decision{Outcome: stint.Banned, RetryAfter: time.Hour, BanLeft: time.Hour}, spec)
	banned.Violations = 0 // it runs already
	return map[string]func() (httplimit.Answer, error){
		"limited": answer(stint.Decision{Outcome: stint.Limited, Limit: limit, RetryAfter: 90 * time.Second}),
		"never":   answer(stint.Decision{Outcome: stint.Limited, Limit: limit, RetryAfter: stint.Never}),
		"warned":  answer(violation(stint.Decision{Outcome: stint.Warned, Limit: limit, RetryAfter: time.Second}, spec)),
		"banned":  answer(banned),
		"blocked": func() (httplimit.Answer, error) { return httplimit.Answer{Blocked: true, ID: "00ff"}, nil },
		"malformed": func() (httplimit.Answer, error) {
			return httplimit.Answer{}, fmt.Errorf("x: %w", stint.ErrRequest)
		},
		"overloaded": func() (httplimit.Answer, error) {
			return httplimit.Answer{}, &httplimit.Overloaded{RetryAfter: 2 * time.Second}
		},
		"undecided": func() (httplimit.Answer, error) { return httplimit.Answer{}, io.ErrUnexpectedEOF },
	}
}

// doors are ways to a Middleware's answer.
func doors(m httplimit.Middleware) map[string]http.Handler {
	return map[string]http.Handler{"Wrap": m.Wrap(pong), "Gate": framework(func(*http.Request) (int, string) { return 200, "pong" }).behind(m.Gate())}
}

// Refusals by limits and bans have one format, all other answers the other, whatever the client accepts.
func TestErrorFormats(t *testing.T) {
	refusals, others := formats(t)
	const (
		text  = `\"no\" é`
		limit = "login: 5 per 1m"
	)
	js := func(outcome string, status int, wait, numbers, limit, left, in, text, id string) string {
		return fmt.Sprintf(`{"code": %q, "status": %d, "wait": %s, "text": "%s", "numbers": [%s], "limit": %q, "id": %q, "left": %q, "in": %q}`, outcome, status, wait, text, numbers, limit, id, left, in)
	}
	const (
		page  = "text/html; charset=utf-8"
		plain = "text/plain; charset=utf-8"
		graph = "application/graphql-response+json"
		doc   = "application/problem+json"
		all   = "*/*"
	)
	for _, c := range []struct {
		decision, accept string
		status           int
		contentType      string
		body             string // empty: problem details
	}{
		{"limited", "", 420, "application/json", js("limited", 420, "90", "null, null, null", limit, "", "1m 30s", text, "00ff")},
		{"limited", "text/html;q=0.9,*/*;q=0.8", 420, page, `<h1>420 limited</h1><p title="5 per 1m">&#34;no&#34; é</p>`},
		{"limited", graph, 200, graph, `{"errors": [{"message": "` + text + `"}]}`},
		{"limited", doc, 420, doc, ""},
		{"never", all, 420, "application/json", js("limited", 420, "null", "null, null, null", limit, "", "∞", text, "00ff")},
		{"warned", "text/*", 420, page, `<h1>420 warned</h1><p title="5 per 1m">&#34;no&#34; é</p>`},
		{"warned", all, 420, "application/json", js("warned", 420, "1", "7, 3, 9", limit, "", "1s", text, "00ff")},
		{"banned", "image/png", 420, "application/json", js("banned", 420, "3600", "9, 3, 9", ": ", "1h", "1h", text, "00ff")},
		{"blocked", "", 403, plain, "403 blocked : This request is not accepted."},
		{"blocked", "application/json", 403, "application/json", js("blocked", 403, "null", "null, null, null", ": ", "", "", "This request is not accepted.", "00ff")},
		{"malformed", "", 400, plain, "400 bad_request : The request cannot be counted: the value that it is counted by is missing, too long, or sent more than once."},
		{"overloaded", "application/*", 503, "application/json", js("overloaded", 503, "2", "null, null, null", ": ", "", "2s", "The server is overloaded and accepts no more requests right now.", "")},
		{"overloaded", doc, 503, doc, ""},
		{"undecided", "", 503, plain, "503 service_unavailable 1s: The server cannot check the limits of this request right now."},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			m := httplimit.Middleware{Refusals: refusals, Errors: others, Decide: always(decisions()[c.decision]())}
			for door, h := range doors(m) {
				r, w := httptest.NewRequest(method, "/", nil), httptest.NewRecorder()
				r.Header.Set("Accept", c.accept)
				w.Header().Set("Vary", "Origin")
				h.ServeHTTP(w, r)
				name := fmt.Sprintf("%s, %s, %s, %q", door, method, c.decision, c.accept)
				head := w.Header()
				if w.Code != c.status || head.Get("Content-Type") != c.contentType || head.Get("Cache-Control") != "no-store" || !strings.HasSuffix(fmt.Sprint(head["Vary"]), "Accept]") {
					t.Errorf("%s: %d %v, want %d %s", name, w.Code, head, c.status, c.contentType)
				}
				if door == "Wrap" && fmt.Sprint(head["Vary"]) != "[Origin Accept]" {
					t.Errorf("%s: Vary %q", name, head["Vary"])
				}
				body := w.Body.String()
				switch {
				case method == "HEAD":
					if body != "" || c.body != "" && head.Get("Content-Length") != strconv.Itoa(len(c.body)) {
						t.Errorf("%s: %s %q", name, head.Get("Content-Length"), body)
					}
				case head.Get("Content-Length") != strconv.Itoa(len(body)):
					t.Errorf("%s: length %s of %q", name, head.Get("Content-Length"), body)
				case c.body == "":
					var p struct{ Status int }
					if err := json.Unmarshal([]byte(body), &p); err != nil || p.Status != c.status || strings.Contains(body, `"title":""`) {
						t.Errorf("%s: %s, %v", name, body, err)
					}
				case body != c.body:
					t.Errorf("%s:\n got %s\nwant %s", name, body, c.body)
				case strings.Contains(c.contentType, "json") && !json.Valid([]byte(body)):
					t.Errorf("%s: no JSON: %s", name, body)
				}
				code, wait := "", ""
				if c.status == 420 || c.status == 200 {
					code = c.decision + ` "no" %C3%A9`
					if c.decision == "never" {
						code = `limited "no" %C3%A9`
					}
					wait = head.Get("Retry-After")
				}
				if head.Get("X-Error-Code") != code || head.Get("X-Wait") != wait {
					t.Errorf("%s: headers %v", name, head)
				}
			}
		}
	}
}

// Without a format there is no Vary, and all is as before.
func TestNoErrorFormat(t *testing.T) {
	for _, f := range []*httplimit.ErrorFormat{nil, newFormat(t, httplimit.ErrorFormatSpec{})} {
		w := serve(httplimit.Middleware{Refusals: f, Decide: always(decisions()["limited"]())}, get())
		if w.Code != 429 || w.Header().Get("Content-Type") != "application/problem+json" || w.Header()["Vary"] != nil {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
}

// A format without bodies changes the status and the headers of problem details, not what the clients of
// OpenAI read in them.
func TestErrorFormatOfProblems(t *testing.T) {
	f := newFormat(t, httplimit.ErrorFormatSpec{Status: 403, Headers: map[string]string{"X-A": "b"}})
	w := serve(httplimit.Middleware{Refusals: f, Dialect: httplimit.OpenAI, Decide: always(decisions()["limited"]())}, get())
	var p struct {
		Status int
		Title  string
		Error  struct{ Type string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 403 || p.Status != 403 || p.Title != "Forbidden" || p.Error.Type != "rate_limit_error" || w.Header().Get("X-A") != "b" {
		t.Errorf("%d %s %v, %v", w.Code, w.Body, w.Header(), err)
	}
}

// Of several formats, that of the Answer goes before that of the Middleware, and that before the context's.
func TestErrorFormatPrecedence(t *testing.T) {
	f := func(text string, status int) *httplimit.ErrorFormat {
		return newFormat(t, httplimit.ErrorFormatSpec{Status: status, Bodies: []httplimit.ErrorBody{{Type: "text/plain", Text: text}}})
	}
	only := newFormat(t, httplimit.ErrorFormatSpec{Status: 418})
	for _, c := range []struct {
		answer, refusals, errors, context *httplimit.ErrorFormat
		refused, other                    string
	}{
		{f("a", 0), f("b", 418), f("c", 418), f("d", 418), "429 a", "503 c"},
		{nil, f("b", 418), f("c", 0), f("d", 0), "418 b", "503 c"},
		{nil, nil, f("c", 418), f("d", 0), "418 c", "503 c"},
		{nil, only, f("c", 0), f("d", 0), "418 c", "503 c"},
		{nil, nil, nil, f("d", 418), "418 d", "503 d"},
		{nil, f("b", 0), nil, f("d", 0), "429 b", "503 d"},
	} {
		m := httplimit.Middleware{Refusals: c.refusals, Errors: c.errors}
		r := get()
		r = r.WithContext(httplimit.WithErrorFormat(r.Context(), c.context))
		a, _ := decisions()["limited"]()
		a.Format = c.answer
		m.Decide = always(a, nil)
		refused := serve(m, r)
		m.Decide = always(httplimit.Answer{}, context.DeadlineExceeded)
		other := serve(m, r)
		if got, got2 := fmt.Sprint(refused.Code, " ", refused.Body), fmt.Sprint(other.Code, " ", other.Body); got != c.refused || got2 != c.other {
			t.Errorf("%s and %s, want %s and %s", got, got2, c.refused, c.other)
		}
	}
}

// A gRPC request gets a status in the format, and of other answers the usual code.
func TestErrorFormatOfGRPC(t *testing.T) {
	refusals, others := formats(t)
	for decision, want := range map[string]string{
		"limited":    `14 limited: 100%25 "no" %C3%A9`,
		"never":      `14 limited: 100%25 "no" %C3%A9`,
		"blocked":    "7 This request is not accepted.",
		"overloaded": "14 The server is overloaded and accepts no more requests right now.",
	} {
		m := httplimit.Middleware{Refusals: refusals, Errors: others, Decide: always(decisions()[decision]())}
		r, w := httptest.NewRequest("POST", "/a.B/C", nil), httptest.NewRecorder()
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", "application/grpc")
		httplimit.GRPC(m.Wrap(pong)).ServeHTTP(w, r)
		h := w.Header()
		if got := h.Get("Grpc-Status") + " " + h.Get("Grpc-Message"); got != want || w.Code != 200 || w.Body.Len() > 0 || h.Get("Content-Type") != "application/grpc" {
			t.Errorf("%s: %d %v, want %s", decision, w.Code, h, want)
		}
		if decision == "never" && h.Get("Grpc-Retry-Pushback-Ms") != "-1" || decision == "limited" && h.Get("X-Wait") != "90" {
			t.Errorf("%s: %v", decision, h)
		}
	}
}

func TestNewErrorFormatErrors(t *testing.T) {
	body := func(mediaType, text string, status int) []httplimit.ErrorBody {
		return []httplimit.ErrorBody{{Type: mediaType, Text: text, Status: status}}
	}
	for want, spec := range map[string]httplimit.ErrorFormatSpec{
		"status 399: must be 400 to 599":                                                        {Status: 399},
		"header X Y: at character 1":                                                            {Headers: map[string]string{"X Y": "a"}},
		"header X-A: at character 4: unknown placeholder {mesage}":                              {Headers: map[string]string{"X-A": "a  {mesage}"}},
		"header X-A-Bin cannot be set here: clients of gRPC read it as base64":                  {Headers: map[string]string{"x-a-bin": "a"}},
		"header X-A is given twice":                                                             {Headers: map[string]string{"X-A": "a", "x-a": "b"}},
		"body application/json: at character 3: {message} is a text":                            {Bodies: body("application/json", "[ {message}]", 0)},
		"body text/html: at character 1: status 301":                                            {Bodies: body("text/html", "x", 301)},
		"body text/html is given twice":                                                         {Bodies: append(body("text/html", "x", 0), body("text/html", "y", 0)...)},
		"0 headers and 17 bodies: at most 16 and 16":                                            {Bodies: make([]httplimit.ErrorBody, 17)},
		"at character 1: must have 1 to 65536 bytes":                                            {Bodies: body("text/plain", strings.Repeat("x", 65537), 0)},
		"body text/plain: at character 577: more than 64 placeholders":                          {Bodies: body("text/plain", strings.Repeat("{message}", 65), 0)},
		`code "ok": not an error code of gRPC`:                                                  {Code: "ok"},
		"gRPC message: at character 1: must be one line":                                        {GRPCMessage: "a\nb"},
		"gRPC message: at character 2: unknown placeholder {outcomes}: did you mean {outcome}?": {GRPCMessage: "é{outcomes}"},
	} {
		if f, err := httplimit.NewErrorFormat(spec); f != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	most := httplimit.ErrorFormatSpec{
		Headers:     map[string]string{},
		Bodies:      body("text/plain", strings.Repeat("{message}", 64)+strings.Repeat("x", 65536-64*len("{message}")), 0),
		GRPCMessage: strings.Repeat("x", 1024),
	}
	for i := range 16 {
		most.Headers[fmt.Sprint("X-", i)] = strings.Repeat("x", 1024)
		if i > 0 {
			most.Bodies = append(most.Bodies, body(fmt.Sprint("text/x", i), "x", 0)...)
		}
	}
	newFormat(t, most)
}

// A format cannot set a header that tells clients of limits, in any dialect.
func TestFormatsSetNoLimits(t *testing.T) {
	for kind, m := range answers(nil) {
		for _, d := range []httplimit.Dialect{m.Dialect, httplimit.Draft11 | httplimit.XRateLimitEpoch, httplimit.OpenAI | httplimit.Anthropic} {
			m.Dialect, m.Violations = d, true
			for _, name := range about(serve(m, get()).Result().Header) {
				if _, err := httplimit.NewErrorFormat(httplimit.ErrorFormatSpec{Headers: map[string]string{name: "1"}}); err == nil {
					t.Errorf("%s: a format can set %s", kind, name)
				}
			}
		}
	}
}
