package schematest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// editor is a client of the YAML language server of VS Code, which reads the published schema. It waits
// for one message at a time, and answers what the server asks meanwhile.
type editor struct {
	t           *testing.T
	in          io.Writer
	out         *textproto.Reader
	calls       int
	schema      string               // its URI
	diagnostics map[string][]finding // of the last message about a document, by its URI
}

// message is a request of the server, if it has a method and an ID; without an ID, it is a notification,
// and without a method, an answer.
type message struct {
	ID, Params, Result, Error json.RawMessage
	Method                    string
}

type object = map[string]any

type finding struct{ Message string }

// newEditor starts the server, which ends with the test.
func newEditor(t *testing.T) *editor {
	const bin, required = "testdata/node_modules/yaml-language-server/bin/yaml-language-server", "STINT_REQUIRE_CLIENTS"
	_, errNode := exec.LookPath("node")
	if _, err := os.Stat(bin); errNode != nil || err != nil {
		if os.Getenv(required) != "" {
			t.Fatalf("%s is set, and the YAML language server is not installed: scripts/get node, scripts/clients", required)
		}
		t.Skip("the YAML language server is not installed: scripts/get node, scripts/clients")
	}
	path, err := filepath.Abs(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // then it hangs
	c := exec.CommandContext(ctx, "node", bin, "--stdio")
	var errs bytes.Buffer
	c.Stderr = &errs
	in, errIn := c.StdinPipe()
	out, errOut := c.StdoutPipe()
	if errIn != nil || errOut != nil {
		t.Fatal(errIn, errOut)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = c.Wait() // it was killed
		if t.Failed() {
			t.Logf("the YAML language server wrote:\n%s", errs.Bytes())
		}
	})
	e := &editor{t: t, in: in, out: textproto.NewReader(bufio.NewReader(out)), schema: (&url.URL{Scheme: "file", Path: path}).String(), diagnostics: map[string][]finding{}}
	e.call("initialize", object{"processId": os.Getpid(), "rootUri": nil, "capabilities": object{
		"workspace":    object{"configuration": true},
		"textDocument": object{"completion": object{"completionItem": object{"snippetSupport": true}}, "publishDiagnostics": object{}},
	}}, nil)
	e.send(object{"method": "initialized", "params": object{}})
	e.call("textDocument/codeLens", object{"textDocument": object{"uri": ""}}, nil) // answered once the server has its settings
	return e
}

func (e *editor) send(m object) {
	e.t.Helper()
	m["jsonrpc"] = "2.0"
	text, err := json.Marshal(m)
	if err == nil {
		_, err = fmt.Fprintf(e.in, "Content-Length: %d\r\n\r\n%s", len(text), text)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// next is the next answer, or notification.
func (e *editor) next() message {
	e.t.Helper()
	for {
		header, err := e.out.ReadMIMEHeader()
		if err != nil {
			e.t.Fatalf("the language server says no more: %v", err)
		}
		n, err := strconv.Atoi(header.Get("Content-Length"))
		if err != nil {
			e.t.Fatal(err)
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(e.out.R, text); err != nil {
			e.t.Fatal(err)
		}
		var m message
		e.decode(text, &m)
		if m.Method == "" || m.ID == nil {
			return m
		}
		e.send(object{"id": m.ID, "result": e.answer(m)})
	}
}

func (e *editor) decode(text json.RawMessage, into any) {
	e.t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		e.t.Fatalf("%v: %s", err, text)
	}
}

// answer is what VS Code answers to a request of the server. Its settings are those of a fresh
// installation, but for the catalogue of schemas, which is in the network.
func (e *editor) answer(m message) any {
	if m.Method != "workspace/configuration" {
		return nil
	}
	var asked struct{ Items []struct{ Section string } }
	e.decode(m.Params, &asked)
	settings := make([]any, len(asked.Items))
	for i, item := range asked.Items {
		if item.Section == "yaml" {
			settings[i] = object{"schemaStore": object{"enable": false}, "validate": true, "hover": true, "completion": true}
		}
	}
	return settings
}

// call calls a method of the server, and decodes the result into result, unless that is nil.
func (e *editor) call(method string, params object, result any) {
	e.t.Helper()
	e.calls++
	e.send(object{"id": e.calls, "method": method, "params": params})
	m := e.next()
	for ; m.Method != ""; m = e.next() {
		e.note(m)
	}
	if m.Error != nil || string(m.ID) != strconv.Itoa(e.calls) {
		e.t.Fatalf("%s: answer %s: %s", method, m.ID, m.Error)
	}
	if result != nil {
		e.decode(m.Result, result)
	}
}

// note keeps what a notification says.
func (e *editor) note(m message) {
	e.t.Helper()
	if m.Method != "textDocument/publishDiagnostics" {
		return
	}
	var about struct {
		URI         string
		Diagnostics []finding
	}
	e.decode(m.Params, &about)
	e.diagnostics[about.URI] = about.Diagnostics
}

// open opens a document that names the schema, and returns its URI.
func (e *editor) open(text string) string {
	e.t.Helper()
	e.calls++
	uri := fmt.Sprintf("file:///stint-%d.yaml", e.calls)
	e.send(object{"method": "textDocument/didOpen", "params": object{"textDocument": object{
		"uri": uri, "languageId": "yaml", "version": 1, "text": "# yaml-language-server: $schema=" + e.schema + "\n" + text,
	}}})
	return uri
}

// at is the place in a document that is right behind a text, with which the document begins.
func at(uri, before string) object {
	line := strings.Count(before, "\n")
	return object{"textDocument": object{"uri": uri}, "position": object{
		"line": 1 + line, "character": len(before) - 1 - strings.LastIndexByte(before, '\n'),
	}}
}

// completions are the labels that are offered behind a text.
func (e *editor) completions(before string) (labels []string) {
	e.t.Helper()
	uri := e.open(before + "\n")
	var list struct{ Items []struct{ Label string } }
	e.call("textDocument/completion", at(uri, before), &list)
	for _, item := range list.Items {
		labels = append(labels, item.Label)
	}
	return labels
}

// hover is what is shown about the last letter of before.
func (e *editor) hover(uri, before string) string {
	e.t.Helper()
	var shown struct{ Contents struct{ Value string } }
	e.call("textDocument/hover", at(uri, before[:len(before)-1]), &shown)
	return shown.Contents.Value
}

// findings are what is marked in a document. The server tells it, or that there is nothing, some time
// after the document was opened.
func (e *editor) findings(text string) []finding {
	e.t.Helper()
	uri := e.open(text)
	for {
		if found, ok := e.diagnostics[uri]; ok {
			return found
		}
		e.note(e.next())
	}
}
