package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/stintdev/stint/server/config"
)

// startDemo starts an upstream that answers everything, routes the gateway to it,
// and prints what to try.
func startDemo(s *config.Settings, gateway net.Listener, out io.Writer) (stop func(), err error) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from the upstream: %s %s\n", r.Method, r.URL.Path)
	}))
	u, err := url.Parse(upstream.URL)
	if err != nil {
		upstream.Close()
		return nil, err
	}
	s.Routes = []config.Route{{Path: "/", Upstream: u}}
	_, port, err := net.SplitHostPort(gateway.Addr().String())
	if err != nil {
		upstream.Close()
		return nil, err
	}
	fmt.Fprintf(out, `Stint limits http://localhost:%[1]s in front of a demo upstream. Try:

  curl -i http://localhost:%[1]s/hello
  for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' http://localhost:%[1]s/api; done
  for i in $(seq 11); do curl -s -X POST http://localhost:%[1]s/login; done

`, port)
	return upstream.Close, nil
}
