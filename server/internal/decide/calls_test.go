package decide_test

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

var (
	plain = envoy(`
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: kept, rate_limit: {unit: minute, requests_per_unit: 3, charge_refused: false}}
`)
	quotas = envoy(`
  - {key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 3}}
`)
	punishing = envoy(`
  - {key: a, penalty: {ban_after: 2, ban_for: 10m}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
`)
)

// A call has descriptors; each finds at most one rule. What is left for each is shown in their order: "-" has no
// limit, and "3→1" was charged although it was refused.
var callRows = []row{
	{"a call takes all or nothing", "{}", []with{plain}, []step{
		{0, call("a=1"), "allowed by d/a, 2 left [2]"},
		{0, call("a=1*2", "b=1", "free=1", "unheard=1"), "allowed by d/a, 0 left [0 4 - -]"},
		{0, call("a=1", "b=1"), "limited by d/a, 0 left, retry after 1m0s [0! 4]"},
		{0, call("b=1"), "allowed by d/b, 3 left [3]"},
	}},
	{"descriptors of one key take their sum", "{}", []with{plain}, []step{
		{0, call("b=1", "b=1*2"), "allowed by d/b, 2 left [2 2]"},
	}},
	{"a limit of 0 refuses all but what takes nothing", "{}", []with{plain}, []step{
		{0, call("none=1"), "limited by d/none, 1 left, retry after ever [1!]"},
		{0, wanted, "1 of 0 per 1m fixed_window"},
		{0, call("none=1*7"), "limited by d/none, 1 left, retry after ever [1!]"},
		{0, wanted, "7 of 0 per 1m fixed_window"},
		{0, call("none=1*0"), "allowed by d/none, 1 left [1]"},
		{0, call("kept=1*9", "none=1"), "limited by d/kept, 3 left, retry after ever [3! 1!]"},
		{0, wanted, "9 of 3 per 1m fixed_window"},
	}},
	{"a spent limit that is asked with 0 refuses, and waits until a unit is back", "{}", []with{plain}, []step{
		{0, call("a=1*3"), "allowed by d/a, 0 left [0]"},
		{20 * time.Second, call("a=1*0"), "limited by d/a, 0 left, retry after 40s [0!]"},
		{0, call("a=1*0", "b=1"), "limited by d/a, 0 left, retry after 40s [0! 5]"},
		{0, call("b=1*0"), "allowed by d/b, 5 left [5]"},
	}},
	{"but not under on_store_error: allow, nor under the limits of other rules", `rules: [{name: all, key: attrs.domain, cost: "0", limits: [1 per 1h fixed_window]}]`, []with{layered, envoy(`
  - {key: a, on_store_error: allow, rate_limit: {unit: minute, requests_per_unit: 1}}
`)}, []step{
		{0, during(broken, call("a=1*0")), "allowed by all, 1 left [1~policy]"},
		{0, spend("d", 0, 1), ""},
		{0, call("a=1*0"), "allowed by all, 0 left [1]"},
	}},
	{"units that were used before the call are charged although they are refused, if they are more than one", "{}", []with{plain}, []step{
		{0, call("a=1*2"), "allowed by d/a, 1 left [1]"},
		{0, call("a=1*2", "b=1*2"), "limited by d/a, 0 left, retry after 1m0s [1→0! 5→3]; 2 of 2 charged to d/a; 2 of 2 charged to d/b"},
		{0, call("b=1*9"), "limited by d/b, 0 left, retry after ever [3→0!]; 9 of 9 charged to d/b"},
		{0, wanted, "9 of 5 per 1m fixed_window"},
		{0, call("a=2"), "allowed by d/a, 2 left [2]"},
	}},
	{"unless the rule says otherwise, or the caller takes them ahead", "{}", []with{plain}, []step{
		{0, call("kept=1*7"), "limited by d/kept, 3 left, retry after ever [3!]"},
		{0, asks(ahead(calling("a=1*7"))), "limited by d/a, 3 left, retry after ever [3!]"},
		{0, call("a=1*3"), "allowed by d/a, 0 left [0]"},
	}},
	{"what is charged and what is given back do not mix", "{}", []with{plain}, []step{
		{0, call("a=1*2", "b=1"), "allowed by d/a, 1 left [1 4]"},
		{0, call("a=1*2", "b=1"), "limited by d/a, 0 left, retry after 1m0s [1→0! 4]; 2 of 2 charged to d/a"},
		{0, call("b=1*0"), "allowed by d/b, 4 left [4]"},
	}},
	{"a call gives back what it wants to, if it is allowed; never more than was taken", "{}", []with{plain}, []step{
		{0, call("a=1*3"), "allowed by d/a, 0 left [0]"},
		{0, call("a=1*-2"), "unmatched [2]"},
		{0, call("a=1*-5", "b=1"), "allowed by d/b, 4 left [3 4]"},
		{0, call("a=1*3", "b=1*4"), "allowed by d/a, 0 left [0 0]"},
		{0, call("a=1*-1", "b=1"), "limited by d/b, 0 left, retry after 1m0s [none 0!]"},
		{0, call("a=1*0"), "limited by d/a, 0 left, retry after 1m0s [0!]"},
	}},
	{"if each descriptor is decided by itself, a refused one leaves the others taken and given back", "{}", []with{plain}, []step{
		{0, asks(each(calling("a=1*3", "b=1"))), "allowed by d/a, 0 left [0 4]"},
		{0, asks(each(calling("a=1", "b=1"))), "limited by d/a, 0 left, retry after 1m0s [0! 3]"},
		{0, asks(each(calling("a=1", "b=1*-2"))), "limited by d/a, 0 left, retry after 1m0s [0! 5]"},
		{0, asks(each(calling("a=1*2", "b=1*2"))), "limited by d/a, 0 left, retry after 1m0s [0! 3]; 2 of 2 charged to d/a"},
	}},
	{"rules with quota_mode refuse a call only together", "{}", []with{quotas}, []step{
		{0, call("a=1", "b=1"), "allowed by d/a, 0 left [0 1]"},
		{0, call("a=1", "b=1"), "allowed by d/b, 0 left [0! 0]"},
		{0, call("a=1", "b=1"), "limited by d/a, 0 left, retry after 1m0s [0! 0!]"},
		{0, call("a=1"), "limited by d/a, 0 left, retry after 1m0s [0!]"},
		{0, call("a=1", "b=1", "c=1"), "limited by d/a, 0 left, retry after 1m0s [0! 0! 3]"},
		{0, call("c=1*0"), "allowed by d/c, 3 left [3]"},
	}},
	{"beside another rule that refuses, they take nothing", "{}", []with{quotas}, []step{
		{0, call("c=1*3"), "allowed by d/c, 0 left [0]"},
		{0, call("b=1", "c=1"), "limited by d/c, 0 left, retry after 1m0s [2 0!]"},
		{0, call("b=1*2"), "allowed by d/b, 0 left [0]"},
		{0, call("b=1", "c=1"), "limited by d/c, 0 left, retry after 1m0s [0! 0!]"},
	}},
	{"a call may treat every rule so; then what has no limit or is given back does not refuse", "{}", []with{plain}, []step{
		{0, asks(quota(calling("a=1*3", "b=1*5"))), "allowed by d/a, 0 left [0 0]"},
		{0, asks(quota(calling("a=1", "b=1"))), "limited by d/a, 0 left, retry after 1m0s [0! 0!]"},
		{0, asks(quota(calling("a=1", "free=1"))), "allowed [0! -]"},
		{0, asks(quota(calling("a=1", "unheard=1"))), "allowed [0! -]"},
		{0, asks(quota(calling("a=1", "b=2*-1"))), "allowed [0! 5]"},
		{0, asks(quota(calling("a=1"))), "limited by d/a, 0 left, retry after 1m0s [0!]"},
	}},
	{"other rules apply to a call, too", `rules: [{name: all, key: attrs.domain, limits: [3 per 1m fixed_window]}, {name: watch, key: attrs.domain, penalty: {on_status: [500], ban_after: 5, ban_for: 1m}}]`, []with{quotas}, []step{
		{0, call("a=1", "b=1"), "allowed by d/a, 0 left [0 1]"},
		{0, call("a=1", "b=1*3"), "limited by d/b, 0 left, retry after ever [0! 1→0!]; 3 of 3 charged to d/b"},
	}},
	{"rules without limits are not among the decisions", `rules: [{name: one, key: attrs.domain, penalty: {on_status: [500], ban_after: 5, ban_for: 1m}}, {name: two, key: attrs.domain, penalty: {on_status: [501], ban_after: 5, ban_for: 1m}}, {name: all, key: attrs.domain, limits: [99 per 1m fixed_window]}, {name: three, key: attrs.domain, penalty: {on_status: [501], ban_after: 5, ban_for: 1m}}]`, []with{plain}, []step{
		{0, call("a=1", "b=1"), "allowed by d/a, 2 left [2 4]"},
		{0, respond(501), "violation of two by 501: limited, 1; violation of three by 501: limited, 1"},
		{0, call("b=1*2", "a=1*5"), "limited by d/a, 0 left, retry after ever [4→2 2→0!]; 2 of 2 charged to d/b; 5 of 5 charged to d/a"},
		{0, shown, "left 98 2 0, units []"},
	}},
	{"a call may bring a limit of its own, in place of the rule's", "{}", []with{plain}, []step{
		{0, call("a=1@9"), "allowed by d::overrides, 8 left [8]"},
		{0, call("a=1*9@9", "b=1"), "limited by d::overrides, 0 left, retry after 1m0s [8→0! 5]; 9 of 9 charged to d::overrides"},
		{0, call("a=1"), "allowed by d/a, 2 left [2]"},
		{0, call("a=9*2@0"), "limited by d::overrides, 1 left, retry after ever [1!]"},
	}},
	{"an operator's override may give several limits; each is charged", "{}", []with{plain, override(rules.Override{Note: rules.Note{ID: "1"}, Rule: "d/a", Key: "1", Limits: []string{"2 per 1m fixed_window", "9 per 1h fixed_window"}})}, []step{
		{0, call("a=1"), "allowed by d/a, 1 left [1]"},
		{0, call("a=1*3", "a=2"), "limited by d/a, 0 left, retry after ever [1→0! 3]; 3 of 3 charged to d/a, 2 times"},
		{0, shown, "left 0 5 3, units []"},
	}},
	{"they are taken all or nothing, also if each descriptor is decided by itself", "{}", []with{plain, override(rules.Override{Note: rules.Note{ID: "1"}, Rule: "d/a", Key: "1", Limits: []string{"5 per 1m fixed_window", "2 per 1h fixed_window"}})}, []step{
		{0, call("a=1"), "allowed by d/a, 1 left [4]"},
		{0, asks(each(calling("a=1"))), "allowed by d/a, 0 left [3]"},
		{0, asks(each(calling("a=1"))), "limited by d/a, 0 left, retry after 1h0m0s [3]"},
		{0, shown, "left 3 0, units []"},
		{0, asks(each(calling("a=1"))), "limited by d/a, 0 left, retry after 1h0m0s [3]"},
	}},
	{"of one key's descriptors, only what was used before is charged", "{}", []with{plain}, []step{
		{0, call("a=1", "a=1*2", "a=2"), "allowed by d/a, 0 left [0 0 2]"},
		{0, call("a=1", "a=1*2", "a=2*2"), "limited by d/a, 0 left, retry after 1m0s [0! 0! 2→0]; 2 of 2 charged to d/a, 2 times"},
		{0, call("a=1*-2"), "unmatched [0]"},
	}},
	{"nor is what is given back", "{}", []with{plain}, []step{
		{0, asks(each(calling("a=5", "a=5*6", "a=5*-5"))), "limited by d/a, 0 left, retry after ever [3→0! 3→0! 3]; 6 of 6 charged to d/a"},
		{0, call("a=5*-4"), "unmatched [1]"},
	}},
	{"a ban that runs refuses its key; the others of its call are not asked", "{}", []with{punishing}, []step{
		{0, call("a=1", "b=1"), "allowed by d/a, 0 left [0 1]"},
		{0, call("a=1"), "limited by d/a, 0 left, retry after 1m0s [0!]"},
		{0, call("a=1", "b=1"), "banned by d/a, 0 left, banned for 10m0s, which bans 1 [0! 1]"},
		{0, call("a=1", "b=1"), "banned by d/a, banned for 10m0s [banned ?]"},
		{0, call("a=1", "b=1*2"), "banned by d/a, banned for 10m0s [banned ?]"},
		{0, asks(each(calling("a=1", "b=1"))), "banned by d/a, banned for 10m0s [banned 0]"},
	}},
	{"of several keys under one penalty, the one that began the ban is named", "{}", []with{envoy(`
  - {key: a, penalty: {ban_after: 1, ban_for: 10m}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
`)}, []step{
		{0, call("a=1", "hour=1"), "allowed by d/a, 0 left [0 0]"},
		{0, call("a=2", "a=1"), "banned by d/a, 0 left, banned for 10m0s, which bans 1 [1 0!]"},
		{0, call("a=2", "a=1"), "banned by d/a, banned for 10m0s [? banned]"},
		{0, call("a=3", "hour=1"), "limited by d/hour, 0 left, retry after 1h0m0s [1 0!]"},
	}},
	{"of several refusals the gravest decides, with the longest wait of all", "{}", []with{envoy(`
  - {key: a, penalty: {warn_after: 1}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
`)}, []step{
		{0, call("a=1", "hour=1"), "allowed by d/a, 0 left [0 0]"},
		{0, asks(each(calling("hour=1", "a=1"))), "warned by d/a, 0 left, retry after 1h0m0s [0! 0!]"},
		{0, call("hour=1*0", "a=1"), "warned by d/a, 0 left, retry after 1h0m0s [0! 0!]"},
	}},
	{"rules in shadow mode are decided one key at a time; what they refuse is charged as if they were enforced", "{}", []with{envoy(`
  - {key: a, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
`)}, []step{
		{0, call("a=1*2", "b=1"), "allowed by d/b, 1 left [0 1]"},
		{0, call("a=1", "a=2", "b=1"), "allowed by d/b, 0 left [0! 1 0]; d/a would refuse"},
		{0, call("a=3*5"), "allowed [2→0!]; d/a would refuse"},
		{0, call("a=3"), "allowed [0!]; d/a would refuse"},
	}},
	{"a call may hold; what it holds is not used yet, so it is not charged", "{}", []with{envoy(`
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 3, hold: true}}
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 3, hold: true}}
  - {key: r, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 3, hold: true}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 1}}
`)}, []step{
		{0, asks(held(calling("a=1*2", "q=1*2"))), "allowed by d/a, 1 left [1 1]"},
		{0, settle(1), "d/a: 2 held, 1 charged | d/q: 2 held, 1 charged"},
		{0, asks(held(calling("a=1*7"))), "limited by d/a, 2 left, retry after ever [2!]"},
		{0, asks(held(calling("q=1*2", "b=1*2"))), "limited by d/b, 1 left, retry after ever [2 1!]"},
		{0, asks(held(calling("q=1*2"))), "allowed by d/q, 0 left [0]"},
		{0, asks(held(calling("q=1*2", "r=1"))), "allowed by d/r, 2 left [0! 2]"},
		{0, settle(1), "d/r: 1 held, 1 charged"},
	}},
	{"calls of a list are decided as if one after another: in one call of the store, if the answer to none changes counts", "{}", []with{plain}, []step{
		{0, asks(calling("a=1"), calling("a=1"), calling("b=1")), "allowed by d/a, 2 left [2] | allowed by d/a, 1 left [1] | allowed by d/b, 4 left [4] | calls: 1"},
		{0, asks(calling("a=1*2"), calling("b=1"), calling("a=1")), "limited by d/a, 0 left, retry after 1m0s [1→0!] | allowed by d/b, 3 left [3] | limited by d/a, 0 left, retry after 1m0s [0!] | calls: 3; 2 of 2 charged to d/a"},
		{0, asks(calling("a=1*-1"), calling("a=1")), "unmatched [0] | limited by d/a, 0 left, retry after 1m0s [0!] | calls: 3"},
	}},
	{"a call whose parts are taken by themselves may give them back, so the next waits", "{}", []with{quotas}, []step{
		{0, call("c=1*3"), "allowed by d/c, 0 left [0]"},
		{0, asks(calling("a=1", "c=1"), calling("a=1")), "limited by d/c, 0 left, retry after 1m0s [1 0!] | allowed by d/a, 0 left [0] | calls: 3"},
	}},
	{"rules in shadow mode do not count for that", "{}", []with{envoy(`
  - {key: a, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
`)}, []step{
		{0, asks(calling("a=1", "b=1"), calling("a=2", "b=1")), "allowed by d/b, 1 left [1 1] | allowed by d/b, 0 left [1 0] | calls: 1"},
		{0, asks(calling("a=1", "a=2"), calling("a=1", "a=2")), "allowed [0 0] | allowed [0! 0!] | calls: 0; d/a would refuse, 2 times"},
	}},
	{"a call that gives back waits for one that takes before, and one that takes for one that gives back", "{}", []with{plain}, []step{
		{0, asks(calling("a=1*3"), calling("a=1*-1"), calling("b=1")), "allowed by d/a, 0 left [0] | unmatched [1] | allowed by d/b, 4 left [4] | calls: 4"},
		{0, asks(calling("a=2*3")), "allowed by d/a, 0 left [0]"},
		{0, asks(calling("a=2*-1"), calling("a=2")), "unmatched [1] | allowed by d/a, 0 left [0] | calls: 3"},
	}},
}

