// Package adminapi has the requests and answers of a server's admin API, for the server itself and for Go
// programs that call it, such as the command stint. docs/admin-api.yaml describes the paths and what each
// does.
//
// Members whose name ends in _us are durations in microseconds; -1 is never. Times are
// RFC 3339, in UTC. A request may have only the members given here, each once. Readers of answers should
// ignore unknown members.
package adminapi

import (
	"encoding/json"
	"strings"
)

// Error is the body of every answer that is not a success (RFC 9457).
type Error struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"` // of HTTP
	Detail string `json:"detail"`
	// Newest is the number of the newest version of the rules, 0 if there is none. It is given if a push or
	// rollback had another number in After, else nil.
	Newest   *int64    `json:"newest,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is one error in a request.
type Problem struct {
	// Where is the member of the request, or line:column in rules; empty: unknown.
	Where string `json:"where,omitempty"`
	Text  string `json:"text"`
}

// Error returns the detail and the problems, a line for each.
func (e *Error) Error() string {
	lines := []string{e.Detail}
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// String is the problem on one line, after its place.
func (p Problem) String() string {
	if p.Where == "" {
		return p.Text
	}
	return p.Where + ": " + p.Text
}

// Reach is part of the answer to a change.
type Reach struct {
	// Pending says why the change is in force at this instance alone; empty: it is in
	// force everywhere within a second.
	Pending string `json:"pending,omitempty"`
}

// Effect is part of an entry: of an override, of a ban or of an entry of a list.
type Effect struct {
	// Problem says why the entry has no effect; empty: it has one.
	Problem string `json:"problem,omitempty"`
	Reach
}

// CountedBy says whose counts an answer shows.
type CountedBy struct {
	// By is "local" if the store did not answer, and the answer shows this instance's own counts, under its
	// share of each limit. Empty: the store's counts.
	By string `json:"by,omitempty"`
	// StoreError is why the store did not answer; empty: it did.
	StoreError string `json:"store_error,omitempty"`
}

// Choice is a member of a request for which null and a missing member differ. The zero Choice leaves the
// value as it is, and is omitted in JSON by "omitzero".
type Choice[T any] struct {
	// Given means that the member is there. If false, Value means nothing.
	Given bool
	// Value is the value to set; nil (null in JSON): the file's value applies again.
	Value *T
}

// Choose returns the Choice of a value; nil: of the file's value.
func Choose[T any](value *T) Choice[T] { return Choice[T]{Given: true, Value: value} }

// MarshalJSON is the value, or null.
func (c Choice[T]) MarshalJSON() ([]byte, error) { return json.Marshal(c.Value) }
