package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/internal/openapitest"
)

// checkContract is docs/check-api.yaml.
var checkContract = sync.OnceValues(func() (*openapitest.Document, error) { return openapitest.Load("../docs/check-api.yaml") })

// testOf has the tests of servers that newServer made: *server.Server to testing.TB.
var testOf sync.Map

// checkAPI is the check API of a server that newServer made. Its test fails if an answer, or a request
// that was taken, breaks docs/check-api.yaml.
func checkAPI(s *server.Server) http.Handler {
	doc, err := checkContract()
	if err != nil {
		panic(err)
	}
	found, _ := testOf.Load(s)
	fail := found.(testing.TB).Error
	if _, fuzzes := found.(*testing.F); fuzzes { // its server answers within other tests
		fail = func(args ...any) { panic(fmt.Sprint(args...)) }
	}
	return openapitest.Watch(s.Check(), func(e *openapitest.Exchange) {
		const authorize = "/v1/authorize" // of every method, and of what follows
		switch r := e.Request; {
		case strings.HasPrefix(r.RequestURI, authorize+"/"):
			r.URL = &url.URL{Path: authorize}
			fallthrough
		case r.URL.Path == authorize && r.Method != http.MethodHead:
			r.Method = http.MethodGet
		}
		if err := doc.Check(e); err != nil {
			fail(err)
		}
	})
}
