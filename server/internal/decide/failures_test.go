package decide_test

import (
	"time"

	"github.com/stintdev/stint/server/internal/decide"
)

var lists = []row{
	{"a list is decided as if one after another, in one call", two, nil, []step{
		{0, asks(from("ann"), from("ann"), from("bob"), from("ann")),
			"allowed by api, 1 left | allowed by api, 0 left | allowed by api, 1 left | limited by api, 0 left, retry after 1m0s | calls: 1"},
	}},
	{"a list asks about rules in shadow mode in a call of its own", tried, nil, []step{
		{0, asks(from("ann"), from("ann")), "allowed by api, 2 left [tried 0, api 2] | allowed by api, 1 left [tried 0!, api 1] | calls: 1; tried would refuse"},
	}},
	{"a list of requests whose callers hold is one call, too", job, nil, []step{
		{0, asks(from("ann", holds), from("ann", holds)), "allowed by job, 9 left | allowed by job, 8 left | calls: 1"},
	}},
	{"a list may be longer than the memory that is kept for the next", ten, nil, []step{
		{0, asks(from("ann"), from("ann"), from("ann"), from("ann"), from("ann")),
			"allowed by api, 9 left | allowed by api, 8 left | allowed by api, 7 left | allowed by api, 6 left | allowed by api, 5 left | calls: 1"},
		{0, asks(from("ann"), from("ann")), "allowed by api, 4 left | allowed by api, 3 left | calls: 1"},
	}},
	{"one that cannot be read, or is malformed, leaves the others", two, nil, []step{
		{0, asks(decide.Request{Err: errTight}, from(""), from("ann")), "unread: too long | malformed: the request | allowed by api, 1 left | calls: 1"},
		{0, asks(from("ann", badly), from("bob")), "malformed: the request | allowed by api, 1 left | calls: 1"},
	}},
	{"one panicking check of a list leaves the others, and takes nothing", two, nil, []step{
		{0, asks(from("ann"), from("bob", ends(crashing)), from("ann")), "allowed by api, 1 left | undecided: a bug | allowed by api, 0 left | calls: 2; panicked: a bug"},
		{0, left("bob", 0), "2 left, 0 held"},
	}},
	{"also of a list of two", two, nil, []step{
		{0, asks(from("bob", ends(crashing)), from("ann")), "undecided: a bug | allowed by api, 1 left | calls: 2; panicked: a bug"},
	}},
	{"also if no rule applies to it", `rules: [{name: api, match: operation == "read", key: attrs.user, limits: [2 per 1m fixed_window]}]`, nil, []step{
		{0, asks(from("ann", ends(crashing)), from("ann", does("read"))), "undecided: a bug | allowed by api, 1 left | calls: 1; panicked: a bug"},
	}},
	{"if the store panics, those that asked it are not decided", bounds + "\nsafelist: ['attrs.user == \"eve\"']", nil, []step{
		{0, during(bug, asks(from("ann"), from("eve"), from("")), 1), "undecided: a bug | safe | malformed: the request | calls: 1; panicked: the store"},
	}},
	{"a panic about a request that came alone is its caller's", two, nil, []step{
		{0, ask("ann", ends(crashing)), "panic: a bug"},
	}},
}

const (
	alone         = `rules: [{name: api, key: attrs.user, limits: [10 per 1m fixed_window]}]`
	allows        = `rules: [{name: api, key: attrs.user, limits: [10 per 1m fixed_window], on_store_error: allow}]`
	denies        = `rules: [{name: api, key: attrs.user, limits: [10 per 1m fixed_window], on_store_error: deny}]`
	once          = `rules: [{name: api, key: attrs.user, limits: [1 per 1m fixed_window]}]`
	onceOrAllowed = `rules: [{name: api, key: attrs.user, limits: [1 per 1m fixed_window], on_store_error: allow}]`
	// mixed allows under one rule and not under another.
	mixed = `rules: [{name: api, key: attrs.user, limits: [1 per 1m fixed_window], on_store_error: allow}, {name: pair, key: '[attrs.user, "x"]', limits: [1 per 1m fixed_window]}]`
	// hasty waits for the store for 10 ms under one rule, and for 20 ms under another; one in shadow mode does not count.
	hasty = `rules: [{name: api, key: attrs.user, limits: [10 per 1m fixed_window], decision_timeout: 20ms}, {name: all, key: '"all"', limits: [10 per 1m fixed_window], decision_timeout: 10ms},
 {name: tried, mode: shadow, key: attrs.user, limits: [10 per 1m fixed_window], decision_timeout: 5ms}]`
)

