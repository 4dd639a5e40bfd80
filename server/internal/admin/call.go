package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/inflight"
	"github.com/stintdev/stint/server/internal/strictjson"
	"github.com/stintdev/stint/server/rules"
)

// call is one call of the admin API.
type call struct {
	*http.Request
	who    auth.Caller
	header http.Header // of the answer
	// decision is the ID of the decision that caused the call; empty: not known.
	decision string
}

// decisionHeader has the ID of a decision, in refusals and in calls of this API because of one.
const decisionHeader = "Stint-Decision"

// decisionOf returns the ID of the decision to which r refers.
func decisionOf(r *http.Request) (string, error) {
	lines := r.Header[decisionHeader]
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 || len(lines[0]) != 16 || strings.Trim(lines[0], "0123456789abcdef") != "" {
		return "", badCall("%s must be the ID of a decision, 16 hexadecimal digits such as 84d1fa2196be03c7.", decisionHeader)
	}
	return lines[0], nil
}

// json returns the JSON body of the call.
func (c *call) json() (*strictjson.Reader, error) {
	body, err := c.bytes()
	if err != nil {
		return nil, err
	}
	r, err := strictjson.New(string(body))
	if err == nil {
		err = r.Valid()
	}
	if err != nil {
		return nil, badCall("The body cannot be read: %s.", err)
	}
	return &r, nil
}

// bytes is the call's body.
func (c *call) bytes() ([]byte, error) {
	if !httpfield.IsJSON(c.Header) {
		return nil, &callError{status: http.StatusUnsupportedMediaType, detail: "The Content-Type must be application/json."}
	}
	body, err := io.ReadAll(c.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, inflight.ErrNoRoom):
		return nil, &callError{status: http.StatusServiceUnavailable, detail: "Too many large calls are in flight."}
	case errors.As(err, &tooLarge):
		return nil, &callError{status: http.StatusRequestEntityTooLarge, detail: fmt.Sprintf("The body is larger than %d bytes.", tooLarge.Limit)}
	case err != nil:
		return nil, badCall("The body cannot be read.")
	}
	return body, nil
}

// maxReason is the length of the longest reason or note, in bytes.
const maxReason = 500

func checkReason(text string) error {
	if len(text) > maxReason || strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
		return fmt.Errorf("must be one line of at most %d bytes", maxReason)
	}
	return nil
}

// checkQuery returns an error if the query of r is malformed, or has a parameter twice. Programs
// differ in which of the two they use.
func checkQuery(r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badCall("The query cannot be read: %.100s.", err)
	}
	for name, values := range query {
		if len(values) > 1 {
			return badCall("The parameter %.60q is given twice.", name)
		}
	}
	return nil
}

// reason is the reason for a call without a body, from its query.
func (c *call) reason() (string, error) {
	reason := c.URL.Query().Get("reason")
	if err := checkReason(reason); err != nil {
		return "", badCall("The parameter reason %s.", err)
	}
	return reason, nil
}

// number is a parameter of the query, from 1 to most.
func (c *call) number(name string, otherwise, most int) (int, error) {
	text := c.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badCall("The parameter %s must be a number from 1 to %d.", name, most)
	}
	return n, nil
}

// note is the note of an entry that c's caller adds now, by the fleet's time.
func (c *call) note(n *adminapi.Term, now time.Time) (rules.Note, error) {
	now = now.UTC()
	note := rules.Note{ID: control.NewID(), Reason: n.Reason, Author: c.who.Name, At: now}
	switch {
	case n.For != "" && n.Until != "":
		return note, impossible("for", "for and until cannot both be given")
	case n.For != "":
		d, err := limittext.Period(n.For)
		if err == nil && d <= 0 {
			err = errors.New("must be more than 0")
		}
		if err != nil {
			return note, impossible("for", "%s", err)
		}
		note.Until = now.Add(d)
	case n.Until != "":
		until, err := time.Parse(time.RFC3339, n.Until)
		if err != nil {
			return note, impossible("until", "%.60q: want a time such as 2030-01-31T15:04:05Z", n.Until)
		}
		if !until.After(now) {
			return note, impossible("until", "%s is past", n.Until)
		}
		if note.Until = until.UTC(); note.Until.Year() > 9999 {
			return note, impossible("until", "%s is after the year 9999", n.Until)
		}
	}
	return note, nil
}

// read reads the call's JSON object into a request of package adminapi, strictly: its
// members are the fields of to, which points to a struct. A member that is missing or
// null leaves its field as it is.
func (c *call) read(to any) error {
	r, err := c.json()
	if err != nil {
		return err
	}
	names, fields := members(reflect.ValueOf(to).Elem(), nil, nil)
	if err := r.Fields(names, func(i int) error { return readMember(r, names[i], fields[i]) }); err != nil {
		return badCall("The body is not a valid request: %s.", err)
	}
	return nil
}

// members appends the names in JSON of a struct's fields, and pointers to the fields.
func members(v reflect.Value, names []string, fields []any) ([]string, []any) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			names, fields = members(v.Field(i), names, fields)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names, fields = append(names, name), append(fields, v.Field(i).Addr().Interface())
	}
	return names, fields
}

// readMember reads the value of a member into the field that to points to. It panics if no
// request has a field of that type.
func readMember(r *strictjson.Reader, name string, to any) error {
	switch to := to.(type) {
	case *string:
		if err := readOwn(r, to); err != nil || name != "reason" && name != "note" {
			return err
		}
		return checkReason(*to)
	case *int64:
		return r.ReadInt(to)
	case *bool:
		return r.ReadBool(to)
	case *[]string:
		return readTexts(r, to)
	case *rules.Key:
		return readKey(r, to)
	}
	panic(fmt.Sprintf("server: a request has a field %s of the type %T", name, to))
}

// readOwn stores a copy of a string, which may be kept after the call.
func readOwn(r *strictjson.Reader, to *string) error {
	text, err := r.Text()
	*to = strings.Clone(text)
	return err
}

// readTexts appends the strings of a list.
func readTexts(r *strictjson.Reader, to *[]string) error {
	return r.List(func() error {
		var text string
		err := readOwn(r, &text)
		*to = append(*to, text)
		return err
	})
}

// readKey stores a key: a string, or a list of strings.
func readKey(r *strictjson.Reader, to *rules.Key) error {
	if r.Peek() != '[' {
		var text string
		if err := readOwn(r, &text); err != nil {
			return errors.New("want text, or a list of texts")
		}
		if strings.IndexByte(text, 0) >= 0 {
			return errors.New("it contains a NUL byte; write a list of parts as a list")
		}
		*to = rules.Key(text)
		return nil
	}
	var parts []string
	if err := readTexts(r, &parts); err != nil {
		return err
	}
	key, err := rules.JoinKey(parts...)
	*to = key
	return err
}
