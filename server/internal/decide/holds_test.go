package decide_test

import (
	"time"
)

const (
	job   = `rules: [{name: job, key: attrs.user, limits: [10 per 1m fixed_window hold]}]`
	slots = `rules: [{name: slots, key: attrs.user, limits: [2 in_flight retry 3s]}]`
	// both has a limit that is charged, one that is held, and one of requests in flight.
	both = `rules: [{name: calls, key: attrs.user, cost: "1", limits: [3 per 1m fixed_window]}, {name: job, key: attrs.user, limits: [10 per 1m fixed_window hold]}, {name: slots, key: attrs.user, limits: [2 in_flight]}]`
	// last has a held limit, and a limit that refuses.
	last = `rules: [{name: job, key: attrs.user, limits: [10 per 1m fixed_window hold]}, {name: all, key: '"all"', limits: [1 per 1m fixed_window]}]`
)

var holdRows = []row{
	{"a request holds its cost while it runs, and is charged at its end what it held", job, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed by job, 6 left; held by job"},
		{0, left("ann", 0), "6 left, 4 held"},
		{0, end(200, ""), "job: 4 held, 4 charged; ended for job"},
		{0, left("ann", 0), "6 left, 0 held"},
		{0, end(200, ""), ""},
	}},
	{"a limit in flight refuses while requests run", slots, nil, []step{
		{0, ask("ann", cost(5), runs), "allowed by slots, 1 left; held by slots"},
		{0, ask("ann", runs), "allowed by slots, 0 left; held by slots"},
		{0, ask("ann", runs), "limited by slots, 0 left, retry after 3s"},
		{0, end(200, ""), ""},
		{0, ask("bob", runs), "allowed by slots, 1 left; held by slots"},
		{0, end(200, ""), "ended for slots"},
		{0, left("bob", 0), "2 left, 0 held"},
	}},
	{"limits that are charged, held and in flight are asked together", both, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed by slots, 1 left [calls 2, job 6, slots 1]; held by job; held by slots"},
		{0, end(200, ""), "job: 4 held, 4 charged; ended for job; ended for slots"},
		{0, ask("ann", cost(7), runs), "limited by job, 6 left, retry after 1m0s [calls 2, job 6!, slots 2]"},
		{0, wanted, "7 of 10 per 1m fixed_window hold"},
	}},
	{"a rule without limits beside them holds nothing, and changes nothing", `rules: [{name: login, key: attrs.user, penalty: {on_status: [401], ban_after: 5, ban_for: 1m}}, {name: job, key: attrs.user, limits: [10 per 1m fixed_window hold]}, {name: slots, key: attrs.user, limits: [2 in_flight]}]`, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed by slots, 1 left [job 6, slots 1]; held by job; held by slots"},
		{0, end(200, ""), "job: 4 held, 4 charged; ended for job; ended for slots"},
	}},
	{"a request that does not take place holds nothing any more", job, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed by job, 6 left; held by job"},
		{0, abandon, "released by job"},
		{0, left("ann", 0), "10 left, 0 held"},
		{0, ask("ann", cost(4), runs), "allowed by job, 6 left; held by job"},
		{0, undo, "released by job"},
		{0, left("ann", 0), "10 left, 0 held"},
	}},
	{"a hold that the store has lost is told", job, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed by job, 6 left; held by job"},
		{0, release("ann", 0), ""},
		{0, end(200, ""), "not charged to ann of job: the hold is lost; job: 4 held, 4 charged; ended for job, lost"},
		{0, ask("ann", cost(4), runs), "allowed by job, 6 left; held by job"},
		{0, release("ann", 0), ""},
		{0, undo, "released by job, lost; uncharged: what a request held could not be given back (the hold is lost)"},
	}},
	{"a refused request holds nothing", last, nil, []step{
		{0, ask("ann", runs), "allowed by all, 0 left [job 9, all 0]; held by job"},
		{0, ask("ann", runs), "limited by all, 0 left, retry after 1m0s [job 9, all 0!]"},
		{0, left("ann", 0), "9 left, 1 held"},
	}},
	{"an overloaded instance releases what a request holds, and gives back what it took", both, []with{busy}, []step{
		{0, full(ask("ann", cost(4), runs)), "overloaded: full; held by job; held by slots; released by job; released by slots"},
		{0, left("ann", 0), "3 left, 0 held"},
		{0, left("ann", 1), "10 left, 0 held"},
		{0, left("ann", 2), "2 left, 0 held"},
		{0, full(during(broken, ask("ann", cost(4), runs), 2)), "overloaded: full; held by job; held by slots; released by job; released by slots"},
		{time.Second, left("ann", 1), "10 left, 0 held"},
	}},
	{"where the end of requests is not seen, a held limit is charged at once, and a limit in flight only asked; both are told", both, nil, []step{
		{0, ask("ann", cost(4)), "allowed by calls, 2 left [calls 2, job 6, slots 2]; no end is seen for job: 10 per 1m fixed_window hold"},
		{0, ask("ann", cost(4)), "allowed by calls, 1 left [calls 1, job 2, slots 2]; no end is seen for job: 10 per 1m fixed_window hold"},
		{0, left("ann", 1), "2 left, 0 held"},
		{0, simulate(0, from("ann", cost(4))), "allowed by calls, 2 left [calls 2, job 6, slots 2]"},
	}},
	{"but not for a rule in shadow mode", `rules: [{name: tried, mode: shadow, key: attrs.user, limits: [5 in_flight]}, {name: job, key: attrs.user, limits: [5 in_flight]}]`, nil, []step{
		{0, ask("ann"), "allowed by job, 5 left [tried 5, job 5]; no end is seen for job: 5 in_flight"},
	}},
	{"a caller may hold for itself, and settles", both, nil, []step{
		{0, ask("ann", cost(4), holds), "allowed by slots, 1 left [calls 2, job 6, slots 1]"},
		{0, settle(3), "job: 4 held, 3 charged | slots: 1 held, 0 charged"},
		{0, settle(3), "job: lost | slots: lost"},
		{0, left("ann", 1), "7 left, 0 held"},
	}},
	{"such a hold runs out by itself", job, nil, []step{
		{0, ask("ann", cost(4), holds), "allowed by job, 6 left"},
		{59 * time.Second, left("ann", 0), "6 left, 4 held"},
		{1 * time.Second, left("ann", 0), "10 left, 0 held"},
	}},
	{"if it would not fit the text for the caller, the request takes nothing", job, []with{tight}, []step{
		{0, ask("ann", cost(4), holds), "malformed: too long"},
		{0, ask("ann", cost(4)), "allowed by job, 6 left; no end is seen for job: 10 per 1m fixed_window hold"},
	}},
	{"what a caller holds is given back with the rest", both, []with{busy}, []step{
		{0, full(ask("ann", cost(4), holds)), "overloaded: full"},
		{0, left("ann", 0), "3 left, 0 held"},
		{0, left("ann", 1), "10 left, 0 held"},
		{0, left("ann", 2), "2 left, 0 held"},
		{0, ask("ann", cost(4), holds), "allowed by slots, 1 left [calls 2, job 6, slots 1]"},
		{0, undo, ""},
		{0, left("ann", 1), "10 left, 0 held"},
		{0, full(during(broken, ask("ann", cost(4), holds), 2)),
			"overloaded: full; not charged to job: the store failed; not charged to slots: the store failed; uncharged: this instance is overloaded (the store failed)"},
	}},
	{"without the store, this instance's share is held", job, []with{layered}, []step{
		{0, during(broken, ask("ann", cost(4), runs)), "allowed by job, 6 left [job 6~local]; held by job"},
		{0, end(200, ""), "job: 4 held, 4 charged; ended for job"},
		{0, during(broken, ask("ann", cost(4), holds)), "allowed by job, 2 left [job 2~local]"},
		{0, settle(3), "job: 4 held, 3 charged"},
	}},
	{"under on_store_error: allow nothing is held", `rules: [{name: job, key: attrs.user, limits: [10 per 1m fixed_window hold], on_store_error: allow}]`, []with{layered}, []step{
		{0, during(broken, ask("ann", cost(4), holds)), "allowed by job, 10 left [job 10~policy]"},
		{0, settle(3), ""},
	}},
}

