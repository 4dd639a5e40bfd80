// Package kind names what became of a request. Its table is the only place that knows the words of answers,
// logs, metrics, traces and alerts, and the statuses that go with them.
package kind

import "net/http"

// Kind is what became of a request.
type Kind uint8

// Kinds. Live numbers are exchanged in this order, so a new one that is counted comes before Malformed, and
// moves Counted. The zero Kind means that nothing was to be decided, as with a charge.
const (
	None Kind = iota
	Allowed
	Limited    // a limit refused
	Warned     // a limit refused, and a ban is near
	Banned     // by a penalty, or by hand
	Safe       // on the safelist
	Blocked    // on the blocklist
	Unmatched  // no rule applied
	Overloaded // this instance had no room for it
	Undecided  // the store did not answer, and a rule denies then
	Malformed  // it cannot be decided, and the client is at fault
)

// Scope is what a kind is counted for, in metrics, live numbers and alerts.
type Scope uint8

// Scopes.
const (
	Uncounted Scope = iota // it is no decision
	OfRules                // the rule that decided
	OfNone                 // the whole: no rule decided
)

var kinds = [...]struct {
	word    string // in logs, metrics, traces and alerts
	answer  string // for clients, who need not know whether a rule applied
	http    int    // the status of answers
	grpc    uint32 // the code of answers
	refuses bool   // a rule or a list refuses it
	scope   Scope
}{
	None:       {"", "", http.StatusOK, 0, false, Uncounted},
	Allowed:    {"allowed", "allowed", http.StatusOK, 0, false, OfRules},
	Limited:    {"limited", "limited", http.StatusTooManyRequests, 8, true, OfRules},
	Warned:     {"warned", "warned", http.StatusTooManyRequests, 8, true, OfRules},
	Banned:     {"banned", "banned", http.StatusTooManyRequests, 8, true, OfRules},
	Safe:       {"safe", "allowed", http.StatusOK, 0, false, OfNone},
	Blocked:    {"blocked", "blocked", http.StatusForbidden, 7, true, OfNone},
	Unmatched:  {"unmatched", "allowed", http.StatusOK, 0, false, OfNone},
	Overloaded: {"overloaded", "overloaded", http.StatusServiceUnavailable, 14, false, OfNone},
	Undecided:  {"undecided", "undecided", http.StatusServiceUnavailable, 14, false, OfNone},
	Malformed:  {"malformed", "malformed", http.StatusBadRequest, 3, false, Uncounted},
}

// Kinds is how many there are, with None. Counted is how many of them are counted: those up to Undecided.
const (
	Kinds   = len(kinds)
	Counted = int(Undecided)
)

// String is the word for logs, metrics, traces and alerts.
func (k Kind) String() string { return kinds[k].word }

// Answer is the word for clients: "allowed" also if no rule applied.
func (k Kind) Answer() string { return kinds[k].answer }

// Status is the HTTP status of an answer.
func (k Kind) Status() int { return kinds[k].http }

// Code is the gRPC code of an answer.
func (k Kind) Code() uint32 { return kinds[k].grpc }

// Refuses reports whether a rule or a list refuses the request.
func (k Kind) Refuses() bool { return kinds[k].refuses }

// Scope is what k is counted for.
func (k Kind) Scope() Scope { return kinds[k].scope }

// Words are the words of the kinds that are counted for s, in their order.
func Words(s Scope) (all []string) {
	for k := range kinds {
		if kinds[k].scope == s && Kind(k) != None {
			all = append(all, kinds[k].word)
		}
	}
	return all
}
