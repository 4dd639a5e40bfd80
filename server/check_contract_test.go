package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

// breaksCheck returns how an exchange with the check API breaks docs/check-api.yaml; nil: it does not.
func breaksCheck(e *openapitest.Exchange) error {
	doc, err := checkContract()
	if err != nil {
		return err
	}
	const authorize = "/v1/authorize" // of every method, and of what follows
	switch r := e.Request; {
	case strings.HasPrefix(r.RequestURI, authorize+"/"):
		r.URL = &url.URL{Path: authorize}
		fallthrough
	case r.URL.Path == authorize && r.Method != http.MethodHead:
		r.Method = http.MethodGet
	}
	return doc.Check(e)
}

// checkAPI is the check API of a server that newServer made. Its test fails if an answer, or a request
// that was taken, breaks docs/check-api.yaml.
func checkAPI(s *server.Server) http.Handler {
	found, _ := testOf.Load(s)
	fail := found.(testing.TB).Error
	if _, fuzzes := found.(*testing.F); fuzzes { // its server answers within other tests
		fail = func(args ...any) { panic(fmt.Sprint(args...)) }
	}
	return openapitest.Watch(s.Check(), func(e *openapitest.Exchange) {
		if err := breaksCheck(e); err != nil {
			fail(err)
		}
	})
}

// checkListeners has the addresses of the check API of servers that start has started.
var checkListeners sync.Map

// holdToCheck is the same for a request that was sent to an address. What is no request, or none of TLS, is
// answered by net/http, the latter by HTTP/1.0, and is not looked at.
func holdToCheck(t testing.TB, addr net.Addr, request string, a answer) {
	t.Helper()
	if _, is := checkListeners.Load(addr.String()); !is || a.ProtoMinor == 0 {
		return
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request)))
	if err != nil {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if err := breaksCheck(&openapitest.Exchange{Request: r, Body: body, Status: a.StatusCode, Header: a.Header, Answer: []byte(a.body)}); err != nil {
		t.Error(err)
	}
}