var chargedCalls = []row{
	{"units that a call gives back while the store fails go to this instance's share", "{}", []with{layered, plain}, []step{
		{0, call("a=1*3"), "allowed by d/a, 0 left [0]"},
		{0, during(broken, call("a=1*-2")), "unmatched [2]; failure: the store does not decide (the store failed)"},
		{0, down(call("b=1*-2")), "unmatched [5]"},
		{0, call("a=1*0"), "limited by d/a, 0 left, retry after 1m0s [0!]"},
	}},
	{"a simulation gives back in the store, or not at all", "{}", []with{layered, plain}, []step{
		{0, simulate(0, calling("a=1*3")), "allowed by d/a, 0 left [0]"},
		{0, during(broken, simulate(0, calling("a=1*-2"))), "undecided: the store failed"},
		{0, simulate(0, calling("a=1*-2")), "unmatched [2]"},
		{0, simulate(0, calling("a=1*5")), "limited by d/a, 0 left, retry after ever [2→0!]; 5 of 5 charged to d/a"},
	}},
	{"unless the rule denies then", "{}", []with{layered, envoy(`
  - {key: a, on_store_error: deny, rate_limit: {unit: minute, requests_per_unit: 3}}
`)}, []step{
		{0, call("a=1*3"), "allowed by d/a, 0 left [0]"},
		{0, during(broken, call("a=1*-2")), "undecided: the store failed"},
		{0, down(call("a=1*-2")), "undecided: the store failed"},
		{0, call("a=1*-2"), "unmatched [2]"},
	}},
	{"in a memory, a refund that fails is an error, and what the call took is given back", "{}", []with{plain}, []step{
		{0, call("a=1*3", "b=1"), "allowed by d/a, 0 left [0 4]"},
		{0, during(broken, call("a=1*-1", "b=1"), 2), "undecided: the store failed"},
		{0, call("b=1*0"), "allowed by d/b, 4 left [4]"},
	}},
	{"a state that cannot be read after a refund is told", "{}", []with{plain}, []step{
		{0, call("a=1*3"), "allowed by d/a, 0 left [0]"},
		{0, during(broken, call("a=1*-1"), 2), "unmatched [3]; not charged to d/a: the store failed; uncharged: the store does not decide (the store failed)"},
	}},
	{"a charge that fails is told, and the refusal stands", "{}", []with{plain}, []step{
		{0, during(broken, call("a=1*7"), 2), "limited by d/a, 3 left, retry after ever [3!]; not charged to d/a: the store failed; uncharged: the store does not decide (the store failed)"},
	}},
	{"what a refused call took and the store does not take back stays taken, and that is told", "{}", []with{quotas}, []step{
		{0, during(broken, call("b=1", "c=1*4"), 2), "limited by d/c, 0 left, retry after ever [1 3→0!]; uncharged: a request was refused (the store failed); 4 of 4 charged to d/c"},
		{0, call("b=1*0"), "allowed by d/b, 1 left [1]"},
	}},
	{"if one part of a call is not decided, the others take nothing", "{}", []with{layered, envoy(`
  - {key: local, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: deny, on_store_error: deny, rate_limit: {unit: minute, requests_per_unit: 2}}
`)}, []step{
		{0, during(broken, asks(each(calling("local=1", "deny=1")))), "undecided: the store failed"},
		{0, during(broken, call("local=1*2")), "allowed by d/local, 0 left [0~local]"},
	}},
}
