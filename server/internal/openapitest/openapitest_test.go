package openapitest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const document = `
openapi: 3.1.1
info: {title: Units, version: v1}
paths:
  /units/{name}:
    parameters: [{name: name, in: path, required: true, schema: {type: string}}]
    put:
      requestBody: {required: true, content: {application/json: {schema: {type: array, items: {$ref: '#/components/schemas/Units'}}}}}
      responses:
        '200': {description: How each was answered, content: {application/json: {schema: {type: array, items: {type: object, properties: {status: {type: integer}}}}}}}
    post:
      parameters: [{name: n, in: query, schema: {type: integer}}]
      requestBody: {$ref: '#/components/requestBodies/Units'}
      responses:
        '200':
          description: The units
          headers: {Stint-Left: {schema: {type: integer}}}
          content:
            application/json: {schema: {oneOf: [{$ref: '#/components/schemas/Named'}, {type: array, items: {$ref: '#/components/schemas/Units'}}]}}
        '204': {description: There are none}
        4XX: {$ref: '#/components/responses/Text'}
components:
  requestBodies:
    Units: {required: true, content: {application/json: {schema: {$ref: '#/components/schemas/Units'}}}}
  responses:
    Text: {description: A text, content: {text/plain: {schema: {type: string}}}}
  schemas:
    Units: {type: object, required: [units], properties: {units: {type: [integer, 'null']}, of: {type: object, properties: {a: {type: string}}}}}
    Named:
      allOf:
        - {$ref: '#/components/schemas/Units'}
        - {type: object, required: [name], properties: {name: {type: string}}}
`

func load(t *testing.T, text string) (*Document, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

// Every way in which an exchange can break a document is seen.
func TestCheck(t *testing.T) {
	doc, err := load(t, document)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.CompileAll(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target, body string
		status       int
		header       string // of the answer
		answer       string
		want         string // in the error; empty: there is none
	}{
		{"/units/x", `{"units":1}`, 200, "", `{"units":1,"name":"x"}`, ""},
		{"/units/x", `{"units":null}`, 200, "", `[{"units":null,"of":{"a":"b"}}]`, ""},
		{"/units/x?n=2", `{"units":1}`, 200, "Stint-Left: 3", `[]`, ""},
		{"/units/x", `{"units":1}`, 204, "", "", ""},
		{"/units/x", `nonsense`, 422, "Content-Type: text/plain", "no", ""},
		{"/other", ``, 404, "", "no", ""},
		{"/other", ``, 200, "", "yes", "is not in the document"},
		{"/units/x", `{"units":1}`, 500, "", `{}`, "status is not supported"},
		{"/units/x", `{"units":1}`, 204, "", `{}`, "it has a body"},
		{"/units/x", `{"units":1}`, 200, "Content-Type: text/plain", "no", "its type is text/plain"},
		{"/units/x", `{"units":1}`, 200, "Content-Type: ;", "no", "its Content-Type"},
		{"/units/x", `{"units":1}`, 200, "Stint-Left: many", `[]`, "Stint-Left"},
		{"/units/x", `{"units":1}`, 200, "Stint-Right: 1", `[]`, "the header Stint-Right is not in the document"},
		{"/units/x", `{"units":1}`, 200, "", `{`, "EOF"},
		{"/units/x", `{"units":1}`, 200, "", `{"units":1}`, "missing property 'name'"},
		{"/units/x", `{"units":1}`, 200, "", `{"units":"1","name":"x"}`, "got string, want null or integer"},
		{"/units/x", `{"units":1}`, 200, "", `{"units":1,"name":"x","more":1}`, "at '/more': false schema"},
		{"/units/x", `{"units":1}`, 200, "", `[{"units":1,"of":{"b":1}}]`, "at '/0/of/b': false schema"},
		{"/units/x", `{"unit":1}`, 200, "", `[]`, "missing property 'units'"},
		{"/units/x", ``, 200, "", `[]`, "the request was taken"},
		{"/units/x?n=x", `{"units":1}`, 200, "", `[]`, "the request was taken"},
		{"/units/x?PUT", `[{"unit":1},{"units":1}]`, 200, "", `[{"status":400},{"status":200}]`, ""},
		{"/units/x?PUT", `[{"units":1},{"unit":1}]`, 200, "", `[{"status":400},{"status":200}]`, "missing property 'units'"},
	} {
		var got error
		h := Watch(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				w.Header().Set(name, value)
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.answer))
		}), func(e *Exchange) { got = doc.Check(e) })
		target, put := strings.CutSuffix(c.target, "?PUT")
		method := "POST"
		if put {
			method = "PUT"
		}
		r := httptest.NewRequest(method, target, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Body.String() != c.answer || w.Code != c.status {
			t.Errorf("%v: passed on as %d %s", c, w.Code, w.Body)
		}
		if (got == nil) != (c.want == "") || got != nil && !strings.Contains(got.Error(), c.want) {
			t.Errorf("%v: %v", c, got)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	for from, to := range map[string]string{
		"openapi: 3.1.1":                       "openapi: 3.0.3",
		"info: {title: Units,":                 "info: {titel: Units,",
		"{$ref: '#/components/schemas/Named'}": "{$ref: '#/components/schemas/Nameless'}",
		"type: [integer, 'null']":              "type: [integre]",
	} {
		text := strings.Replace(document, from, to, 1)
		if _, err := load(t, text); err == nil || text == document {
			t.Errorf("with %s: %v", to, err)
		}
	}
}
