package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/stintdev/stint/server/adminapi"
)

const maxAnswer = 64 << 20

// apiRequest is a call of the admin API. The body is JSON; nil: none.
type apiRequest struct {
	method, path string
	body         any
}

// request is the request of a call whose answer has the media type accept.
func (a *admin) request(ctx context.Context, q apiRequest, accept string) (*http.Request, error) {
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
	r.Header.Set("Accept", accept+", application/problem+json")
	if a.decision != "" {
		r.Header.Set("Stint-Decision", a.decision)
	}
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return r, nil
}

func withQuery(path string, q url.Values) string {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

// send returns the answer's JSON. An answer that is no success is a *refusal.
func (a *admin) send(ctx context.Context, q apiRequest) ([]byte, error) {
	r, err := a.request(ctx, q, "application/json")
	if err != nil {
		return nil, err
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

func fetch[T any](ctx context.Context, a *admin, q apiRequest) (T, error) {
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

// exchange sends q and tells a person what the answer says, or prints it for --json.
func exchange[T any](ctx context.Context, a *admin, q apiRequest, tell func(w io.Writer, answer T)) error {
	data, err := a.send(ctx, q)
	if err != nil {
		return err
	}
	return show(a, data, tell)
}

// inspect is exchange for a command that exits with 1 unless the answer is ok.
func inspect[T any](ctx context.Context, a *admin, q apiRequest, tell func(w io.Writer, answer T), ok func(answer T) bool) error {
	data, err := a.send(ctx, q)
	if err != nil {
		return err
	}
	answer, err := read[T](data)
	if err == nil {
		err = show(a, data, tell)
	}
	if err == nil && !ok(answer) {
		err = errQuiet
	}
	return err
}

// show prints an answer as exchange does, all of it at once.
func show[T any](a *admin, data []byte, tell func(w io.Writer, answer T)) error {
	if a.json {
		_, err := fmt.Fprintf(a.out, "%s\n", plainJSON(bytes.TrimRight(data, "\n")))
		return err
	}
	answer, err := read[T](data)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	tell(&b, answer)
	_, err = a.out.Write(b.Bytes())
	return err
}

// refusal is what the admin API says when it does not do what it was asked.
type refusal struct {
	answer adminapi.Error
	hint   string // how to mend it, on a line of its own
}

func (r *refusal) Error() string {
	var lines []string // what is wrong first, and then what that means
	for _, p := range r.answer.Problems {
		lines = append(lines, located(p.Where, p.Text))
	}
	lines = append(lines, plain(r.answer.Detail))
	if r.hint != "" {
		lines = append(lines, r.hint)
	}
	return strings.Join(lines, "\n")
}

func located(where, text string) string {
	if where == "" {
		return plain(text)
	}
	return plain(where) + ": " + plain(text)
}

func (a *admin) refused(resp *http.Response, data []byte) error {
	r := &refusal{}
	if err := json.Unmarshal(data, &r.answer); err != nil || r.answer.Detail == "" && r.answer.Title == "" {
		return a.foreign(resp)
	}
	r.answer.Detail = cmp.Or(r.answer.Detail, r.answer.Title)
	r.answer.Status = resp.StatusCode
	switch {
	case resp.StatusCode == http.StatusUnauthorized && a.token == "":
		r.hint = "give a token: --token-file FILE, or the environment's STINT_TOKEN"
	case resp.StatusCode == http.StatusUnauthorized:
		r.hint = "the server does not have the token of --token-file, or of the environment's STINT_TOKEN"
	case resp.StatusCode == http.StatusForbidden && strings.Contains(r.answer.Detail, "scope"):
		r.hint = "give a token with that scope: --token-file FILE, or the environment's STINT_TOKEN"
	}
	return r
}

func (a *admin) foreign(resp *http.Response) error {
	what := ""
	if to := resp.Header.Get("Location"); to != "" {
		what = ", a redirect to " + plain(to)
	}
	return fmt.Errorf("%s answers %s %s with %d%s, and not as the admin API does; is --admin right?",
		a.base, resp.Request.Method, resp.Request.URL.EscapedPath(), resp.StatusCode, what)
}

// unreached says why there is no answer, and what to look at.
func (a *admin) unreached(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var timeout net.Error
	start := fmt.Sprintf("no answer from the admin API at %s: ", a.base)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		port := a.base.Port()
		if port == "" {
			port = a.base.Scheme
		}
		return fmt.Errorf(`%sconnection refused
is --admin right, and does the server run? Its admin API listens only on the loopback
of its own machine, unless the section server.admin says otherwise. From elsewhere:
    ssh -L %[2]s:127.0.0.1:%[2]s HOST
    kubectl port-forward POD %[2]s`, start, port)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%snone within %v; a change may have been made nevertheless; --timeout gives it longer", start, a.timeout)
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return errors.New(start + plain(err.Error()) + "; --ca FILE names the authorities to trust")
	}
	return errors.New(start + plain(err.Error()))
}
