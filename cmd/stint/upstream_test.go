package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The environment's proxy is used where the settings say so, and only there.
func TestServeProxyOfEnvironment(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "by the proxy: ", r.RequestURI) }))
	defer proxy.Close()
	for settings, want := range map[string]string{
		"{}":                            "502 ",
		"{upstream_proxy: environment}": "200 by the proxy: http://orders.invalid/a%2Fb",
	} {
		file := configured(t, "server: "+settings+"\nrules: [{name: client, key: client.ip, limits: [100 per 1m]}]\n")
		c := program(t, "serve", "--config", file, "--upstream", "http://orders.invalid", "--listen", "127.0.0.1:0", "--check-listen", "127.0.0.1:0", "--admin-listen", "off")
		c.Env = append(c.Env, "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
		_, s := started(t, c)
		resp, err := http.Get(s.gateway + "/a%2Fb")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := fmt.Sprint(resp.StatusCode, " ", string(body)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", settings, got)
		}
	}
}
