package check

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/internal/strictjson"
	"github.com/stintdev/stint/server/rules"
)

// InputError is the error of a well-formed check that does not describe a request that a server decides about.
type InputError struct{ error }

func (e InputError) Unwrap() error { return e.error }

// Input is a check request, and a line of a simulation.
type Input struct {
	rules.Input
	At     int64 // t_us; simulations only
	Timed  bool  // whether it was given
	Costed bool  // whether cost was given

	// Kind is what to do. Hold is the hold's name in an event; in a check it is how long to hold, and holdFor
	// has that.
	Kind    Kind
	Hold    string
	holdFor time.Duration

	// Input.Request points to request, if it is known. header has room for its headers.
	request rules.Request
	header  http.Header
	err     error // set if a batch goes on without this check
}

// Kind is what a check or an event asks for.
type Kind uint8

// The kinds of checks and events.
const (
	TakeUnits Kind = iota
	HoldUnits
	ChargeUnits // whether it fits or not
	SettleHold  // simulations only
	RenewHold   // simulations only
)

// BadInput is the error of input that is wrong. It wraps stint.ErrRequest.
func BadInput(format string, args ...any) error {
	return fmt.Errorf("%w: %w", stint.ErrRequest, fmt.Errorf(format, args...))
}

var (
	inputFields   = []string{"t_us", "cost", "hold", "charge", "settle", "renew", "client", "operation", "attrs", "claims", "request", "domain", "descriptors"}
	requestFields = []string{"method", "path", "host", "route", "headers", "query"}
)

// inputReader reads check requests.
type inputReader struct {
	strictjson.Reader
	lines []string // of headers
}

func newInputReader(data string) (*inputReader, error) {
	r, err := strictjson.New(data)
	if err != nil {
		return nil, BadInput("%w", err)
	}
	return &inputReader{Reader: r}, nil
}

// ReadOne reads one JSON object strictly: a check with a misspelled field must not count without that
// field. Errors wrap stint.ErrRequest.
func ReadOne(data []byte) (*Input, error) {
	r, err := newInputReader(string(data))
	if err != nil {
		return nil, err
	}
	q := new(Input)
	if err := r.End(r.input(q)); err != nil {
		return nil, BadInput("%w", err)
	}
	return q, nil
}

// input reads a check or an event into q, which must be empty.
func (r *inputReader) input(q *Input) error {
	q.Cost = 1
	err := r.Fields(inputFields, func(i int) (err error) {
		switch inputFields[i] {
		case "t_us":
			q.Timed = true
			return r.ReadInt(&q.At)
		case "cost":
			q.Costed = true
			return r.ReadInt(&q.Cost)
		case "hold":
			return r.hold(q, HoldUnits)
		case "settle":
			return r.hold(q, SettleHold)
		case "renew":
			return r.hold(q, RenewHold)
		case "charge":
			charge := false
			if err := r.ReadBool(&charge); err != nil || !charge {
				return err
			}
			return q.set(ChargeUnits)
		case "client":
			q.Client, err = r.client()
		case "operation":
			return r.ReadText(&q.Operation)
		case "attrs":
			q.Attrs, err = r.Map()
		case "claims":
			q.Claims, err = r.Map()
		case "request":
			q.Request = &q.request
			return r.request(q)
		case "domain":
			return r.name(&q.envoyCall().Domain)
		case "descriptors":
			return r.descriptors(q.envoyCall())
		}
		return err
	})
	if err != nil || q.Descriptors == nil {
		return err
	}
	return q.completeCall()
}

// ReadInput reads the body of a check request. Errors wrap stint.ErrRequest.
func ReadInput(body []byte) (*rules.Input, error) {
	q, err := ReadOne(body)
	if err != nil {
		return nil, err
	}
	if err := q.isCheck(); err != nil {
		return nil, BadInput("%w", err)
	}
	if q.Kind != TakeUnits {
		return nil, BadInput("hold, charge: nothing is held or charged here")
	}
	return &q.Input, nil
}

var (
	errTimed   = errors.New("t_us: only events of simulations have a time")
	errSettles = errors.New("settle, renew: call POST /v1/settle or /v1/renew")
	errTwoWays = errors.New("want only one of hold, charge, settle and renew")
)

