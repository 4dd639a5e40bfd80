package usage_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// model finds the last value of each path in data as slowly and plainly as possible. ok is false
// if data is not JSON.
func model(data []byte, paths [][]string) (values []any, ok bool) {
	values = make([]any, len(paths))
	if !json.Valid(data) {
		return values, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	walk(d, nil, func(at []string, v any) {
		for i, path := range paths {
			if v != nil && strings.Join(path, "\x00") == strings.Join(at, "\x00") && len(path) == len(at) {
				values[i] = v
			}
		}
	})
	return values, true
}

// walk calls found with each value below d, the inner ones before the outer ones.
func walk(d *json.Decoder, at []string, found func([]string, any)) any {
	t, err := d.Token()
	if err != nil {
		panic(err)
	}
	var v any
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			object := map[string]any{}
			for d.More() {
				name, err := d.Token()
				if err != nil {
					panic(err)
				}
				object[name.(string)] = walk(d, append(at[:len(at):len(at)], name.(string)), found)
			}
			v = object
		} else {
			list := []any{}
			for d.More() {
				list = append(list, walk(d, append(at[:len(at):len(at)], strconv.Itoa(len(list))), found))
			}
			v = list
		}
		if _, err := d.Token(); err != nil && err != io.EOF {
			panic(err)
		}
	case json.Number:
		if n, err := strconv.ParseInt(string(t), 10, 64); err == nil {
			v = n
		} else if f, err := strconv.ParseFloat(string(t), 64); err == nil {
			v = f
		}
	default:
		v = t
	}
	found(at, v)
	return v
}

// modelEvents is model for server-sent events.
func modelEvents(data []byte, paths [][]string) []any {
	text := strings.TrimPrefix(string(data), "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	values := make([]any, len(paths))
	var event []string
	for _, line := range append(strings.Split(text, "\n"), "") {
		if line == "" {
			take(values, []byte(strings.Join(event, "\n")), paths)
			event = nil
			continue
		}
		if name, value, _ := strings.Cut(line, ":"); name == "data" {
			event = append(event, strings.TrimPrefix(value, " "))
		}
	}
	return values
}

// modelLines is model for lines.
func modelLines(data []byte, paths [][]string) []any {
	values := make([]any, len(paths))
	text := strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r", "\n")
	for line := range strings.SplitSeq(text, "\n") {
		take(values, []byte(line), paths)
	}
	return values
}

func take(values []any, data []byte, paths [][]string) {
	found, _ := model(data, paths)
	for i, v := range found {
		if v != nil {
			values[i] = v
		}
	}
}