const (
	after    = `rules: [{name: job, key: attrs.user, cost_after: 'int(response.headers["x-cost"])', limits: [10 per 1m fixed_window hold, 20 per 1h fixed_window hold]}]`
	back     = `rules: [{name: job, key: attrs.user, cost_after: 'int(response.headers["x-cost"])', unsettled: give_back, limits: [10 per 1m fixed_window hold]}]`
	chat     = `rules: [{name: chat, key: attrs.user, tokens: {api: openai, default_output: 20}, limits: [1000 per 1h fixed_window hold]}]`
	chatBack = `rules: [{name: chat, key: attrs.user, tokens: {api: openai, default_output: 20}, unsettled: give_back, limits: [1000 per 1h fixed_window hold]}]`
	// shares has two budgets, of which a request holds at most a tenth.
	shares = `rules: [{name: chat, key: attrs.user, tokens: {api: openai, default_output: 16}, max_hold: 10%, limits: [1000 per 1h fixed_window hold, 500 per 24h fixed_window hold]}]`
)

var costRows = []row{
	{"cost_after charges what the response reports", after, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed by job, 6 left [job 6, job 16]; held by job"},
		{0, end(200, "3"), "a 200 with the cost for job; job: 4 held, 3 charged, 2 times; ended for job"},
		{0, left("ann", 0), "7 left, 0 held"},
	}},
	{"what a response does not report costs what was held", after, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed by job, 6 left [job 6, job 16]; held by job"},
		{0, end(200, "much"), "the cost cannot be read; a 200 without a cost for job; job: 4 held, 4 charged, 2 times; ended for job"},
	}},
	{"or nothing, with unsettled: give_back", back, nil, []step{
		{0, ask("ann", cost(4), runs), "allowed by job, 6 left; held by job"},
		{0, end(502, "much"), "the cost cannot be read; a 502 without a cost for job; job: 4 held, 0 charged; ended for job"},
		{0, left("ann", 0), "10 left, 0 held"},
	}},
	{"a request whose tokens the response reports costs those", chat, nil, []step{
		{0, ask("ann", posts("/v1/chat/completions"), runs), "allowed by chat, 900 left; held by chat"},
		{0, answers(200, `{"usage": {"prompt_tokens": 7, "completion_tokens": 8, "total_tokens": 15}}`), "a 200 with the cost for chat; chat: 100 held, 47 charged; ended for chat"},
		{0, left("ann", 0), "953 left, 0 held"},
	}},
	{"an endpoint that the preset does not know is told", chat, nil, []step{
		{0, ask("ann", posts("/v1/unheard"), runs), "allowed by chat, 900 left; held by chat"},
		{0, answers(200, `{}`), "chat does not know the endpoint; a 200 without a cost for chat; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", posts("/v1/unheard"), runs), "allowed by chat, 800 left; held by chat"},
		{0, answers(101, `{}`), "chat does not know the endpoint; a 101 without a cost for chat; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", posts("/v1/unheard"), runs), "allowed by chat, 700 left; held by chat"},
		{0, answers(404, `{}`), "a 404 with the cost for chat; chat: 100 held, 0 charged; ended for chat"},
	}},
	{"a list of models costs no tokens", chat, nil, []step{
		{0, ask("ann", gets("/v1/models"), runs), "unmatched"},
	}},
	{"an answer that is made later is charged the rest when it is read first", chat, nil, []step{
		{0, ask("ann", posts("/v1/responses"), runs), "allowed by chat, 900 left; held by chat"},
		{0, answers(200, `{"id": "r1", "status": "queued"}`), "a 200 without a cost for chat; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", gets("/v1/responses/r1"), runs), "unmatched"},
		{0, answers(200, `{"id": "r1", "status": "completed", "usage": {"input_tokens": 100, "output_tokens": 50}}`), ""},
		{0, left("ann", 0), "650 left, 0 held"},
		{0, ask("ann", gets("/v1/responses/r1"), runs), "unmatched"},
		{0, answers(200, `{"id": "r1", "status": "completed", "usage": {"input_tokens": 100, "output_tokens": 50}}`), ""},
		{0, left("ann", 0), "650 left, 0 held"},
	}},
	{"that it was announced is kept as one token", chat, nil, []step{
		{0, ask("ann", posts("/v1/responses"), runs), "allowed by chat, 900 left; held by chat"},
		{0, answers(200, `{"id": "r1", "status": "queued", "usage": {"input_tokens": 0, "output_tokens": 0}}`), "a 200 with the cost for chat; chat: 100 held, 0 charged; ended for chat"},
		{0, ask("ann", gets("/v1/responses/r1"), runs), "unmatched"},
		{0, answers(200, `{"id": "r1", "status": "completed", "usage": {"input_tokens": 5, "output_tokens": 1}}`), ""},
		{0, left("ann", 0), "991 left, 0 held"},
	}},
	{"a batch costs what was held, because no response says more; what is in a file of a batch is not known", chat, nil, []step{
		{0, ask("ann", posts("/v1/batches"), runs), "allowed by chat, 900 left; held by chat"},
		{0, answers(200, `{"id": "b1", "status": "validating"}`), "chat does not know the endpoint; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", posts("/v1/batches"), runs), "allowed by chat, 800 left; held by chat"},
		{0, answers(400, `{}`), "a 400 with the cost for chat; chat: 100 held, 0 charged; ended for chat"},
	}},
	{"a request that may be upgraded, and is not, costs none", chat, nil, []step{
		{0, ask("ann", upgrades("/v1/models"), runs), "allowed by chat, 900 left; held by chat"},
		{0, answers(200, `{}`), "a 200 with the cost for chat; chat: 100 held, 0 charged; ended for chat"},
	}},
	{"each answer is kept for itself", chat, nil, []step{
		{0, ask("ann", posts("/v1/responses"), runs), "allowed by chat, 900 left; held by chat"},
		{0, answers(200, `{"id": "r1", "status": "queued"}`), "a 200 without a cost for chat; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", posts("/v1/responses"), runs), "allowed by chat, 800 left; held by chat"},
		{0, answers(200, `{"id": "r2", "status": "queued"}`), "a 200 without a cost for chat; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", gets("/v1/responses/r2"), runs), "unmatched"},
		{0, answers(200, `{"id": "r2", "status": "completed", "usage": {"input_tokens": 150, "output_tokens": 0}}`), ""},
		{0, left("ann", 0), "750 left, 0 held"},
		{0, ask("ann", gets("/v1/responses/r1"), runs), "unmatched"},
		{0, answers(200, `{"id": "r1", "status": "completed", "usage": {"input_tokens": 130, "output_tokens": 0}}`), ""},
		{0, left("ann", 0), "720 left, 0 held"},
	}},
	{"with unsettled: give_back, an answer that breaks off costs its prompt, and a batch what was held", chatBack, nil, []step{
		{0, ask("ann", posts("/v1/chat/completions"), runs), "allowed by chat, 900 left; held by chat"},
		{0, breaks(40), "a 200 without a cost for chat; chat: 100 held, 10 charged; ended for chat"},
		{0, ask("ann", posts("/v1/messages/batches"), runs), "allowed by chat, 890 left; held by chat"},
		{0, answers(200, `{}`), "chat: 100 held, 100 charged; ended for chat"},
	}},
	{"what cannot be kept or charged of such an answer is an error", chat, nil, []step{
		{0, ask("ann", posts("/v1/responses"), runs), "allowed by chat, 900 left; held by chat"},
		{0, during(broken, answers(200, `{"id": "r1", "status": "queued"}`), 2), "error: the store failed; a 200 without a cost for chat; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", posts("/v1/responses"), runs), "allowed by chat, 800 left; held by chat"},
		{0, answers(200, `{"id": "r2", "status": "queued"}`), "a 200 without a cost for chat; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", gets("/v1/responses/r2"), runs), "unmatched"},
		{0, during(broken, answers(200, `{"id": "r2", "status": "completed", "usage": {"input_tokens": 150, "output_tokens": 0}}`), 1), "error: the store failed"},
		{0, ask("ann", gets("/v1/responses/r2"), runs), "unmatched"},
		{0, during(broken, answers(200, `{"id": "r2", "status": "completed", "usage": {"input_tokens": 150, "output_tokens": 0}}`), 2), "error: the store failed"},
		{0, ask("ann", gets("/v1/responses/r2"), runs), "unmatched"},
		{0, during(broken, answers(200, `{"id": "r2", "status": "completed", "usage": {"input_tokens": 150, "output_tokens": 0}}`), 3), "error: the store failed"},
		{0, left("ann", 0), "800 left, 0 held"},
	}},
	{"each budget of a rule holds at most its share, and is charged the same cost, that is read once", shares, nil, []step{
		{0, ask("ann", posts("/v1/chat/completions"), runs), "allowed by chat, 450 left [chat 920, chat 450]; held by chat"},
		{0, answers(200, `{"usage": {"prompt_tokens": 7, "completion_tokens": 8, "total_tokens": 15}}`), "a 200 with the cost for chat; chat: 80 held, 47 charged; chat: 50 held, 47 charged; ended for chat"},
		{0, ask("ann", posts("/v1/messages/batches"), runs), "allowed by chat, 403 left [chat 873, chat 403]; held by chat"},
		{0, answers(200, `{}`), "chat: 80 held, 80 charged; chat: 50 held, 50 charged; ended for chat"},
	}},
	{"an answer that was not announced, or used less, is charged nothing more", chat, nil, []step{
		{0, ask("ann", gets("/v1/responses/r1"), runs), "unmatched"},
		{0, answers(200, `{"id": "r1", "status": "completed", "usage": {"input_tokens": 100, "output_tokens": 50}}`), ""},
		{0, left("ann", 0), "1000 left, 0 held"},
		{0, ask("ann", posts("/v1/responses"), runs), "allowed by chat, 900 left; held by chat"},
		{0, answers(200, `{"id": "r1", "status": "queued"}`), "a 200 without a cost for chat; chat: 100 held, 100 charged; ended for chat"},
		{0, ask("ann", gets("/v1/responses/r1"), runs), "unmatched"},
		{0, answers(200, `{"id": "r1", "status": "completed", "usage": {"input_tokens": 10, "output_tokens": 5}}`), ""},
		{0, left("ann", 0), "900 left, 0 held"},
		{0, during(broken, answers(200, `{"id": "r1", "status": "completed"}`)), ""},
	}},
}