// isCheck returns an error if only a simulation may have q.
func (q *Input) isCheck() error {
	switch {
	case q.Timed:
		return errTimed
	case q.Kind >= SettleHold:
		return errSettles
	}
	return nil
}

// set sets what q wants, once.
func (q *Input) set(to Kind) error {
	if q.Kind != TakeUnits {
		return errTwoWays
	}
	q.Kind = to
	return nil
}

// hold reads the text of a hold.
func (r *inputReader) hold(q *Input, to Kind) error {
	if err := r.name(&q.Hold); err != nil {
		return err
	}
	return q.set(to)
}

// name reads a text that must not be empty.
func (r *inputReader) name(to *string) error {
	if err := r.ReadText(to); err != nil {
		return err
	}
	if *to == "" {
		return errors.New("must not be empty")
	}
	return nil
}

// client reads an address; "" is unknown.
func (r *inputReader) client() (netip.Addr, error) {
	text, err := r.Text()
	if err != nil || len(text) == 0 {
		return netip.Addr{}, err
	}
	a, err := address.Parse(text)
	return address.Plain(a), err
}

func (r *inputReader) request(q *Input) error {
	to := &q.request
	var target, host string
	var query url.Values
	err := r.Fields(requestFields, func(i int) (err error) {
		switch requestFields[i] {
		case "method":
			return r.ReadText(&to.Method)
		case "path":
			return r.ReadText(&target)
		case "host":
			return r.ReadText(&host)
		case "route":
			return r.ReadText(&to.Route)
		case "headers":
			if q.header == nil {
				q.header = http.Header{}
			}
			to.Header = q.header
			return r.headers(to.Header)
		case "query":
			query, err = r.query()
		}
		return err
	})
	if err != nil {
		return err
	}
	if to.Host, err = httpfield.ReadHost(host); err != nil {
		return fmt.Errorf("host: %w", InputError{err})
	}
	if target != "" {
		if target[0] != '/' {
			target = "/" + target
		}
		read, err := rules.ReadTarget(target)
		if err != nil {
			return fmt.Errorf("path: %w", InputError{err})
		}
		to.Path, to.RawQuery, to.Ambiguous = read.Path, read.RawQuery, read.Ambiguous
	}
	if query != nil {
		to.RawQuery = query.Encode()
		to.Ambiguous = to.Ambiguous&^rules.QueryAmbiguity | rules.AmbiguousQuery(to.RawQuery)
	}
	method, err := rules.ReadMethod(to.Method)
	if err != nil {
		return fmt.Errorf("method: %w", InputError{err})
	}
	to.Ambiguous |= method
	return nil
}

var errControl = errors.New("it has a control character, which is not allowed there")

// hasControl reports whether text has a control character other than a tab, so that it cannot
// be the value of a header.
func hasControl(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return true
		}
	}
	return false
}

// headers reads an object whose values are strings or lists of them into h, which is empty.
func (r *inputReader) headers(h http.Header) error {
	return r.Object(func(name string) error {
		key := http.CanonicalHeaderKey(name)
		if _, twice := h[key]; twice {
			return fmt.Errorf("%.60q is given twice", key)
		}
		if hasControl(name) {
			return InputError{errControl}
		}
		first := len(r.lines)
		line := func() error {
			text, err := r.Text()
			r.lines = append(r.lines, text)
			if err == nil && hasControl(text) {
				err = InputError{errControl}
			}
			return err
		}
		var err error
		switch r.Peek() {
		case 'n':
			if !r.Null() {
				err = strictjson.ErrSyntax
			}
		case '[':
			err = r.List(line)
		default:
			err = line()
		}
		h[key] = r.lines[first:len(r.lines):len(r.lines)]
		return err
	})
}

// query reads an object whose values are strings.
func (r *inputReader) query() (url.Values, error) {
	q := url.Values{}
	err := r.Object(func(key string) error {
		if _, twice := q[key]; twice {
			return fmt.Errorf("%.60q is given twice", key)
		}
		q[key] = nil
		if r.Null() {
			return nil
		}
		var value string
		err := r.ReadText(&value)
		q[key] = []string{value}
		return err
	})
	return q, err
}
