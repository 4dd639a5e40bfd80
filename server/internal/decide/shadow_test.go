package decide_test

import "time"

const (
	tried = `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [1 per 1m fixed_window]}, {name: api, key: attrs.user, limits: [3 per 1m fixed_window]}]`
	// held in shadow mode, and refused by another.
	triedJob  = `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [5 per 1m fixed_window hold]}, {name: api, key: attrs.user, limits: [2 per 1m fixed_window]}]`
	triedCost = `rules: [{name: tried, mode: shadow, key: attrs.user, cost_after: 'int(response.headers["x-cost"])', limits: [9 per 1m fixed_window hold]}]`
)

// Rules in shadow mode: in a memory, each request asks them after the others; in front of a store of a fleet, at
// the same time, in a call of their own.
var shadowRows = []row{
	{"a rule in shadow mode refuses nobody, and is charged", tried, nil, []step{
		{0, ask("ann"), "allowed by api, 2 left [tried 0, api 2]"},
		{0, ask("ann"), "allowed by api, 1 left [tried 0!, api 1]; tried would refuse"},
		{0, left("ann", 0), "0 left, 0 held"},
	}},
	{"what the other rules refuse is charged to it nevertheless", tried, nil, []step{
		{0, ask("ann", cost(3)), "allowed by api, 0 left [tried 1!, api 0]; tried would refuse"},
		{0, ask("ann"), "limited by api, 0 left, retry after 1m0s [tried 0, api 0!]"},
		{0, left("ann", 0), "0 left, 0 held"},
	}},
	{"where only such rules apply, no rule decides", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [1 per 1m fixed_window, 5 per 1m sliding_log]}]`, nil, []step{
		{0, ask("ann"), "allowed [tried 0, tried 4]"},
		{0, ask("ann"), "allowed [tried 0!, tried 4]; tried would refuse"},
	}},
	{"each of them is decided by itself", `rules: [{name: few, mode: shadow, key: attrs.user, limits: [1 per 1m fixed_window]}, {name: many, mode: shadow, key: attrs.user, limits: [5 per 1m fixed_window]}]`, nil, []step{
		{0, ask("ann"), "allowed [few 0, many 4]"},
		{0, ask("ann"), "allowed [few 0!, many 3]; few would refuse"},
	}},
	{"its ban bans nobody, and is shown for all its limits", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [1 per 1m fixed_window, 5 per 1m sliding_log], penalty: {ban_after: 1, ban_for: 10m}}, {name: api, key: attrs.user, limits: [9 per 1m fixed_window]}]`, nil, []step{
		{0, ask("ann"), "allowed by api, 8 left [tried 0, tried 4, api 8]"},
		{0, ask("ann"), "allowed by api, 7 left [tried 0!, tried 4, api 7]; tried would refuse"},
		{0, ask("ann"), "allowed by api, 6 left [tried banned, tried banned, api 6]; tried would refuse"},
	}},
	{"it watches no responses", `rules: [{name: tried, mode: shadow, key: attrs.user, penalty: {on_status: [401], ban_after: 1, ban_for: 10m}}]`, nil, []step{
		{0, ask("ann"), "allowed"},
		{0, respond(401), ""},
	}},
	{"if the request is malformed for it, it is skipped", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [1 per 1m]}, {name: all, key: '"all"', limits: [3 per 1m fixed_window]}]`, nil, []step{
		{0, ask(""), "allowed by all, 2 left; skipped tried"},
	}},
	{"its asks fill at most half of a memory", tried, []with{keys(4)}, []step{
		{0, ask("ann"), "allowed by api, 2 left [tried 0, api 2]"},
		{0, ask("bob"), "allowed by api, 2 left [tried ?, api 2]; skipped tried"},
	}},
	{"a ban that runs answers for it, too", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [9 per 1m fixed_window]}, {name: api, key: attrs.user, limits: [1 per 1m fixed_window], penalty: {ban_after: 1, ban_for: 10m}}]`, nil, []step{
		{0, ask("ann"), "allowed by api, 0 left [tried 8, api 0]"},
		{0, ask("ann"), "banned by api, 0 left, banned for 10m0s, which bans ann [tried 7, api 0!]"},
		{0, ask("ann"), "banned by api, banned for 10m0s"},
		{0, left("ann", 0), "6 left, 0 held"},
	}},

	{"in front of a store, its failure changes nothing", tried, []with{layered}, []step{
		{0, beside(broken, ask("ann")), "allowed by api, 2 left [tried ?, api 2]; skipped tried"},
		{0, ask("ann"), "allowed by api, 1 left [tried 0, api 1]"},
	}},
	{"while the store does not decide, it is skipped", tried, []with{layered}, []step{
		{0, down(ask("ann")), "allowed by api, 2 left [tried ?, api 2]; failure: the store does not decide (the store failed); skipped tried"},
		{0, left("ann", 0), "1 left, 0 held"},
	}},
	{"its answer is waited for as long as for the others", tried, []with{layered, watched}, []step{
		{0, beside(slow, ask("ann")), "allowed by api, 2 left [tried 0, api 2]; decided in 10ms: allowed"},
		{0, beside(hanging, ask("ann")), "allowed by api, 1 left [tried ?, api 1]; decided in 25ms: allowed; skipped tried"},
	}},
	{"also if that is shorter than by default", hasty, []with{layered, watched}, []step{
		{0, beside(hanging, ask("ann")), "allowed by api, 9 left [api 9, all 9, tried ?]; decided in 10ms: allowed; skipped tried"},
	}},
	{"in a list, as long as for the one that waits shortest", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [1 per 1m fixed_window]}, {name: api, match: operation == "quick", key: attrs.user, limits: [3 per 1m fixed_window], decision_timeout: 10ms}, {name: all, key: '"all"', limits: [9 per 1m fixed_window]}]`, []with{layered, watched}, []step{
		{0, beside(hanging, asks(from("ann", does("quick")), from("ann", does("read")))),
			"allowed by api, 2 left [tried ?, api 2, all 8] | allowed by all, 7 left [tried ?, all 7] | calls: 1; decided in 10ms: allowed; decided in 10ms: allowed; skipped tried, 2 times"},
	}},
	{"or not at all, if nobody wants it", tried, []with{layered, watched}, []step{
		{0, beside(slow, asksNot(from("ann"))), "allowed by api, 2 left [tried ?, api 2]; decided in 0s: allowed"},
		{10 * time.Millisecond, left("ann", 0), "0 left, 0 held"},
		{0, beside(slow, asksNot(from("ann"))), "allowed by api, 1 left [tried ?, api 1]; decided in 0s: allowed"},
		{10 * time.Millisecond, nothing, "tried would refuse"},
	}},
	{"a thousand such calls may be under way", tried, []with{layered}, []step{
		{0, beside(hanging, crowd(1000)), "1000 calls in flight"},
		{0, asksNot(from("ann")), "allowed by api, 2 left [tried ?, api 2]; skipped tried"},
		{25 * time.Millisecond, ask("ann"), "allowed by api, 1 left [tried 0, api 1]; skipped tried, 1000 times"},
		{0, crowd(0), "0 calls in flight"},
	}},

	{"what a request holds for it is settled at its end", triedCost, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed [tried 5]; held by tried"},
		{0, end(200, "3"), "a 200 with the cost for tried; tried: 4 held, 3 charged; ended for tried"},
		{0, left("ann", 0), "6 left, 0 held"},
	}},
	{"also if it is held later than that", triedCost, []with{layered}, []step{
		{0, beside(slow, then(asksNot(from("ann", cost(4), runs)), end(200, "3"))), "allowed [tried ?]"},
		{10 * time.Millisecond, nothing, "held by tried; a 200 with the cost for tried; tried: 4 held, 3 charged; ended for tried"},
		{0, left("ann", 0), "6 left, 0 held"},
		{0, beside(slow, then(asksNot(from("ann", cost(4), runs)), abandon)), "allowed [tried ?]"},
		{10 * time.Millisecond, nothing, "held by tried; released by tried"},
		{0, left("ann", 0), "6 left, 0 held"},
	}},
	{"what is held for it is released if the others refuse", triedJob, nil, []step{
		{0, ask("ann", cost(2), runs), "allowed by api, 0 left [tried 3, api 0]; held by tried"},
		{0, ask("ann", runs), "limited by api, 0 left, retry after 1m0s [tried 2, api 0!]; held by tried; released by tried"},
		{time.Second, left("ann", 0), "3 left, 2 held"},
	}},
	{"and the refusal does not wait for that", triedJob, []with{layered, watched}, []step{
		{0, ask("ann", cost(2), runs), "allowed by api, 0 left [tried 3, api 0]; decided in 0s: allowed; held by tried"},
		{0, beside(slow, ask("ann", runs)), "limited by api, 0 left, retry after 1m0s [tried 2, api 0!]; decided in 10ms: limited; held by tried; released by tried"},
	}},
	{"a caller that holds for itself settles it, too", triedJob, nil, []step{
		{0, ask("ann", cost(2), holds), "allowed by api, 0 left [tried 3, api 0]"},
		{0, settle(1), "tried: 2 held, 1 charged in shadow"},
		{0, ask("bob", cost(2), holds), "allowed by api, 0 left [tried 3, api 0]"},
		{0, ask("ann", holds), "limited by api, 0 left, retry after 1m0s [tried 3, api 0!]"},
		{0, left("ann", 0), "4 left, 0 held"},
	}},
	{"unless it refused", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [1 per 1m fixed_window hold]}, {name: job, key: attrs.user, limits: [3 per 1m fixed_window hold]}]`, nil, []step{
		{0, ask("ann", cost(2), holds), "allowed by job, 1 left [tried 1!, job 1]; tried would refuse"},
		{0, settle(1), "job: 2 held, 1 charged"},
	}},
	{"an overloaded instance releases it, too", triedJob, []with{busy}, []step{
		{0, full(ask("ann", holds)), "overloaded: full"},
		{0, left("ann", 0), "5 left, 0 held"},
		{0, full(ask("ann", runs)), "overloaded: full; held by tried; released by tried"},
		{0, left("ann", 0), "5 left, 0 held"},
		{0, left("ann", 1), "2 left, 0 held"},
	}},
	{"in front of a store, such a caller waits for it", triedJob, []with{layered}, []step{
		{0, beside(slow, asksNot(from("ann", cost(2), holds))), "allowed by api, 0 left [tried 3, api 0]"},
		{0, settle(1), "tried: 2 held, 1 charged in shadow"},
		{0, beside(slow, asksNot(from("ann", holds))), "limited by api, 0 left, retry after 59.99s [tried 3, api 0!]"},
		{10 * time.Millisecond, left("ann", 0), "4 left, 0 held"},
	}},
	{"and settles what it may hold, although the answer was too late", triedJob, []with{layered}, []step{
		{0, beside(late, asksNot(from("ann", cost(2), holds))), "allowed by api, 0 left [tried ?, api 0]"},
		{time.Second, settle(1), "tried: 2 held, 1 charged in shadow"},
		{0, beside(late, asksNot(from("bob", cost(3), holds))), "limited by api, 2 left, retry after ever [tried ?, api 2!]"},
		{time.Second, left("bob", 0), "5 left, 0 held"},
	}},
	{"that is tried again after 100 ms, and after a second", triedJob, []with{layered}, []step{
		{0, beside(lost, then(asksNot(from("bob", cost(3), holds)), pause(time.Second))), "limited by api, 2 left, retry after ever [tried ?, api 2!]; skipped tried"},
		{time.Second, left("bob", 0), "5 left, 0 held"},
	}},
	{"if that cannot be released in three calls, it runs out by itself", triedJob, []with{layered}, []step{
		{0, beside(lost, then(asksNot(from("bob", cost(3), holds)), pause(5*time.Second))), "limited by api, 2 left, retry after ever [tried ?, api 2!]; skipped tried; failure: what a rule in shadow mode holds could not be given back (the store failed)"},
	}},
	{"in a list, such a hold is asked before the next", triedJob, nil, []step{
		{0, asks(from("ann", cost(3), holds), from("ann", cost(2), holds)), "limited by api, 2 left, retry after ever [tried 2, api 2!] | allowed by api, 0 left [tried 3, api 0] | calls: 2"},
	}},
	{"a list asks about at most 64 limits in a call", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [90 per 1m fixed_window]}]`, nil, []step{
		{0, many(64), "64 allowed, in 1 calls"},
		{0, many(65), "65 allowed, in 2 calls; tried would refuse, 39 times"},
	}},
}
