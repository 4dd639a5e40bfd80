package decide_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// These tables are the specification of a decision. Read them from top to bottom: single requests and lists,
// failures, what runs and is settled at its end, rules in shadow mode, and calls of Envoy's service.
var tables = []struct {
	name string
	rows []row
}{
	{"requests", requests}, {"penalties", penalties}, {"lists", lists}, {"failures", failures},
	{"holds", holdRows}, {"costs", costRows}, {"charges", chargeRows}, {"shadow", shadowRows}, {"previews", previewRows},
	{"calls", callRows}, {"calls that charge", chargedCalls},
}

func TestDecision(t *testing.T) {
	for _, table := range tables {
		t.Run(table.name, func(t *testing.T) {
			for i := range table.rows {
				t.Run(table.rows[i].says, func(t *testing.T) { table.rows[i].tell(t) })
			}
		})
	}
}

// Everything that a Watcher and an Instance can learn is in a row.
func TestEverythingIsTold(t *testing.T) {
	told := map[string]bool{}
	for _, table := range tables {
		for i := range table.rows {
			for method := range table.rows[i].tell(t) {
				told[method] = true
			}
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[decide.Watcher](), reflect.TypeFor[decide.Instance]()} {
		for m := range of.Methods() {
			if !told[m.Name] {
				t.Errorf("no row has %s of %s", m.Name, of.Name())
			}
		}
	}
}

const (
	ten = `rules: [{name: api, key: attrs.user, limits: [10 per 1m fixed_window]}]`
	two = `rules: [{name: api, key: attrs.user, limits: [2 per 1m fixed_window]}]`
	// bounds has a limit for all users and one for each.
	bounds = `rules: [{name: all, key: '"all"', limits: [9 per 1m fixed_window]}, {name: api, key: attrs.user, limits: [2 per 1m fixed_window]}]`
)

var requests = []row{
	{"a request that no rule applies to is allowed", ten, nil, []step{
		{0, asks(decide.Request{In: &rules.Input{}}), "unmatched"},
	}},
	{"the switch lets everything pass", "enabled: false\nblocklist: ['true']\n" + ten, nil, []step{
		{0, ask("ann"), "unmatched"},
	}},
	{"the safelist comes before the blocklist, and that before the rules; neither is charged",
		"safelist: ['attrs.user == \"ann\"']\nblocklist: ['client.ip == \"192.0.2.1\"']\n" + ten, nil, []step{
			{0, ask("ann"), "safe"},
			{0, ask("bob"), "blocked"},
			{0, ask("ann", at("192.0.2.2")), "safe"},
			{0, left("ann", 0), "10 left, 0 held"},
			{0, left("bob", 0), "10 left, 0 held"},
			{0, ask("bob", at("192.0.2.2")), "allowed by api, 9 left"},
		}},
	{"a limit allows its amount in each period", two, nil, []step{
		{0, ask("ann"), "allowed by api, 1 left"},
		{20 * time.Second, ask("ann"), "allowed by api, 0 left"},
		{10 * time.Second, ask("ann"), "limited by api, 0 left, retry after 30s"},
		{0, ask("bob"), "allowed by api, 1 left"},
		{30 * time.Second, ask("ann"), "allowed by api, 1 left"},
	}},
	{"a request takes its cost, all or nothing", ten, nil, []step{
		{0, ask("ann", cost(7)), "allowed by api, 3 left"},
		{0, ask("ann", cost(4)), "limited by api, 3 left, retry after 1m0s"},
		{0, ask("ann", cost(3)), "allowed by api, 0 left"},
	}},
	{"a cost above the limit is never allowed", ten, nil, []step{
		{0, ask("ann", cost(11)), "limited by api, 10 left, retry after ever"},
	}},
	{"a request that costs nothing passes an exhausted limit", two, nil, []step{
		{0, ask("ann", cost(2)), "allowed by api, 0 left"},
		{0, ask("ann", cost(0)), "allowed by api, 0 left"},
	}},
	{"the strictest of several limits decides: without a refusal, the one with the least left; else the one that refuses for longest",
		`rules: [{name: api, key: attrs.user, limits: [4 per 1m fixed_window, 2 per 10s fixed_window]}, {name: all, key: '"all"', limits: [6 per 1h fixed_window]}]`, nil, []step{
			{0, ask("ann"), "allowed by api, 1 left [api 3, api 1, all 5]"},
			{0, ask("ann"), "allowed by api, 0 left [api 2, api 0, all 4]"},
			{0, ask("ann"), "limited by api, 0 left, retry after 10s [api 2, api 0!, all 4]"},
			{10 * time.Second, ask("ann", cost(2)), "allowed by api, 0 left [api 0, api 0, all 2]"},
			{0, ask("ann"), "limited by api, 0 left, retry after 50s [api 0!, api 0!, all 2]"},
			{0, ask("bob", cost(2)), "allowed by api, 0 left [api 2, api 0, all 0]"},
			{0, ask("cid"), "limited by all, 0 left, retry after 59m50s [api 4, api 2, all 0!]"},
		}},
	{"a refused request takes nothing under the limits that allowed it", bounds, nil, []step{
		{0, ask("ann", cost(2)), "allowed by api, 0 left [all 7, api 0]"},
		{0, ask("ann"), "limited by api, 0 left, retry after 1m0s [all 7, api 0!]"},
		{0, ask("bob"), "allowed by api, 1 left [all 6, api 1]"},
	}},
	{"a leaky bucket delays where the rule shapes, up to the longest delay that the caller bears",
		`rules: [{name: even, key: attrs.user, limits: [1 per 1s leaky_bucket burst 5], shape: true}]`, nil, []step{
			{0, ask("ann", waits(time.Minute)), "allowed by even, 4 left"},
			{0, ask("ann", waits(time.Minute)), "allowed by even, 3 left, delayed by 1s"},
			{0, ask("ann", waits(time.Minute)), "allowed by even, 2 left, delayed by 2s"},
			{0, ask("ann", waits(time.Second)), "limited by even, 2 left, retry after 2s"},
		}},
	{"a rule that does not shape has no longest delay",
		`rules: [{name: even, key: attrs.user, limits: [1 per 1s leaky_bucket burst 5]}]`, nil, []step{
			{0, ask("ann", cost(3), waits(time.Second)), "allowed by even, 2 left"},
			{0, ask("ann", waits(time.Second)), "allowed by even, 1 left, delayed by 3s"},
		}},
	{"an override gives a key other limits", ten, []with{override(rules.Override{Note: rules.Note{ID: "1"}, Rule: "api", Key: "ann", Limits: []string{"1 per 1m fixed_window"}})}, []step{
		{0, ask("ann"), "allowed by api, 0 left"},
		{0, ask("ann"), "limited by api, 0 left, retry after 1m0s"},
		{0, ask("bob"), "allowed by api, 9 left"},
	}},
	{"a refusal has the rule's message, in the client's language",
		`rules: [{name: api, key: attrs.user, limits: [0 per 1m], messages: {limited: {en: 'Later.', de: 'Später.'}}}]`, nil, []step{
			{0, ask("ann"), `limited by api, 0 left, retry after ever, "Later."`},
			{0, ask("ann", sends("/", "Accept-Language", "de")), `limited by api, 0 left, retry after ever, "Später."`},
			{0, simulate(0, from("ann")), `limited by api, 0 left, retry after ever, "Later."`},
		}},
	{"clients see what is left under the enforced limits, each with its unit",
		`rules: [{name: calls, key: attrs.user, limits: [9 per 1m fixed_window, 5 in_flight]}, {name: tried, mode: shadow, key: attrs.user, unit: ghosts, limits: [4 per 1m fixed_window]}, {name: tokens, key: attrs.user, unit: tokens, limits: [7 per 1m fixed_window]}]`, nil, []step{
			{0, ask("ann", cost(2), holds), "allowed by calls, 4 left [calls 7, calls 4, tried 2, tokens 5]"},
			{0, shown, `left 7 4 5, units ["" "requests" "tokens"]`},
			{0, asked(2), "2 of tried: 4 per 1m fixed_window"},
			{0, asked(3), "2 of tokens: 7 per 1m fixed_window"},
			{0, asked(4), "none"},
		}},
	{"if no rule names a unit, none is shown", bounds, nil, []step{
		{0, ask("ann"), "allowed by api, 1 left [all 8, api 1]"},
		{0, shown, "left 8 1, units []"},
		{0, asked(1), "1 of api: 2 per 1m fixed_window"},
		{0, wanted, "1 of 2 per 1m fixed_window"},
	}},
	{"a Limiter may have a limit of its own for all requests", ten, []with{paced}, []step{
		{0, ask("ann", cost(4)), "allowed by api, 6 left"},
		{0, ask("bob"), "allowed by api, 9 left"},
		{0, ask("cid", cost(4)), "limited, 0 left, retry after 1m0s [api 0!~instance]"},
		{0, wanted, "1 of 2 per 1m fixed_window"},
	}},
	{"a request that is malformed for a rule takes nothing, and asks nobody", bounds, []with{watched}, []step{
		{0, ask(""), "malformed: the request; decided in 0s: malformed"},
		{0, ask("ann", cost(-1)), "malformed: the request; decided in 0s: malformed"},
	}},
	{"a request whose path servers read in different ways is refused if a rule reads paths",
		`rules: [{name: api, match: request.path.under("/a"), key: attrs.user, limits: [9 per 1m]}]`, nil, []step{
			{0, ask("ann", sends("/a/b", "X-A", "1")), "allowed by api, 8 left"},
			{0, ask("ann", sends("/a/..;/b", "X-A", "1")), "malformed: ambiguous"},
			{0, ask("ann", sends("/a/%2e%2e/b", "X-A", "1")), "malformed: ambiguous"},
		}},
	{"unless the operator allows that", `rules: [{name: api, match: request.path.under("/a"), key: attrs.user, limits: [9 per 1m]}]`, []with{lenient}, []step{
		{0, ask("ann", sends("/a/c;/b", "X-A", "1")), "allowed by api, 8 left"},
	}},
	{"a header that servers read in different ways is told",
		`rules: [{name: api, key: 'request.headers["x-user"]', limits: [9 per 1m]}]`, nil, []step{
			{0, ask("ann", twice), "malformed: the request; ambiguous: repeated_header"},
		}},
	{"an address of the network's NAT64 counts as the IPv4 address in it", "nat64_prefixes: [2001:db8:64::/96]\n" +
		`rules: [{name: ip, key: client.ip, limits: [2 per 1m fixed_window]}]`, nil, []step{
		{0, ask("ann"), "allowed by ip, 1 left"},
		{0, ask("ann", at("2001:db8:64::c000:201")), "allowed by ip, 0 left"},
		{0, client, "192.0.2.1"},
	}},
	{"a simulation is of its own instant, and shows a refusal without an ID", two, []with{watched}, []step{
		{0, simulate(0, from("ann", cost(2))), "allowed by api, 0 left; decided in 0s: allowed (simulated); call of 0s"},
		{0, simulate(time.Second, from("ann")), "limited by api, 0 left, retry after 59s; decided in 0s: limited (simulated); call of 0s"},
		{0, simulate(time.Minute, from("ann")), "allowed by api, 1 left; decided in 0s: allowed (simulated); call of 0s"},
	}},
	{"an instance's own limit refuses last, and what was taken is given back", two, []with{busy}, []step{
		{0, full(ask("ann")), "overloaded: full"},
		{0, ask("ann"), "allowed by api, 1 left"},
		{0, ask("ann"), "allowed by api, 0 left"},
		{0, full(ask("ann")), "limited by api, 0 left, retry after 1m0s"},
		{0, simulate(0, from("bob")), "allowed by api, 1 left"},
		{0, full(simulate(0, from("bob"))), "allowed by api, 0 left"},
	}},
	{"a place in a leaky bucket's queue stays taken", `rules: [{name: even, key: attrs.user, limits: [1 per 1s leaky_bucket burst 5]}]`, []with{busy}, []step{
		{0, full(ask("ann")), "overloaded: full"},
		{0, ask("ann"), "allowed by even, 3 left, delayed by 1s"},
	}},
	{"what an overloaded instance cannot give back is told", two, []with{busy}, []step{
		{0, full(during(broken, ask("ann"), 2)), "overloaded: full; uncharged: this instance is overloaded (the store failed)"},
		{0, ask("ann"), "allowed by api, 0 left"},
	}},
	{"a request that cannot go on takes nothing, and is decided before that", two, []with{watched}, []step{
		{0, ask("ann", ends(fitsNot)), "malformed: too long; decided in 0s: malformed; call of 0s"},
		{time.Second, ask("ann", ends(slowly)), "allowed by api, 1 left; decided in 0s: allowed; call of 0s"},
	}},
	{"a request that is allowed, but does not take place, can be undone", two, nil, []step{
		{0, ask("ann", cost(2)), "allowed by api, 0 left"},
		{0, undo, ""},
		{0, left("ann", 0), "2 left, 0 held"},
		{0, ask("ann", cost(2)), "allowed by api, 0 left"},
		{0, during(broken, undo), "uncharged: the upstream is gone (the store failed)"},
		{0, left("ann", 0), "0 left, 0 held"},
	}},
}

var penalties = []row{
	{"a key that goes on is warned and then banned; a ban that runs answers for all limits, and charges none",
		`rules: [{name: login, key: attrs.user, limits: [1 per 1h fixed_window], penalty: {warn_after: 2, ban_after: 3, ban_for: 10m}}, {name: all, key: '"all"', limits: [9 per 1h fixed_window]}]`, nil, []step{
			{0, ask("ann"), "allowed by login, 0 left [login 0, all 8]"},
			{0, ask("ann"), "limited by login, 0 left, retry after 1h0m0s [login 0!, all 8]"},
			{0, ask("ann"), "warned by login, 0 left, retry after 1h0m0s [login 0!, all 8]"},
			{0, ask("ann"), "banned by login, 0 left, banned for 10m0s, retry after 1h0m0s, which bans ann [login 0!, all 8]"},
			{time.Minute, ask("ann"), "banned by login, banned for 9m0s, retry after 59m0s"},
			{0, cause, ""},
			{0, ask("bob"), "allowed by login, 0 left [login 0, all 7]"},
			{0, cause, ""},
		}},
	{"of two rules that refuse, the graver violation decides, and the longest wait counts",
		`rules: [{name: slow, match: operation != "login", key: attrs.user, limits: [1 per 1h fixed_window], message: slow}, {name: login, key: attrs.user, limits: [1 per 1m fixed_window], penalty: {warn_after: 2, ban_after: 3, ban_for: 10m}, message: login}]`, nil, []step{
			{0, ask("ann", does("read")), "allowed by slow, 0 left [slow 0, login 0]"},
			{0, ask("ann", does("login")), `limited by login, 0 left, retry after 1m0s, "login"`},
			{0, ask("ann", does("read")), `warned by login, 0 left, retry after 1h0m0s, "login" [slow 0!, login 0!]`},
			{0, ask("ann", does("read")), `banned by login, 0 left, banned for 10m0s, retry after 1h0m0s, "login", which bans ann [slow 0!, login 0!]`},
			{0, ask("ann", does("read")), `banned by login, banned for 10m0s, retry after 1h0m0s, "login"`},
		}},
	{"of two penalties, the message is that of the violation that counts",
		`rules: [{name: slow, key: attrs.user, limits: [1 per 1h fixed_window], penalty: {warn_after: 9}, message: slow}, {name: fast, key: attrs.user, limits: [1 per 1m fixed_window], penalty: {warn_after: 1}, message: fast}]`, nil, []step{
			{0, ask("ann"), "allowed by slow, 0 left [slow 0, fast 0]"},
			{0, ask("ann"), `warned by fast, 0 left, retry after 1h0m0s, "fast" [slow 0!, fast 0!]`},
			{time.Minute, ask("ann"), `limited by slow, 0 left, retry after 59m0s, "slow" [slow 0!, fast 1]`},
		}},
	{"a manual ban of a key, or of a network, refuses before the rules are asked", ten, []with{
		ban(rules.Ban{Note: rules.Note{ID: "1"}, Rule: "api", Key: "eve"}),
		ban(rules.Ban{Note: rules.Note{ID: "2"}, Network: "198.51.100.0/24"}),
	}, []step{
		{0, ask("eve"), "banned by api, banned for ever"},
		{0, cause, "Banned by the operator of this service."},
		{0, ask("ann", at("198.51.100.7")), "banned, banned for ever"},
		{0, cause, "This network is banned by the operator of this service."},
		{0, ask("ann"), "allowed by api, 9 left"},
	}},
	{"a response with such a status is a violation of the rule; its own limits are not needed for that",
		`rules: [{name: login, key: attrs.user, penalty: {on_status: [401, 403], ban_after: 2, ban_for: 10m}}]`, nil, []step{
			{0, ask("ann"), "allowed"},
			{0, respond(200), ""},
			{time.Second, respond(401), "violation of login by 401: limited, 1"},
			{0, ask("ann"), "allowed"},
			{0, respond(403), "violation of login by 403: banned, 2"},
			{0, ask("ann"), "banned by login, banned for 10m0s"},
			{0, cause, "Banned because of the responses to earlier requests."},
			{0, ask("bob"), "allowed"},
			{0, during(broken, respond(401)), "failure: a response could not be counted as a violation (the store failed)"},
		}},
	{"rules without limits are not among the decisions",
		`rules: [{name: api, key: attrs.user, limits: [9 per 1m fixed_window]}, {name: one, key: attrs.user, penalty: {on_status: [401], ban_after: 5, ban_for: 1m}}, {name: two, key: attrs.user, penalty: {on_status: [401], ban_after: 5, ban_for: 1m}}, {name: all, key: '"all"', limits: [5 per 1m fixed_window]}]`, nil, []step{
			{0, ask("ann"), "allowed by all, 4 left [api 8, all 4]"},
			{0, respond(401), "violation of one by 401: limited, 1; violation of two by 401: limited, 1"},
		}},
	{"a refusal because others hold is no violation", `rules: [{name: other, key: attrs.user, limits: [9 per 1m], message: other}, {name: slots, key: attrs.user, limits: [1 in_flight retry 3s], penalty: {ban_after: 1, ban_for: 1m}, message: slots}]`, nil, []step{
		{0, ask("ann", runs), "allowed by slots, 0 left [other 8, slots 0]; held by slots"},
		{0, ask("ann", runs), `limited by slots, 0 left, retry after 3s, "slots" [other 8, slots 0!]`},
	}},
	{"a rule may count its own refusals and responses", `rules: [{name: login, key: attrs.user, limits: [5 per 1m, 9 per 1h], penalty: {on_status: [401], ban_after: 1, ban_for: 10m}}]`, nil, []step{
		{0, ask("ann"), "allowed by login, 4 left [login 4, login 8]"},
		{0, respond(401), "violation of login by 401: banned, 1"},
		{0, ask("ann"), "banned by login, banned for 10m0s"},
		{0, cause, "Banned because of earlier requests."},
	}},
}

// twice sends a header in two lines.
func twice(t *decide.Request) {
	sends("/", "X-User", "a")(t)
	t.In.Request.Header["X-User"] = []string{"a", "b"}
}

// client is the client of the latest request, as it was counted.
func client(f *fixture) string { return f.latest().In.Client.String() }

// cause is the server's own text about the latest request.
func cause(f *fixture) string { return f.latest().Cause() }
