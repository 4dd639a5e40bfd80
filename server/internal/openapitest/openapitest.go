// Package openapitest compares a server's answers with an OpenAPI 3.1 document, in tests.
package openapitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Document is a valid OpenAPI document. It may be used from many goroutines at once.
type Document struct {
	*openapi3.T
	router routers.Router

	// The schemas of bodies are JSON Schema 2020-12. Each is compiled once: openapi3filter would compile it
	// for each answer.
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // by JSON pointer
}

// base is the address of the document for the compiler.
const base = "file:///api.yaml"

// Load reads a document, and returns an error if it is not valid.
func Load(file string) (*Document, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		return nil, fmt.Errorf("%s: OpenAPI %s, want 3.1", file, doc.OpenAPI)
	}
	doc.Servers = nil // answers of servers at any address are checked
	router, err := legacy.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	doc.OpenAPI = "3.0.4" // keeps openapi3filter from compiling the schema of each header, which is as in 3.0, each time
	all, err := readAll(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	closeAnswers(all)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(base, all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &Document{T: doc, router: router, compiler: c, compiled: map[string]*jsonschema.Schema{}}, nil
}

// readAll reads a YAML document as encoding/json would read JSON.
func readAll(text []byte) (map[string]any, error) {
	var all any
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	data, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	all, err = jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return all.(map[string]any), nil
}

// Exchange is a request and a server's answer.
type Exchange struct {
	Request *http.Request
	Body    []byte // of the request
	Status  int
	Header  http.Header // of the answer
	Answer  []byte
}

// Check returns how an exchange violates the document; nil: it does not. A request that the server accepts,
// with a status below 300, must also follow the document; so must an element of a list, by the status in its
// answer. A request to a path that is not in the document must be refused: 401, 403, 404 or 405. HEAD is not
// checked.
func (d *Document) Check(e *Exchange) error {
	if e.Request.Method == http.MethodHead {
		return nil
	}
	route, params, err := d.router.FindRoute(e.Request)
	if err != nil {
		switch e.Status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
			return nil
		}
		return fmt.Errorf("%s %s is not in the document, and answered with %d", e.Request.Method, e.Request.URL.Path, e.Status)
	}
	err = errors.Join(d.checkRequest(e, route, params), d.checkAnswer(e, route, params))
	if err != nil {
		return fmt.Errorf("%s %s %.1000s: %d %.2000s breaks the document: %w", e.Request.Method, e.Request.URL, e.Body, e.Status, e.Answer, err)
	}
	return nil
}

// validation makes openapi3filter check parameters, headers and statuses.
var validation = &openapi3filter.Options{
	AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
	ExcludeRequestBody: true, ExcludeResponseBody: true,
}

func (d *Document) checkRequest(e *Exchange, route *routers.Route, params map[string]string) error {
	if e.Status >= 300 {
		return nil
	}
	in := &openapi3filter.RequestValidationInput{Request: e.Request, PathParams: params, Route: route, Options: validation}
	if err := openapi3filter.ValidateRequest(e.Request.Context(), in); err != nil {
		return fmt.Errorf("the request was taken: %w", err)
	}
	ref := route.Operation.RequestBody
	if ref == nil {
		return nil
	}
	at := ref.Ref
	if at == "" {
		at = pointer("#/paths", route.Path, strings.ToLower(route.Method), "requestBody")
	}
	if err := d.checkBody(at, ref.Value.Content, e.Request.Header, taken(e.Body, e.Answer)); err != nil {
		return fmt.Errorf("the request was taken: %w", err)
	}
	return nil
}

// taken is a body, without the elements of a list that the answer, a list of the same length, refuses.
func taken(body, answer []byte) []byte {
	var calls []json.RawMessage
	var answers []struct{ Status int }
	if json.Unmarshal(body, &calls) != nil || json.Unmarshal(answer, &answers) != nil || len(calls) != len(answers) {
		return body
	}
	i := -1
	kept, err := json.Marshal(slices.DeleteFunc(calls, func(json.RawMessage) bool { i++; return answers[i].Status >= 300 }))
	if err != nil {
		return body
	}
	return kept
}

