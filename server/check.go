package server

import (
	"net/http"

	"github.com/stintdev/stint/server/internal/check"
	"github.com/stintdev/stint/server/internal/gateway"
	"github.com/stintdev/stint/server/rules"
)

// ReadInput reads the body of a check request. Errors wrap stint.ErrRequest.
func ReadInput(body []byte) (*rules.Input, error) { return check.ReadInput(body) }

// Check returns the check API, which docs/check-api.yaml describes:
//
//	POST /v1/check  whether a request may pass: 200, or 429 (403 if blocklisted, 503
//	                if it cannot be decided or this instance has no room);
//	                for a list of up to 1,000: 200, and a list of answers
//	POST /v1/settle ends a check's hold, and charges the final cost: 200, or 503 if
//	                the store does not answer; for a list as above
//	POST /v1/renew  starts the time of a check's hold again from now, likewise
//	/v1/authorize   the same for the request that another proxy asks about; see
//	                examples. With Envoy, its target follows: /v1/authorize/a?b=c
//	GET /healthz    200 while the process runs
//	GET /readyz     200 while it takes requests, else 503; also 503 if the store
//	                does not decide and a rule denies then. It reports the state
//	                that Follow saw last: no probe waits for the store
//	GET /metrics    metrics for Prometheus; see docs/metrics.md
//
// Settings.Check says who may use /v1/check, /v1/authorize and /metrics. A caller without
// the required token or certificate gets 401 (403 from /v1/authorize), and a page in a
// browser gets 403. /v1/authorize takes the token from Stint-Token, because the other
// headers belong to the request that the proxy asks about; the others take it from
// Authorization: Bearer. A check request without Content-Type application/json gets 415.
//
// A check request is a JSON object with any of these members, which rules read by the same
// names. A member that is left out or null is unknown, except for cost, which is then 1:
//
//	{"operation": "export", "cost": 3, "attrs": {"plan": "free", "size": 12},
//	 "client": "192.0.2.1", "claims": {"sub": "ann"},
//	 "request": {"method": "GET", "path": "/a%20b?c=d", "host": "example.com", "route": "files",
//	             "headers": {"accept": "*/*", "via": ["a", "b"]}, "query": {"c": "d"}}}
//
// The path is as in an HTTP request, with escapes and query. A "query" of its own replaces
// the query of the path. Claims are not verified; without "claims", the claims of a valid token in the
// headers count (Settings.JWT).
//
// The answer has the decision and, for each limit, the units used, held and remaining. "busy" means that held
// units caused the refusal, and that retry_after_us is a hint. For a refusal that counts as a violation,
// "violations" is their number, beside "warn_after" and "ban_after". If the safelist or the blocklist
// decided, "list" is "safelist" or "blocklist", and "entry" is the entry that matched. "message" is the
// rule's text, in the language that accept-language of request.headers prefers. If the store did not decide,
// "by" is "local" or "policy", for the whole and for each decision (see fleet.Fallback); "lease" means units
// that the store charged earlier (see fleet.Leases).
//
// With "hold": "60s", an allowed check holds its units under held limits, and is charged under the others.
// The answer has "hold", an opaque text, unless nothing is held. The hold ends after that time, from 1ms to
// 24h, unless it is settled or renewed. It outlives this instance, and any instance of the fleet can settle
// it. A hold decided "by": "local" is known to this instance alone.
//
//	{"hold": "AQ…", "cost": 812}
//	{"hold": "AQ…", "costs": {"tokens": 812, "bytes": 20480}}
//	{"hold": "AQ…", "again": true}
//
// /v1/settle takes the first two. "cost" is charged under all limits of the hold except in-flight limits;
// "costs", by rule name, takes precedence. Without either, the held units are charged. The outcome is
// "settled", or "unknown" if no limit has the hold any more: it was settled before, or ran out, and nothing
// is charged. So a call can be sent again after any error. /v1/renew takes the last one; its outcome is
// "renewed" or "unknown". With "again", a hold that the store lost, or that ran out, is made again, whether
// it fits or not, unless an operator released it: send that only while the work runs, and wait for the answer
// before you settle. Each of their decisions has "found", "charged", "remaining", "held" and
// "reset_after_us".
//
// With "charge": true, a check charges units already spent, whether they fit or not, and its outcome is
// "charged". "cost" goes to the limits that count the rule's cost; see rules.Input.Spent. A charge is not a
// decision: lists, bans and penalties do not refuse it, but a request that a list or a manual ban decides is
// not charged. Do not send it again after an error, unless the error says that nothing was charged. The
// charges of a list are made after its checks.
//
// POST /v1/check?shadow=true also returns the decisions of rules in shadow mode, and waits
// for them. A check with "hold" waits, too, if such a rule has held limits, because its hold may be
// settled at once.
//
// The checks of a list are decided as if each came alone, one after another, with one call of the
// store for each 64 limits. A call of the store ends earlier before a check whose key's counts may change
// through answers before it: answers to calls of Envoy's service that refund, that may be charged although
// refused, or that have rules with quota_mode; and after a check with "hold" under a held limit in shadow
// mode. Only refunds for checks that Settings.Instance refuses come too late for the rest of the store call.
//
// Each answer is as for a single check, or problem details, with its status as a member, and with
// retry_after, in seconds, and decision_id, if a single check would have the headers Retry-After and
// Stint-Decision. A malformed check is answered with 400 in its place, one that fails by an internal error
// with 500, and the others are decided; if the call of the store fails by such an error, so do all its
// checks. No header describes limits. Each call has the shortest decision_timeout of the rules that apply;
// after a timeout, on_store_error decides the rest. In a Redis Cluster, checks whose keys lie in several
// slots are decided last.
func (s *Server) Check() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/check", s.check.Checks())
	mux.Handle("POST /v1/settle", s.check.Settlements())
	mux.Handle("POST /v1/renew", s.check.Renewals())
	authorize := s.gateway.Authorize()
	mux.Handle(gateway.AuthorizePath, authorize)
	s.addProbes(mux, s.check.Guard)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gateway.IsPrefixed(r) { // a ServeMux would redirect it to a path without ".." and "//"
			authorize.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
