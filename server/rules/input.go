package rules

import (
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/httpfield"
)

// Input is the known data of a request. In the zero Input, nothing is known.
type Input struct {
	// Request is the HTTP request; nil: unknown, as for a check without one.
	Request *Request
	// Client is the client's address; invalid: unknown.
	Client netip.Addr
	// Operation is the name of the request's operation; empty: unknown.
	Operation string
	// Attrs has the caller's attributes, as decoded from JSON: string, bool, int64,
	// float64, nil, []any and map[string]any. Nil is empty.
	Attrs map[string]any
	// Claims are the claims of the client's token, decoded like Attrs. The code that sets them must have
	// verified the token. Nil: Instance.Claims finds them in Request; empty, but not nil: there are none.
	Claims map[string]any
	// Cost is the cost that the caller gives, in units. It counts for rules without
	// a cost. 0 asks without taking.
	Cost int64
	// Spent means that Cost is the final cost: budgets take it as it is, whatever the rule's costs are. See
	// IsBudget.
	Spent bool
	// Descriptors is a call of Envoy's rate limit service; nil: the request is not one. Expressions see its
	// domain as operation and its descriptors in attrs, unless Operation and Attrs are given, and the Addr of
	// its client. Cost is not used: a rule with an expression takes the cost of the descriptor with the
	// highest cost.
	Descriptors *Descriptors
}

func (in *Input) check() error {
	if in.Cost < 0 {
		return fmt.Errorf("rules: %w: cost %d: must not be negative", stint.ErrRequest, in.Cost)
	}
	if in.Descriptors != nil {
		return in.Descriptors.check()
	}
	return nil
}

// Request is an HTTP request. Fields that no expression uses cost no time.
type Request struct {
	// Method is as sent. Host is in lower case, without port, final dot and the brackets of IPv6;
	// empty: the request has none.
	Method, Host string
	// Path is in the normal form of ReadTarget, and Ambiguous has the ambiguities
	// that ReadTarget and ReadMethod found.
	Path      string
	Ambiguous Ambiguity
	// Route is the name of the gateway's route that the request takes; empty: it has
	// none, or there is no gateway.
	Route string
	// Preflight means that with this request a browser asks what a page of another origin may send (CORS).
	// Only rules with Preflights count it. Lists and manual bans apply to it.
	Preflight bool
	// Header has canonical names, as http.Header.Set writes them. Other names
	// are not found.
	Header http.Header
	// RawQuery is the query as sent, without the question mark. It is read as
	// browsers read it: only & separates, and a malformed escape stands for itself.
	// net/url would drop malformed parts, which upstreams may well read.
	RawQuery string
	// Body is the request's body as JSON; nil: not known. It is read only if Set.ReadsBody.
	Body Body
}

func (r *Request) header(name string, may *repeatable) (text string, ok bool, bad Ambiguity) {
	text, ok, bad = r.lines(name, may)
	if httpfield.HasTwin(r.Header, name) {
		bad |= TwinHeader
	}
	return text, ok, bad &^ may.allow
}

// lines is the value of the header with this canonical name; other headers do not matter.
func (r *Request) lines(name string, may *repeatable) (text string, ok bool, bad Ambiguity) {
	switch lines := r.Header[name]; len(lines) {
	case 0:
	case 1:
		text, ok = lines[0], true
	default:
		text, ok = httpfield.Joined(name, lines), true
		if !httpfield.IsList(name) && !may.headers[name] {
			bad = RepeatedHeader
		}
	}
	if !utf8.ValidString(text) {
		bad |= NotUTF8
	}
	return textproto.TrimString(text), ok, bad // HTTP/2 leaves spaces around a value
}

// parameter parses the query itself, because url.ParseQuery gives up on a query of many thousand parts: with
// one, a client could hide the parts that matter.
func (r *Request) parameter(name string, may *repeatable) (text string, ok bool, bad Ambiguity) {
	var more []string
	for n, v := range queryParts(r.RawQuery) {
		switch {
		case n != name:
			if httpfield.IsParameterTwin(n, name) {
				bad |= TwinParameter
			}
		case !ok:
			text, ok = httpfield.ParameterValue(v), true
		case may.parameters[name]:
			more = append(more, httpfield.ParameterValue(v))
		default:
			bad |= RepeatedParameter
		}
	}
	if more != nil {
		text = strings.Join(slices.Insert(more, 0, text), ", ")
	}
	return text, ok, bad &^ may.allow
}

// cookies is the header of all cookies; bad: servers read it in different ways.
func (r *Request) cookies(may *repeatable) (header string, bad Ambiguity) {
	header, _, bad = r.header("Cookie", may)
	return header, bad
}

// cookie is like parameter, for the header of all cookies. Several of one name and value are one.
func (may *repeatable) cookie(header, name string) (text string, ok bool, bad Ambiguity) {
	text, more, ok, twin := httpfield.FindCookie(header, name)
	if twin {
		bad |= TwinCookie
	}
	switch {
	case len(more) > 0 && may.cookies[name]:
		text = strings.Join(slices.Insert(more, 0, text), ", ")
	case slices.ContainsFunc(more, func(value string) bool { return value != text }):
		bad |= RepeatedCookie
	}
	return text, ok, bad &^ may.allow
}

// credential is the client's credential in the headers with these canonical names. If it is ambiguous, bad is
// why, and in is the header concerned.
func (r *Request) credential(names []string, may *repeatable) (text string, bad Ambiguity, in string) {
	var c httpfield.Credential
	for _, name := range names {
		value, _, ambiguous := r.header(name, may)
		if ambiguous == 0 && !c.Add(name, value) {
			ambiguous = UnclearCredential &^ may.allow
		}
		if ambiguous != 0 {
			return "", ambiguous, name
		}
	}
	return c.Text, 0, ""
}

func queryParts(raw string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for raw != "" {
			var part string
			part, raw, _ = strings.Cut(raw, "&")
			if part == "" {
				continue
			}
			name, value, _ := strings.Cut(part, "=")
			if !yield(httpfield.ParameterValue(name), value) {
				return
			}
		}
	}
}