func (d *Document) checkAnswer(e *Exchange, route *routers.Route, params map[string]string) error {
	in := &openapi3filter.RequestValidationInput{Request: e.Request, PathParams: params, Route: route, Options: validation}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: e.Status, Header: e.Header, Options: validation}
	if err := openapi3filter.ValidateResponse(e.Request.Context(), out); err != nil {
		return err
	}
	code, ref := responseOf(route.Operation.Responses, e.Status)
	for name := range e.Header {
		if isOurs(name) && !hasHeader(ref.Value, name) {
			return fmt.Errorf("the header %s is not in the document", name)
		}
	}
	at := ref.Ref
	if at == "" {
		at = pointer("#/paths", route.Path, strings.ToLower(route.Method), "responses", code)
	}
	return d.checkBody(at, ref.Value.Content, e.Header, e.Answer)
}

// responseOf is the only answer with that status, and its name.
func responseOf(all *openapi3.Responses, status int) (code string, ref *openapi3.ResponseRef) {
	for _, code := range []string{fmt.Sprint(status), fmt.Sprintf("%dXX", status/100), "default"} {
		if ref := all.Value(code); ref != nil {
			return code, ref
		}
	}
	panic("openapitest: openapi3filter knows the status")
}

// isOurs reports whether a header of an answer must be in the document.
func isOurs(name string) bool {
	for _, prefix := range []string{"Stint-", "X-Stint-", "Ratelimit", "X-Ratelimit-", "Retry-After", "Www-Authenticate"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func hasHeader(r *openapi3.Response, name string) bool {
	for have := range r.Headers {
		if http.CanonicalHeaderKey(have) == name {
			return true
		}
	}
	return false
}

// checkBody checks a body against the contents below a JSON pointer.
func (d *Document) checkBody(at string, content openapi3.Content, h http.Header, body []byte) error {
	if len(content) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("it has a body, %.100q", body)
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("its Content-Type, %q: %w", h.Get("Content-Type"), err)
	}
	if content[kind] == nil {
		if content["*/*"] == nil {
			return fmt.Errorf("its type is %s", kind)
		}
		kind = "*/*"
	}
	if content[kind].Schema == nil {
		return nil
	}
	value := any(string(body))
	if kind == "application/json" || strings.HasSuffix(kind, "+json") {
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			return err
		}
	}
	schema, err := d.schema(pointer(at, "content", kind, "schema"))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// schema is the schema at a JSON pointer.
func (d *Document) schema(at string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.compiled[at]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(base + at)
	if err == nil {
		d.compiled[at] = s
	}
	return s, err
}

var escaping = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "*", "%2A")

// pointer is a JSON pointer in a fragment of a URL.
func pointer(at string, steps ...string) string {
	for _, step := range steps {
		at += "/" + escaping.Replace(step)
	}
	return at
}

// CompileAll compiles the schemas of all requests and answers, and returns their errors.
func (d *Document) CompileAll() error {
	var all []error
	compile := func(at string, content openapi3.Content) {
		for kind, media := range content {
			if media.Schema != nil {
				_, err := d.schema(pointer(at, "content", kind, "schema"))
				all = append(all, err)
			}
		}
	}
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			at := pointer("#/paths", path, strings.ToLower(method))
			if op.RequestBody != nil && op.RequestBody.Ref == "" {
				compile(pointer(at, "requestBody"), op.RequestBody.Value.Content)
			}
			for code, ref := range op.Responses.Map() {
				if ref.Ref == "" {
					compile(pointer(at, "responses", code), ref.Value.Content)
				}
			}
		}
	}
	return errors.Join(all...)
}

// Watch returns h, and calls seen after each exchange.
func Watch(h http.Handler, seen func(*Exchange)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := Exchange{Request: r.Clone(r.Context())}
		var body bytes.Buffer
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(r.Body, &body), r.Body}
		}
		a := &answer{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(a, r)
		e.Body, e.Status, e.Header, e.Answer = body.Bytes(), a.status, w.Header(), a.body.Bytes()
		seen(&e)
	})
}

// answer records a response.
type answer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader keeps the status.
func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write keeps the body.
func (a *answer) Write(b []byte) (int, error) {
	a.body.Write(b)
	return a.ResponseWriter.Write(b)
}
