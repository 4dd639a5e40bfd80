package server_test

import (
	"testing"

	"github.com/stintdev/stint/server"
)

// The file that "stint init nginx" writes fits examples/nginx.conf.
func TestRealProxiesFirstFile(t *testing.T) {
	s, err := server.Load("../cmd/stint/init/nginx.yaml", server.Config{NoFollow: true})
	if err != nil {
		t.Fatal(err)
	}
	app := &application{}
	addr := realProxies[0].start(t, start(t, s).check, upstream(t, app.ServeHTTP).Host)
	for i, want := range []int{200, 200, 200, 200, 200, 429} { // of 5 in any minute
		if got := sendFrom(t, "127.0.0.2", addr, "POST", "/login", "the body"); got.StatusCode != want {
			t.Errorf("attempt %d: %s %s", i, got.Status, got.body)
		}
	}
	for client, path := range map[string]string{"127.0.0.2": "/", "127.0.0.3": "/login"} {
		if got := sendFrom(t, client, addr, "POST", path, "the body"); got.StatusCode != 200 {
			t.Errorf("%s, %s: %s %s", client, path, got.Status, got.body)
		}
	}
	if seen := app.take(); len(seen) != 7 {
		t.Errorf("the application saw %q", seen)
	}
}
