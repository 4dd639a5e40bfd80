package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// doc is a JSON object.
type doc = map[string]any

// Tokens that the fake admin API knows. Without a token, everything is allowed.
const (
	adminToken  = "geheim-admin"
	readerToken = "geheim-reader"
)

// fake is an admin API without a limiter, for the calls of testdata/live.txt, whose
// times and IDs are fixed: it keeps what it is told, and is held to the contract in
// what it takes and says.
type fake struct {
	t        *testing.T
	contract contract
	state    string // what is there at the start, such as "empty"

	mu       sync.Mutex
	next     int
	versions []doc // the oldest first
	enabled  any
	modes    doc
	entries  map[string][]doc // by "overrides", "safelist", "blocklist", "bans"
	used     map[string]bool  // patterns that were asked for
}

// home is this package's directory, however tests change theirs.
var home, _ = filepath.Abs(".")

func newFake(t *testing.T, state string) *fake {
	f := &fake{t: t, state: state, modes: doc{}, entries: map[string][]doc{}, used: map[string]bool{},
		contract: readContract(t, filepath.Join(home, "../../docs/admin-api.yaml"))}
	if state == "empty" {
		return f
	}
	f.add("overrides", doc{"rule": "export", "key": "ann", "times": 10, "until": at(90), "reason": "the fair", "author": "bob"})
	f.add("overrides", doc{"rule": "export", "tier": "gold", "limits": []string{"50 per 1m", "900 per 1h"}, "problem": "the rule has no tier gold"})
	f.add("safelist", doc{"network": "192.0.2.0/24", "author": "bob"})
	f.add("blocklist", doc{"match": `request.path == "/x"`, "until": at(1)})
	f.add("bans", doc{"rule": "login", "key": "192.0.2.7", "until": at(90), "author": "bob", "reason": "tries passwords"})
	f.add("bans", doc{"rule": "export", "key": []string{"ann", "/v1\x1b[2J"}})
	f.add("bans", doc{"network": "198.51.100.0/24"})
	f.push(strings.Replace(goodRules, "5 per", "4 per", 1), "first")
	f.push(goodRules, "more \x1b[31m for all")
	return f
}

const goodRules = "rules:\n  - {name: login, key: client.ip, limits: [5 per 1m]}\n"

// at is an instant some minutes after all that happens.
func at(minutes int) string {
	return time.Date(2026, 3, 1, 12, minutes, 0, 250e6, time.UTC).Format(time.RFC3339Nano)
}

func (f *fake) add(list string, entry doc) doc {
	f.next++
	entry["id"], entry["at"] = fmt.Sprint(list[:1], f.next), at(0)
	f.entries[list] = append(f.entries[list], entry)
	return entry
}

func (f *fake) push(text, note string) doc {
	n := len(f.versions) + 1
	f.versions = append(f.versions, doc{"number": n, "version": fmt.Sprintf("%012d", n), "author": "bob", "at": at(0), "text": text, "note": note})
	return f.versions[n-1]
}

