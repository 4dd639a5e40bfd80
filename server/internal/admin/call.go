package server

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/internal/strictjson"
)

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
		return badCall("The JSON is not as it should be: %s.", err)
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

// readMember reads the value of a member into the field that to points to. It panics on a
// type of field that no request has.
func readMember(r *strictjson.Reader, name string, to any) error {
	switch to := to.(type) {
	case *string:
		if err := readOwn(r, to); err != nil || name != "reason" && name != "note" {
			return err
		}
		return checkReason(*to)
	case *int64:
		return r.ReadInt(to)
	case *[]string:
		return readTexts(r, to)
	case *rules.Key:
		return readKey(r, to)
	}
	panic(fmt.Sprintf("server: a request has a field %s of the type %T", name, to))
}

// readOwn stores a string that may be kept, and so shares nothing with the call.
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
