package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

// question is what is asked of the admin API. The body is JSON; nil: none.
type question struct {
	method, path string
	body         any
}

// send asks q and returns the answer's JSON. An answer that is not of success is a
// *refusal.
func (a *admin) send(ctx context.Context, q question) ([]byte, error) {
	var body io.Reader
	if q.body != nil {
		data, err := json.Marshal(q.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, a.base.String()+q.path, body)
	if err != nil {
		return nil, err
	}
	if q.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, application/problem+json")
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(r)
	if err != nil {
		return nil, a.unreached(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, a.unreached(err)
	case len(data) > maxAnswer:
		return nil, fmt.Errorf("%s %s: the answer is longer than %d MiB", q.method, q.path, maxAnswer>>20)
	case resp.StatusCode/100 != 2:
		return nil, a.refused(resp, data)
	case !json.Valid(data):
		return nil, a.foreign(resp)
	}
	return data, nil
}

// fetch asks q and reads the answer.
func fetch[T any](ctx context.Context, a *admin, q question) (T, error) {
	var answer T
	data, err := a.send(ctx, q)
	if err == nil {
		answer, err = read[T](data)
	}
	return answer, err
}

// read reads an answer. Members that it does not know are a later release's.
func read[T any](data []byte) (answer T, err error) {
	if err = json.Unmarshal(data, &answer); err != nil {
		err = fmt.Errorf("the answer of the admin API cannot be read: %w", err)
	}
	return answer, err
}

// exchange asks q and tells a person what the answer says, or prints it for --json.
func exchange[T any](ctx context.Context, a *admin, out io.Writer, q question, tell func(w io.Writer, answer T)) error {
	data, err := a.send(ctx, q)
	if err != nil {
		return err
	}
	return show(a, out, data, tell)
}

// show prints an answer as exchange does, all of it at once.
func show[T any](a *admin, out io.Writer, data []byte, tell func(w io.Writer, answer T)) error {
	if a.json {
		_, err := fmt.Fprintf(out, "%s\n", plainJSON(bytes.TrimRight(data, "\n")))
		return err
	}
	answer, err := read[T](data)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	tell(&b, answer)
	_, err = out.Write(b.Bytes())
	return err
}