// start starts the fake until the test ends.
func (f *fake) start() (url string) {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(r *http.Request, body doc) (int, any){
		"GET /v1/status":                  f.status,
		"PUT /v1/rules":                   f.putRules,
		"GET /v1/rules/versions":          f.listVersions,
		"GET /v1/rules/versions/{number}": f.getVersion,
		"POST /v1/rules/rollback":         f.rollback,
		"GET /v1/rules/source":            f.source,
		"PUT /v1/rules/source":            f.source,
		"GET /v1/switches":                f.switches,
		"PATCH /v1/switches":              f.patchSwitches,
		"GET /v1/overrides":               f.list("overrides"),
		"POST /v1/overrides":              f.post("overrides"),
		"DELETE /v1/overrides/{id}":       f.remove("overrides"),
		"GET /v1/lists/{list}":            f.list(""),
		"POST /v1/lists/{list}":           f.post(""),
		"DELETE /v1/lists/{list}/{id}":    f.remove(""),
		"GET /v1/bans":                    f.listBans,
		"POST /v1/bans":                   f.post("bans"),
		"DELETE /v1/bans/{id}":            f.remove("bans"),
		"POST /v1/bans/lift":              f.lift,
		"POST /v1/keys/show":              f.key,
		"POST /v1/keys/reset":             f.key,
		"POST /v1/keys/refund":            f.key,
		"POST /v1/explain":                f.explain,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, pattern, answer) })
	}
	s := httptest.NewServer(mux)
	f.t.Cleanup(s.Close)
	return s.URL
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request, pattern string, answer func(r *http.Request, body doc) (int, any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used[pattern] = true
	operation := f.contract.operation(pattern)
	data, _ := io.ReadAll(r.Body)
	var body doc
	if len(data) > 0 {
		if err := f.contract.body(f.contract.at(operation, "requestBody"), r.Header.Get("Content-Type"), data); err != nil {
			f.t.Errorf("%s asks what the contract forbids: %v\n%s", pattern, err, data)
		}
		_ = json.Unmarshal(data, &body)
	}
	code, said := f.allowed(r)
	if code == 0 {
		code, said = answer(r, body)
	}
	if d, ok := said.(doc); ok && f.state == "away" && code < 300 {
		switch {
		case r.URL.Path == "/v1/explain", r.URL.Path == "/v1/keys/show", pattern == "GET /v1/bans":
			d["by"], d["store_error"] = "local", "connection refused \x1b[2J"
		case r.Method != "GET" && !strings.HasPrefix(r.URL.Path, "/v1/rules"):
			d["pending"] = "in force at this instance alone \x1b[2J"
		}
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	_ = to.Encode(said)
	kind, name := "application/json", strconv.Itoa(code)
	if code >= 300 {
		kind, name = "application/problem+json", "default"
	}
	if err := f.contract.body(f.contract.at(operation, "responses", name), kind, b.Bytes()); err != nil {
		f.t.Errorf("%s: the fake says what the contract does not: %d: %v\n%s", pattern, code, err, b.Bytes())
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

func refuse(code int, detail string, more ...doc) (int, any) {
	d := doc{"type": "about:blank", "title": http.StatusText(code), "status": code, "detail": detail}
	for _, m := range more {
		for k, v := range m {
			d[k] = v
		}
	}
	return code, d
}

func (f *fake) allowed(r *http.Request) (int, any) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	reads := r.Method == "GET" || r.URL.Path == "/v1/explain" || r.URL.Path == "/v1/keys/show"
	switch {
	case token == readerToken && !reads:
		return refuse(403, "the token's scope is read, and this takes write")
	case token != "" && token != readerToken && token != adminToken, token == "" && f.state == "closed":
		return refuse(401, "want a token that is known")
	}
	return 0, nil
}

func (f *fake) status(*http.Request, doc) (int, any) {
	started := doc{"program": "stint v1.2.3", "started": at(0),
		"rules":    doc{"source": "file", "version": "a1b2c3d4e5f6", "number": 0, "count": 1, "enabled": true, "taken": at(0)},
		"controls": doc{"number": 0, "source": "store", "problems": []any{}, "pending": []any{}},
		"store":    doc{"kind": "memory", "ok": true, "shared": false, "decides": "store"},
		"memory":   doc{"bytes": 1 << 30, "from": "cgroup", "sum": 886 << 20, "parts": []any{doc{"name": "keys", "most": 1000, "bytes": 250_000}}},
		"findings": []any{}}
	if f.state != "empty" {
		started["rules"] = doc{"source": "fleet", "version": "a1b2c3d4e5f6", "number": 2, "count": 12, "enabled": false, "taken": at(0),
			"refused": doc{"at": at(5), "error": "2:25: unknown variable \x1b[2J\n3:1: and another"}}
		started["controls"] = doc{"number": 9, "source": "state_dir", "read": "2026-03-01T11:00:00Z", "state_error": "no space left \x1b[2J", "problems": []any{doc{"id": "o2", "text": "the rule has no tier gold"}},
			"pending": []any{doc{"at": at(6), "who": "ann", "action": "switch", "reason": "it burns \x1b[2J"}}}
		started["store"] = doc{"kind": "redis", "ok": false, "shared": true, "error": "connection refused", "breaker": "open", "instances": 3, "decides": "on_store_error", "namespace": "shop"}
		started["findings"] = []any{doc{"code": "ST002", "where": "stint.yaml:3:5", "text": "the rule never applies"}, doc{"code": "ST009", "text": "no limit is shared"}}
	}
	return 200, started
}

func (f *fake) putRules(_ *http.Request, body doc) (int, any) {
	if f.state == "file" {
		return refuse(409, "this instance takes its rules from a file: set server.rules to fleet")
	}
	if f.state == "race" {
		f.state = "raced"
		f.push("rules: []\n", "mine \x1b]0;title\a")
	}
	if strings.Contains(body["text"].(string), "client.op") {
		return refuse(422, "the rules cannot be taken", doc{"problems": []any{doc{"where": "2:25", "text": `unknown variable "client.op"`}, doc{"text": "and more"}}})
	}
	return f.write(body, body["text"].(string))
}

func (f *fake) write(body doc, text string) (int, any) {
	if newest := len(f.versions); int(body["after"].(float64)) != newest {
		return refuse(409, "another version is the newest", doc{"newest": newest})
	}
	note, _ := body["note"].(string)
	v := f.push(text, note)
	return 200, doc{"number": v["number"], "version": v["version"], "author": v["author"], "at": v["at"], "note": note}
}

// source says what it was told last.
func (f *fake) source(r *http.Request, body doc) (int, any) {
	if f.state == "empty" && r.Method == "PUT" {
		return refuse(409, "this instance takes its rules from a file")
	}
	if body["source"] == "file" {
		return 200, doc{"source": "file", "version": "a1b2c3d4e5f6", "number": 0, "ordered": doc{"at": at(0), "who": "ann", "reason": body["reason"]}}
	}
	return 200, doc{"source": "fleet", "version": "a1b2c3d4e5f6", "number": 2}
}

func (f *fake) listVersions(r *http.Request, _ doc) (int, any) {
	limit := 20
	if text := r.URL.Query().Get("limit"); text != "" {
		if limit, _ = strconv.Atoi(text); limit > 50 {
			return refuse(400, "limit: want a whole number from 1 to 50")
		}
	}
	all := []doc{}
	for _, v := range slices.Backward(f.versions) {
		if len(all) < limit {
			all = append(all, doc{"number": v["number"], "version": v["version"], "author": v["author"], "at": v["at"], "note": v["note"]})
		}
	}
	return 200, doc{"versions": all}
}

func (f *fake) getVersion(r *http.Request, _ doc) (int, any) {
	n, _ := strconv.Atoi(r.PathValue("number"))
	if n < 1 || n > len(f.versions) {
		return refuse(404, fmt.Sprintf("there is no version %d, or it is no longer kept", n))
	}
	v := f.versions[n-1]
	if f.state == "evil" {
		v = doc{"number": n, "version": "a", "author": "b", "at": at(0), "text": "rules: []\x1b[2J\n"}
	}
	return 200, v
}

func (f *fake) rollback(r *http.Request, body doc) (int, any) {
	to := int(body["to"].(float64))
	if to > len(f.versions) {
		return refuse(404, fmt.Sprintf("there is no version %d, or it is no longer kept", to))
	}
	return f.write(body, f.versions[to-1]["text"].(string))
}
