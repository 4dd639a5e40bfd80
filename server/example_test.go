package server_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// A gateway limits the requests to an upstream.
func Example() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer upstream.Close()
	settings, set, err := config.Read([]rules.File{{Name: "stint.yaml", Data: []byte(`
server: {routes: [{upstream: "` + upstream.URL + `"}]}
rules:
  - {name: api, key: client.ip, limits: [2 per 1m fixed_window]}
`)}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	limits := server.New(server.Config{Settings: settings, Rules: set}) // counts in memory
	defer limits.Close()
	for range 3 {
		w := httptest.NewRecorder()
		limits.Gateway().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}

// The rules of a file before the handlers of a program, which are told apart by the
// patterns of their mux.
func ExampleServer_Wrap() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") })

	const path = "testdata/wrapped.yaml"
	limits, err := server.Load(path, server.Config{}) // rules and settings of a file
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close() // until then, changes made at run time take effect
	handler := limits.Wrap(mux)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
		text, _, _ := strings.Cut(w.Body.String(), ",")
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"), text)
	}
	// Output:
	// 200 1 welcome
	// 200 0 welcome
	// 429 0 {"type":"about:blank"
}