var chargeRows = []row{
	{"a charge takes units that are spent, whether they fit or not, up to the debt",
		`rules: [{name: api, key: attrs.user, limits: [10 per 1m fixed_window debt 3]}, {name: all, key: '"all"', limits: [20 per 1m fixed_window]}]`, nil, []step{
			{0, charge("ann", 4), "api 6 left | all 16 left; 4 of 4 charged to api; 4 of 4 charged to all"},
			{0, charge("ann", 12), "api 0 left | all 4 left; 9 of 12 charged to api; 12 of 12 charged to all"},
			{0, ask("ann"), "limited by api, 0 left, retry after 1m0s [api 0!, all 4]"},
		}},
	{"a limit in flight and a rule without limits are not charged", `rules: [{name: slots, key: attrs.user, limits: [2 in_flight]}, {name: login, key: attrs.user, penalty: {on_status: [401], ban_after: 2, ban_for: 10m}}, {name: api, key: attrs.user, limits: [10 per 1m fixed_window]}]`, nil, []step{
		{0, charge("ann", 4), "slots 2 left | api 6 left; 4 of 4 charged to api"},
		{0, during(broken, charge("ann", 4)), "api: the store failed; not charged to slots: the store failed; not charged to api: the store failed"},
	}},
	{"a charge that is malformed charges nothing", ten, nil, []step{
		{0, charge("", 4), "error: the request"},
		{0, charge("ann", 0), "api 10 left"},
		{0, charges(), ""},
		{0, charges(from("ann", cost(1)), from("", cost(1)), from("bob", cost(2))), "api 9 left | error: the request | api 8 left; 1 of 1 charged to api; 2 of 2 charged to api"},
	}},
}