var failures = []row{
	{"on_store_error: local decides by this instance's share while the store fails", ten, []with{layered}, []step{
		{0, ask("ann"), "allowed by api, 9 left"},
		{0, during(broken, ask("ann", cost(9))), "allowed by api, 0 left [api 0~local]"},
		{0, during(broken, ask("ann")), "limited by api, 0 left, retry after 1m0s [api 0!~local]"},
		{0, left("ann", 0), "9 left, 0 held"},
	}},
	{"on_store_error: allow decides without a count", allows, []with{layered}, []step{
		{0, during(broken, ask("ann", cost(10))), "allowed by api, 10 left [api 10~policy]"},
		{0, during(broken, ask("ann")), "allowed by api, 10 left [api 10~policy]"},
		{0, ask("ann"), "allowed by api, 9 left"},
	}},
	{"on_store_error: deny does not decide", denies, []with{layered}, []step{
		{0, during(broken, ask("ann")), "undecided: the store failed"},
		{0, ask("ann"), "allowed by api, 9 left"},
	}},
	{"the store of a fleet may be full: that is a failure like others", denies, []with{layered}, []step{
		{0, during(crowded, ask("ann")), "undecided: no room"},
	}},
	{"a memory decides, or has no room: then nothing is decided", once, []with{small}, []step{
		{0, during(broken, ask("ann")), "undecided: the store failed; call failed: the store failed"},
		{0, ask("ann"), "allowed by api, 0 left"},
		{0, ask("bob"), "allowed by api, 0 left"},
		{0, ask("cid"), "undecided: no room; call failed: no room; failure: the store does not decide (no room)"},
	}},
	{"unless all rules of the request have on_store_error: allow", onceOrAllowed, []with{small}, []step{
		{0, asks(from("ann"), from("bob")), "allowed by api, 0 left | allowed by api, 0 left | calls: 1"},
		{0, ask("cid"), "allowed by api, 1 left [api 1~policy]; call failed: no room; failure: the store does not decide (no room)"},
		{0, asks(from("cid"), from("ann")), "allowed by api, 1 left [api 1~policy] | limited by api, 0 left, retry after 1m0s | calls: 1; call failed: no room; failure: the store does not decide (no room)"},
	}},
	{"one rule that does not is enough", mixed, []with{small}, []step{
		{0, ask("ann"), "allowed by api, 0 left [api 0, pair 0]"},
		{0, ask("bob"), "undecided: no room; call failed: no room; failure: the store does not decide (no room)"},
	}},
	{"a request whose client has left is not decided, and that is no failure of the store", allows, []with{layered}, []step{
		{0, leaves("ann"), "undecided: the client left"},
	}},
	{"a request waits for the store of a fleet for the shortest decision_timeout, else for the default", hasty, []with{layered, watched}, []step{
		{0, during(hanging, ask("ann")), "allowed by api, 9 left [api 9~local, all 9~local, tried 9]; decided in 10ms: allowed"},
	}},
	{"without one, it waits for the default", ten, []with{layered, watched}, []step{
		{0, during(hanging, ask("ann")), "allowed by api, 9 left [api 9~local]; decided in 25ms: allowed"},
	}},
	{"a simulation has no policy for failures, nor a shorter time", hasty, []with{layered, watched}, []step{
		{0, during(broken, simulate(0, from("ann"))), "undecided: the store failed; decided in 0s: undecided (simulated)"},
		{0, beside(broken, simulate(0, from("ann"))), "undecided: the store failed; decided in 0s: undecided (simulated); skipped tried"},
		{0, during(fault{late: time.Second}, simulate(0, from("bob"))), "allowed by api, 9 left [api 9, all 9, tried 9]; decided in 1s: allowed (simulated)"},
	}},
	{"of the errors of a list, the store's is the one that counts", two, nil, []step{
		{0, during(broken, asks(from("ann", badly), from("bob"), from("cid", badly))),
			"malformed: the request | undecided: the store failed | malformed: the request | calls: 1; call failed: the store failed"},
		{0, during(broken, ask("ann", badly)), "malformed: the request"},
	}},
}

// badly is a request that the Limiter refuses.
func badly(t *decide.Request) { t.HoldFor, t.Opaque = 25*time.Hour, true }
