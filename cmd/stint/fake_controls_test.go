package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// The part of the fake admin API that is not about versions.

func (f *fake) switches(*http.Request, doc) (int, any) {
	rule := func(name, file string) doc {
		set := f.modes[name]
		now := set
		if set == nil {
			now = file
		}
		return doc{"name": name, "file": file, "set": set, "now": now}
	}
	now := f.enabled != false
	return 200, doc{"enabled": doc{"file": true, "set": f.enabled, "now": now},
		"rules": []doc{rule("login", "enforce"), rule("export", "shadow")}}
}

func (f *fake) patchSwitches(r *http.Request, body doc) (int, any) {
	if enabled, ok := body["enabled"]; ok {
		f.enabled = enabled
	}
	modes, _ := body["rules"].(doc)
	for name, mode := range modes {
		if name != "login" && name != "export" {
			return noRule("rules."+name, name)
		}
		f.modes[name] = mode
	}
	return f.switches(r, nil)
}

func noRule(where, name string) (int, any) {
	return refuse(422, "the change is not possible", doc{"problems": []any{doc{"where": where, "text": "there is no rule " + name}}})
}

// of is the list that a request is about.
func of(list string, r *http.Request) string {
	if list == "" {
		return r.PathValue("list")
	}
	return list
}

func (f *fake) list(list string) func(*http.Request, doc) (int, any) {
	return func(r *http.Request, _ doc) (int, any) {
		entries := f.entries[of(list, r)]
		if entries == nil {
			entries = []doc{}
		}
		if list == "" {
			return 200, doc{"entries": entries}
		}
		return 200, doc{list: entries}
	}
}

func (f *fake) post(list string) func(*http.Request, doc) (int, any) {
	return func(r *http.Request, body doc) (int, any) {
		if rule, ok := body["rule"].(string); ok && rule != "login" && rule != "export" {
			return noRule("rule", rule)
		}
		if text, ok := body["for"].(string); ok {
			d, err := time.ParseDuration(text)
			if err != nil {
				return refuse(422, "the change is not possible", doc{"problems": []any{doc{"where": "for", "text": "want a duration such as 30m"}}})
			}
			delete(body, "for")
			body["until"] = at(int(d.Minutes()))
		}
		body["author"] = "bob"
		return 201, f.add(of(list, r), body)
	}
}

func (f *fake) remove(list string) func(*http.Request, doc) (int, any) {
	return func(r *http.Request, _ doc) (int, any) {
		id := r.PathValue("id")
		entries := f.entries[of(list, r)]
		for i, e := range entries {
			if e["id"] == id {
				f.entries[of(list, r)] = slices.Delete(slices.Clone(entries), i, i+1)
				return 200, e
			}
		}
		return refuse(404, "there is no entry "+id)
	}
}

func (f *fake) listBans(r *http.Request, _ doc) (int, any) {
	byHand, byPenalty := []doc{}, []doc{}
	for _, b := range f.entries["bans"] {
		if only := r.URL.Query().Get("rule"); only == "" || b["rule"] == only {
			byHand = append(byHand, b)
		}
	}
	if f.state != "empty" {
		byPenalty = []doc{
			{"rule": "login", "key": "203.0.113.9", "hashed": false, "left_us": int64(29*time.Minute/time.Microsecond) + 1, "bans": 1},
			{"rule": "login", "key": "\u009b2J\u202e", "hashed": false, "left_us": int64(76*time.Hour/time.Microsecond) + 5, "bans": 3},
			{"rule": "export", "key": "5f2b", "hashed": true, "left_us": -1, "bans": 2}}
	}
	return 200, doc{"by_hand": byHand, "by_penalty": byPenalty, "truncated": r.URL.Query().Get("limit") == "3"}
}

func (f *fake) lift(_ *http.Request, body doc) (int, any) {
	byHand, rest := []doc{}, []doc{}
	for _, b := range f.entries["bans"] {
		same := true
		for _, name := range []string{"rule", "key", "network"} {
			same = same && sameJSON(b[name], body[name])
		}
		if same {
			byHand = append(byHand, b)
		} else {
			rest = append(rest, b)
		}
	}
	f.entries["bans"] = rest
	byPenalty := []doc{}
	if f.state != "empty" && body["key"] == "203.0.113.9" {
		byPenalty = append(byPenalty, doc{"rule": "login", "key": "203.0.113.9", "hashed": false, "left_us": 1740e6, "bans": 1})
	}
	if len(byHand)+len(byPenalty) == 0 && body["key"] != "203.0.113.8" { // which has violations
		return refuse(404, "nothing to lift")
	}
	return 200, doc{"by_hand": byHand, "by_penalty": byPenalty}
}

func sameJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func (f *fake) key(r *http.Request, body doc) (int, any) {
	used := 4
	switch cost, _ := body["cost"].(float64); r.URL.Path {
	case "/v1/keys/reset":
		used = 0
	case "/v1/keys/refund":
		used = max(0, used-int(cost))
	}
	five := doc{"limit": "5 per 1m", "capacity": 5, "used": used, "remaining": 5 - used, "reset_after_us": used * 9_750_000}
	if used > 0 {
		five["charged_ago_us"], five["expires_in_us"] = 61_000_000, used*9_750_000+900
	}
	k := doc{"rule": body["rule"], "key": body["key"], "mode": "enforce", "limits": []any{five,
		doc{"limit": "100 per 1h", "capacity": 100, "used": 10 * used, "remaining": 100 - 10*used, "reset_after_us": used * 600_000_000}}}
	if body["tier"] != nil {
		k["tier"] = body["tier"]
	}
	if f.state != "empty" {
		k["override"], k["ban"] = f.entries["overrides"][0], f.entries["bans"][0]
		k["penalty"] = doc{"violations": 1, "bans": 2, "ban_left_us": 3*3600e6 + 1}
	}
	return 200, k
}

func (f *fake) explain(_ *http.Request, body doc) (int, any) {
	asked, _ := json.Marshal(body)
	if f.state == "empty" {
		return 200, doc{"outcome": "allowed", "words": []string{"no rule applies"}, "rules": []any{}}
	}
	return 200, doc{"outcome": "limited", "rule": "login", "words": []string{string(asked), "1. login applies: it has no match\x1b[2J", "   5 per 1m: 5 of 5 used; again in 12s"},
		"rules": []any{doc{"name": "login", "mode": "enforce", "applies": true, "why": "it has no match", "key": "192.0.2.1", "cost": 1,
			"limits": []any{doc{"limit": "5 per 1m", "capacity": 5, "used": 5, "remaining": 0, "reset_after_us": 60000000, "allowed": false, "retry_after_us": 12000000}}}}}
}
