package rules_test

import (
	"testing"

	"github.com/stintdev/stint/rules"
)

// A rule for one path applies to that path and no other, however it says so, and a
// failure beside it counts only there.
func TestOnlyPath(t *testing.T) {
	for match, at := range map[string]map[string]string{
		`request.path == "/a"`:                                           {"/a": "yes", "/b": "no", "": "no"},
		`"/a" == request.path`:                                           {"/a": "yes", "/b": "no"},
		`request.method == "GET" && request.path == "/a"`:                {"/a": "yes", "/b": "no"},
		`request.path == "/a" && (request.method == "GET" && true)`:      {"/a": "yes", "/b": "no"},
		`request.path == "/a" && int(request.headers["x-n"]) > 0`:        {"/a": "error", "/b": "no"},
		`int(request.headers["x-n"]) > 0 && request.path == "/a"`:        {"/a": "error", "/b": "no"},
		`request.path == "/a" || request.path == "/b"`:                   {"/a": "yes", "/b": "yes", "/c": "no"},
		`!(request.path == "/a")`:                                        {"/a": "no", "/b": "yes"},
		`request.path != "/a"`:                                           {"/a": "no", "/b": "yes"},
		`request.path == request.host`:                                   {"/a": "no", "h": "yes"},
		`request.path == "/a" && request.path == "/b"`:                   {"/a": "no", "/b": "no"},
		`(request.path == "/a") == false`:                                {"/a": "no", "/b": "yes"},
		`request.path == "/a" ? true : request.method == "GET"`:          {"/a": "yes", "/b": "yes"},
		`request.headers["x-n"] == "five" && request.path == "/a"`:       {"/a": "yes", "/b": "no"},
		`request.headers["x-missing"] == "five" && request.path == "/a"`: {"/a": "no", "/b": "no"},
	} {
		s := parse(t, "rules: [{name: r, key: client.ip, limits: [1 per 1m], match: '"+match+"'}]")
		for path, want := range at {
			in := benchInput()
			in.Request.Method, in.Request.Path, in.Request.Host = "GET", path, "h"
			in.Request.Header.Set("X-N", "five")
			var m rules.Matches
			err := s.Asks(in, &m)
			got := "no"
			switch {
			case err != nil:
				got = "error"
			case len(m.Asks) > 0:
				got = "yes"
			}
			if got != want {
				t.Errorf("%s at %q: %s, want %s (%v)", match, path, got, want, err)
			}
		}
	}
}
