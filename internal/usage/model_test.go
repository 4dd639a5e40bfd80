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

// modelTop is model for a body or a part of a stream: JSON values, one after the other. In a list,
// each path is also looked for in the elements that are objects. ok is false if one is not JSON;
// events is how many there are, and objects in lists.
func modelTop(data []byte, paths [][]string) (values []any, events int64, ok bool) {
	values = make([]any, len(paths))
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var top json.RawMessage
		if err := d.Decode(&top); err != nil {
			return values, events, err == io.EOF
		}
		of, _ := model(top, paths)
		update(values, of)
		objects := objectsOf(top)
		for _, object := range objects {
			of, _ := model(object, paths)
			update(values, of)
		}
		events += max(int64(len(objects)), 1)
	}
}

// objectsOf are the elements of a list that are objects; none if it is no list.
func objectsOf(data []byte) (objects []json.RawMessage) {
	var list []json.RawMessage
	_ = json.Unmarshal(data, &list)
	for _, element := range list {
		if element[0] == '{' {
			objects = append(objects, element)
		}
	}
	return objects
}

// modelBody is what a Reader finds in data, which has come to its end. ok is false if it is too odd
// for the model.
func modelBody(data []byte, contentType string, paths [][]string) (values []any, events int64, ok bool) {
	text := strings.TrimPrefix(string(data), "\ufeff")
	start := strings.TrimLeft(text, " \t\r\n")
	isEvents := contentType == "text/event-stream"
	switch {
	case start == "":
		return make([]any, len(paths)), 0, true
	case start[0] == 0x1e:
		values, events = modelEach(strings.Split(start, "\x1e"), paths)
		return values, events, true
	case strings.ContainsRune("{[", rune(start[0])), !isEvents && strings.ContainsRune("\"-0123456789tfn", rune(start[0])):
		all := strings.Split(strings.ReplaceAll(start, "\r", "\n"), "\n")
		first := json.Valid([]byte(all[0]))
		if len(all) > 1 && first && strings.TrimSpace(strings.Join(all[1:], "")) != "" {
			values, events = modelEach(all, paths)
			_, more := modelEach(all[1:], paths)
			return values, events, more > 0 || contentType == "application/jsonl"
		}
		values, events, ok = modelTop([]byte(start), paths)
		if contentType != "application/jsonl" && json.Valid([]byte(start)) {
			events = int64(len(objectsOf([]byte(start))))
		}
		return values, events, ok
	case isEvents, hasField(start):
		values, events = modelEvents(text, paths)
		return values, events, true
	case contentType == "application/jsonl":
		values, events = modelEach(strings.Split(strings.ReplaceAll(start, "\r", "\n"), "\n"), paths)
		return values, events, true
	}
	return make([]any, len(paths)), 0, true
}

func hasField(line string) bool {
	for _, name := range []string{":", "data:", "event:", "id:", "retry:"} {
		if strings.HasPrefix(line, name) {
			return true
		}
	}
	return false
}

// modelEvents is modelEach for server-sent events.
func modelEvents(text string, paths [][]string) ([]any, int64) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var all, event []string
	for _, line := range append(strings.Split(text, "\n"), "") {
		if line == "" {
			all = append(all, strings.Join(event, "\n"))
			event = nil
			continue
		}
		if name, value, _ := strings.Cut(line, ":"); name == "data" {
			event = append(event, strings.TrimPrefix(value, " "))
		}
	}
	return modelEach(all, paths)
}

// modelEach has the last values of parts, of which those count that are JSON.
func modelEach(parts []string, paths [][]string) (values []any, events int64) {
	values = make([]any, len(paths))
	for _, part := range parts {
		if of, n, ok := modelTop([]byte(part), paths); ok {
			update(values, of)
			events += n
		}
	}
	return values, events
}

func update(values, by []any) {
	for i, v := range by {
		if v != nil {
			values[i] = v
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
