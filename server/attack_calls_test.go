package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/adminapi"
)

// Whatever a call of the admin API contains, its answer is one JSON object, within the contract,
// and no failure of the server: bodies that are huge, deep, of wrong types, with members twice, in
// another encoding, and queries that are odd.
func TestAttackCalls(t *testing.T) {
	o, s := newOperator(t)
	outcomes(t, s, login, 4)
	h := s.Admin()
	send := func(method, target, body string) (int, string) {
		t.Helper()
		r := httptest.NewRequest(method, "http://127.0.0.1:8090/", strings.NewReader(body))
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(target, "?")
		r.RemoteAddr = "127.0.0.1:5000"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		what := fmt.Sprintf("%s %.200s %.100q", method, target, body)
		if w.Code >= 500 {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
		var answer map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Errorf("%s: %d, no JSON object: %.200s", what, w.Code, w.Body)
		}
		if w.Code >= 400 {
			var e adminapi.Error
			if json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Status != w.Code || e.Detail == "" || len(w.Body.String()) > 4000 {
				t.Errorf("%s: %d %.500s", what, w.Code, w.Body)
			}
		}
		return w.Code, w.Body.String()
	}
	const valid = `"reason":"r"`
	members := map[string][]string{
		"POST /v1/session":        {`"token":`},
		"POST /v1/rules/check":    {`"text":`},
		"POST /v1/rules/preview":  {`"text":`},
		"POST /v1/silences":       {`"alert":`, `"for":`, `"until":`, `"reason":`},
		"POST /v1/alerts/test":    {`"x":`},
		"PATCH /v1/switches":      {`"enabled":`, `"rules":`},
		"POST /v1/explain":        {`"client":`, `"request":`, `"attrs":`},
		"POST /v1/keys/show":      {`"rule":`, `"key":`},
		"POST /v1/bans":           {`"rule":"login","key":`, `"network":`},
		"POST /v1/rules/rollback": {`"to":1,"after":`},
	}
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	values := []string{
		`null`, `true`, `1e999`, `-1`, `9223372036854775808`, `0.5`, `""`, `"\u0000"`, `"\ud800"`, "\"\xff\"", "\"a\nb\"", `[]`, `[null]`, `{}`, `{"a":{"a":{}}}`, deep,
		strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000), `"` + strings.Repeat("a", 100_000) + `"`, `[` + strings.Repeat(`"a",`, 50_000) + `"a"]`, `NaN`, `'a'`, `"a"/**/`, `"\u202e<script>"`, `"__proto__"`,
	}
	for call, names := range members {
		method, path, _ := strings.Cut(call, " ")
		for _, name := range names {
			for _, value := range values {
				send(method, path, "{"+name+value+"}")
			}
			if code, answer := send(method, path, "{"+name+`"a",`+name[strings.LastIndexByte(name, ',')+1:]+`"b"}`); code != 400 && call != "POST /v1/alerts/test" {
				t.Errorf("%s with a member twice: %d %s", call, code, answer)
			}
		}
		for _, body := range []string{"", " ", "{", "}", "[]", `"a"`, "null", "{}{}", "{} x", "\xef\xbb\xbf{}", "{\x00}", "\xff\xfe{\x00}\x00", deep, `{"` + strings.Repeat("a", 50_000) + `":1}`, "{" + strings.Repeat(`"a":1,`, 50_000) + `"a":1}`, "{" + valid + ",}"} {
			if code, answer := send(method, path, body); code < 400 && call != "POST /v1/alerts/test" && body != "{}" {
				t.Errorf("%s %.50q: %d %s", call, body, code, answer)
			}
		}
	}
	if code, answer := send("POST", "/v1/rules/preview", `{"text":"`+strings.Repeat(" ", 20<<20)+`"}`); code != 413 {
		t.Errorf("20 MiB: %d %s", code, answer)
	}
	odd := []string{"", "-1", "0", "1", "999999999999999999999", "1.5", "1e3", "0x10", "+5", " 5", "５", "9999h", "-1h", "0s", "1ns", "14d", "15d", "292y", "now", "NaN", "%00", "%ff", "%", "a;b", "..%2f", "<script>", strings.Repeat("a", 60_000), "[1]", "[\"a\"", `["a","b"]`, `{"a":1}`, strings.Repeat("[", 50_000), "keys", "use", "login"}
	for path, names := range map[string][]string{
		"/v1/offenders":         {"of", "by", "since", "limit", "rule"},
		"/v1/offenders/history": {"of", "by", "rule=login&key", "of=paths&name", "of=clients&name"},
		"/v1/series":            {"rule"}, "/v1/live": {"rule=nothing&x"}, "/v1/audit": {"limit"}, "/v1/alerts": {"x"}, "/v1/silences": {"x"}, "/v1/instances": {"x"},
		"/v1/rules/versions": {"limit"}, "/v1/bans": {"rule", "limit"},
	} {
		for _, name := range names {
			for _, value := range odd {
				code, answer := send("GET", path+"?"+name+"="+url.QueryEscape(value), "")
				send("GET", path+"?"+name+"="+value, "") // perhaps malformed
				if code == 200 && (value == "-1" || value == "9999h" || value == "999999999999999999999") && (name == "limit" || name == "since") {
					t.Errorf("%s?%s=%s: %.200s", path, name, value, answer)
				}
			}
			first := name[strings.LastIndexByte(name, '&')+1:]
			if code, answer := send("GET", path+"?"+name+"=1&"+first+"=2", ""); code != 400 && first != "x" {
				t.Errorf("%s with the parameter %s twice: %d %.200s", path, first, code, answer)
			}
		}
	}
	for _, method := range []string{"GET", "DELETE", "PUT", "POST", "TRACE", "OPTIONS"} {
		for _, path := range []string{"/v1/silences/", "/v1/silences/..", "/v1/silences/\x00", "/v1/silences/a/b", "/v1/lists/<b>/x", "/v1/rules/versions/-1", "/v1/rules/versions/99999999999999999999", "/v1/" + strings.Repeat("a/", 5000)} {
			if code, _ := send(method, path, ""); code == http.StatusOK {
				t.Errorf("%s %.50q: 200", method, path)
			}
		}
	}
	o.want(200, "GET", "/v1/status", "")
}
