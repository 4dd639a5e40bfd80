package main

import (
	"fmt"
	"time"
)

// recipeStories are the steps of docs/recipes.md, by heading: each story begins with a new server.
var recipeStories = map[string][][]recipeStep{
	"Login brute force": {{
		{times: 4, firstRequest: login("192.0.2.1", "ann", "wrong"), status: 401, want: 401},
		{firstRequest: login("192.0.2.1", "ann", "right"), want: 200},
		{firstRequest: login("192.0.2.1", "bob", "wrong"), status: 401, want: 401},
		{firstRequest: login("192.0.2.1", "ann", "right"), want: 429, says: "banned"},
		{firstRequest: firstRequest{client: "192.0.2.1"}, want: 200},
		{firstRequest: login("192.0.2.2", "ann", "right"), want: 200},
		{wait: 15 * time.Minute, firstRequest: login("192.0.2.1", "ann", "right"), want: 200},
		{times: 5, firstRequest: login("192.0.2.1", "cat", "wrong"), status: 401, want: 401},
		{wait: 15 * time.Minute, firstRequest: login("192.0.2.1", "ann", "right"), want: 429}, // the second ban is longer
		{wait: 15 * time.Minute, firstRequest: login("192.0.2.1", "ann", "right"), want: 200},
	}, {
		{times: 10, firstRequest: login("192.0.2.1", "ann", "right"), want: 200},
		{times: 10, firstRequest: login("192.0.2.2", "Ann", "right"), want: 200},
		{firstRequest: login("192.0.2.3", "ann", "right"), want: 429, says: "account"},
		{times: 20, firstRequest: firstRequest{client: "192.0.2.3", path: "/login", body: "email=ann"}, want: 200}, // a form
		{firstRequest: firstRequest{client: "192.0.2.3", path: "/login", body: "email=ann"}, want: 429, says: "address"},
		{wait: 59 * time.Minute, firstRequest: login("192.0.2.4", "ann", "right"), want: 429, says: "account"}, // not 20 and then one by one
		{wait: time.Minute, times: 20, firstRequest: login("192.0.2.4", "ann", "right"), want: 200},
	}},
	"API plans with upgrades": {{
		{times: 60, api: "check", firstRequest: checks(`{"attrs":{"customer":"ann","plan":"free"}}`), want: 200},
		{api: "check", firstRequest: checks(`{"attrs":{"customer":"ann","plan":"free"}}`), want: 429, says: "Your plan allows 60 per 1m. Try again in 1s."},
		{times: 600, api: "check", firstRequest: checks(`{"attrs":{"customer":"ann","plan":"pro"}}`), want: 200},
		{api: "check", firstRequest: checks(`{"attrs":{"customer":"ann","plan":"pro"}}`), want: 429},
		{api: "check", firstRequest: checks(`{"attrs":{"customer":"bob"}}`), want: 200},
	}},
	"Per-tenant fairness": {{
		{times: 5, firstRequest: tenant("a", "ann"), stays: true, want: 200},
		{firstRequest: tenant("a", "bob"), want: 429, says: "tenant"},
		{times: 5, firstRequest: tenant("b", "cat"), stays: true, want: 200},
		{firstRequest: tenant("c", "dan"), want: 429, says: "everyone"},
		{leave: true, firstRequest: tenant("a", "bob"), want: 200},
		{times: 95, firstRequest: tenant("a", "ann"), want: 200},
		{firstRequest: tenant("a", "ann"), want: 429, says: "user"},
		{firstRequest: tenant("b", "ann"), want: 200}, // another user
	}},
	"Monthly quotas with a mail at 80 %": {{
		{wait: time.Minute, api: "check", firstRequest: checks(`{"attrs":{"customer":"acme"},"cost":79999}`), want: 200},
		{wait: 10 * time.Second, api: "check", firstRequest: checks(`{"attrs":{"customer":"acme"}}`), want: 200, mail: "quota-80 of acme to sales"},
		{api: "check", firstRequest: checks(`{"attrs":{"customer":"acme"},"cost":20000}`), want: 200},
		{api: "check", firstRequest: checks(`{"attrs":{"customer":"acme"}}`), want: 429},
		{api: "check", firstRequest: checks(`{"attrs":{"customer":"umbrella"}}`), want: 200},
	}},
	"MCP, by tool": {{
		{times: 60, firstRequest: mcp("one", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}`), want: 200},
		{firstRequest: mcp("one", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}`), want: 429, says: "tools"},
		{times: 6, firstRequest: mcp("one", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_web"}}`), want: 200},
		{firstRequest: mcp("one", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_web"}}`), want: 429, says: "tools"},
		{firstRequest: mcp("two", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_web"}}`), want: 200},
		{firstRequest: mcp("one", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), want: 200},
		{firstRequest: mcp("one", `{"jsonrpc":"2.0","method":"ping","method":"tools/call","params":{"name":"read"}}`), want: 400},
		{firstRequest: mcp("one", `[{"jsonrpc":"2.0","method":"tools/call","params":{"name":"read"}}]`), want: 403},
	}},
	"Dollar budgets, by model": {{
		{firstRequest: chat("one", "large"), answer: spent("large-2026", 4_000_000, 3_999_999), want: 200},         // 49.99999 dollars
		{firstRequest: chat("one", "large"), want: 429, says: "dollars"},                                           // would hold 0.1
		{firstRequest: chat("one", "small"), want: 429, says: "dollars"},                                           // would hold 0.006
		{firstRequest: chat("two", "small"), answer: spent("small-2026", 100_000_000, 50_000_000), want: 200},      // 45
		{firstRequest: chat("two", "new"), answer: spent("new-2026", 1_000_000, 245_000), want: 200},               // 4.95, as the dearest
		{times: 5, firstRequest: chat("two", "small"), answer: spent("small-2026", 10_000, 10_000), want: 200},     // 0.0075 each
		{times: 9, firstRequest: chat("two", "small"), status: 500, answer: "{}", want: 500},                       // nothing
		{firstRequest: chat("two", "small"), answer: spent("small-2026", 10_000, 10_000), want: 200},               // 0.0075
		{firstRequest: chat("two", "small"), want: 429, says: "dollars"},                                           // 0.005 are left
		{firstRequest: chat("", "small"), want: 200},                                                               // by address
		{times: 29, firstRequest: firstRequest{client: "192.0.2.1", path: "/v1/responses", body: "{}"}, want: 200}, // likewise
		{firstRequest: firstRequest{client: "192.0.2.1", path: "/v1/responses", body: "{}"}, want: 429, says: "others"},
		{firstRequest: streams("three"), want: 200, seen: "include_usage"},
	}},
	"Counting failures only": {{
		{times: 30, firstRequest: coupon("192.0.2.1"), want: 200},
		{times: 10, firstRequest: coupon("192.0.2.1"), status: 404, want: 404},
		{firstRequest: coupon("192.0.2.1"), want: 429, says: "coupons"},
		{firstRequest: coupon("192.0.2.2"), want: 200},
		{wait: 66 * time.Minute, firstRequest: coupon("192.0.2.1"), want: 200},
	}, {
		{times: 10, firstRequest: coupon("192.0.2.1"), stays: true, want: 200},
		{firstRequest: coupon("192.0.2.1"), want: 429, says: "coupons"},
		{leave: true, firstRequest: coupon("192.0.2.1"), want: 200},
	}},
	"Crawlers by their published ranges": {{
		{times: 600, firstRequest: visit("66.249.66.1", "Googlebot/2.1"), want: 200},
		{firstRequest: visit("66.249.66.1", "Googlebot/2.1"), want: 429, says: "crawlers"},
		{times: 600, firstRequest: visit("40.77.167.9", "bingbot/2.0"), want: 200},
		{times: 30, firstRequest: visit("192.0.2.1", "Googlebot/2.1"), want: 200}, // it is none
		{firstRequest: visit("192.0.2.1", "Googlebot/2.1"), want: 429, says: "crawlers"},
		{times: 700, firstRequest: visit("192.0.2.2", "Firefox/145.0"), want: 200},
	}},
	"Webhooks that you send": {{
		{api: "check", firstRequest: checks(`{"operation":"deliver","attrs":{"receiver":"a.example"}}`), want: 200, says: `"delay_us":0`},
		{api: "check", firstRequest: checks(`{"operation":"deliver","attrs":{"receiver":"a.example"}}`), want: 200, says: `"delay_us":200000`},
		{api: "check", firstRequest: checks(`{"operation":"deliver","attrs":{"receiver":"b.example"}}`), want: 200, says: `"delay_us":0`},
		{times: 48, api: "check", firstRequest: checks(`{"operation":"deliver","attrs":{"receiver":"a.example"}}`), want: 200},
		{api: "check", firstRequest: checks(`{"operation":"deliver","attrs":{"receiver":"a.example"}}`), want: 429},
		{wait: time.Second, times: 5, api: "check", firstRequest: checks(`{"operation":"deliver","attrs":{"receiver":"a.example"}}`), want: 200},
	}},
	"Batch jobs": {{
		{api: "check", firstRequest: checks(`{"operation":"job","attrs":{"tenant":"a"},"cost":600000,"hold":"2m"}`), want: 200},
		{api: "check", firstRequest: checks(`{"operation":"job","attrs":{"tenant":"a"},"cost":600000,"hold":"2m"}`), want: 429, says: `"busy":true`},
		{api: "check", firstRequest: firstRequest{path: "/v1/settle", body: `{"hold":"HOLD","cost":100}`}, want: 200, says: "settled"},
		{times: 2, api: "check", firstRequest: checks(`{"operation":"job","attrs":{"tenant":"a"},"cost":100000,"hold":"2m"}`), want: 200},
		{api: "check", firstRequest: checks(`{"operation":"job","attrs":{"tenant":"a"},"hold":"2m"}`), want: 429, says: "2 in_flight"},
		{api: "check", firstRequest: checks(`{"operation":"job","attrs":{"tenant":"b"},"hold":"2m"}`), want: 200},
		{wait: 2 * time.Minute, api: "check", firstRequest: checks(`{"operation":"job","attrs":{"tenant":"a"},"hold":"2m"}`), want: 200}, // a worker died
	}},
	"GraphQL by cost": {{
		{firstRequest: query("one", "{a{b}}"), answer: `{"data":{},"extensions":{"cost":600}}`, want: 200},
		{firstRequest: query("one", "{a{b}}"), answer: `{"data":{},"extensions":{"cost":400}}`, want: 200},
		{firstRequest: query("one", "{a}"), want: 429, says: "graphql"},
		{times: 500, firstRequest: query("two", "{a}"), answer: `{"data":{}}`, want: 200}, // 2 points each
		{firstRequest: query("two", "{a}"), want: 429, says: "graphql"},
		{firstRequest: firstRequest{client: "192.0.2.1", path: "/graphql", body: `[{"query":"{a}"}]`, headers: query("two", "").headers}, want: 400},
		{firstRequest: firstRequest{client: "192.0.2.1", path: "/graphql?query={a}", headers: query("two", "").headers}, want: 400},
		{times: 30, firstRequest: query("", "{a}"), want: 200},
		{firstRequest: query("", "{a}"), want: 429, says: "keyless"},
	}},
	"A page behind a CDN": {{
		{times: 120, firstRequest: behindCDN("192.0.2.1"), want: 200},
		{firstRequest: behindCDN("192.0.2.1"), want: 429, says: "reader"},
		{firstRequest: behindCDN("198.18.0.1, 192.0.2.1"), want: 429, says: "reader"}, // the reader made the first up
		{firstRequest: behindCDN("192.0.2.2"), want: 200},
		{firstRequest: firstRequest{client: "192.0.2.3"}, want: 403},
		{firstRequest: firstRequest{client: "198.51.100.7", headers: []string{"X-Forwarded-For: 192.0.2.3", "X-Cdn-Secret: guessed"}}, want: 403},
	}},
	"Maintenance mode": {{
		{firstRequest: firstRequest{client: "192.0.2.1"}, want: 200},
		{api: "admin", firstRequest: firstRequest{method: "PATCH", path: "/v1/switches", body: `{"rules":{"maintenance":"enforce"}}`}, want: 200},
		{firstRequest: firstRequest{client: "192.0.2.1"}, want: 503, says: "We are back at 06:00 UTC."},
		{firstRequest: firstRequest{client: "203.0.113.9"}, want: 200},
		{api: "admin", firstRequest: firstRequest{method: "PATCH", path: "/v1/switches", body: `{"enabled":false}`}, want: 200},
		{firstRequest: firstRequest{client: "192.0.2.1"}, want: 200},
		{api: "admin", firstRequest: firstRequest{method: "PATCH", path: "/v1/switches", body: `{"enabled":null,"rules":{"maintenance":null}}`}, want: 200},
		{firstRequest: firstRequest{client: "192.0.2.1"}, want: 200},
	}},
}

func login(client, account, password string) firstRequest {
	return firstRequest{client: client, path: "/login", body: fmt.Sprintf(`{"email":"%s@example.com","password":%q}`, account, password)}
}

func checks(body string) firstRequest { return firstRequest{path: "/v1/check", body: body} }

func tenant(name, user string) firstRequest {
	return firstRequest{client: "192.0.2.1", headers: []string{"X-Tenant: " + name, "X-User: " + user}}
}

func mcp(key, body string) firstRequest {
	return firstRequest{client: "192.0.2.1", path: "/mcp", headers: bearer(key), body: body}
}

func chat(key, model string) firstRequest {
	return firstRequest{client: "192.0.2.1", path: "/v1/chat/completions", headers: bearer(key),
		body: fmt.Sprintf(`{"model":%q,"max_tokens":1000,"messages":[]}`, model)}
}

func streams(key string) firstRequest {
	return firstRequest{client: "192.0.2.1", path: "/v1/chat/completions", headers: bearer(key), body: `{"model":"small","stream":true,"messages":[]}`}
}

// bearer is the header with a key, if there is one.
func bearer(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Authorization: Bearer " + key}
}

func spent(model string, in, out int) string {
	return fmt.Sprintf(`{"model":%q,"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, model, in, out)
}

func coupon(client string) firstRequest {
	return firstRequest{client: client, path: "/coupons", body: `{"code":"x"}`}
}

func visit(client, agent string) firstRequest {
	return firstRequest{client: client, headers: []string{"User-Agent: " + agent}}
}

func query(key, text string) firstRequest {
	return firstRequest{client: "192.0.2.1", path: "/graphql", headers: bearer(key), body: fmt.Sprintf(`{"query":%q}`, text)}
}

func behindCDN(addresses string) firstRequest {
	return firstRequest{client: "198.51.100.7", headers: []string{"X-Forwarded-For: " + addresses, "X-Cdn-Secret: demo-cdn-secret"}}
}
