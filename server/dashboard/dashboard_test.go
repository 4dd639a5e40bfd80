package dashboard

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func do(method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestHandler(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/?a=b", 200, "text/html; charset=utf-8"},
		{"GET", "/static/js/main.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/static/style.css", 200, "text/css; charset=utf-8"},
		{"GET", "/static/icon.svg", 200, "image/svg+xml"},
		{"GET", "/static/vendor/uPlot.LICENSE", 200, "text/plain; charset=utf-8"},
		{"POST", "/", 405, ""},
		{"GET", "/static/", 404, ""},
		{"GET", "/static/index.html", 404, ""},
		{"GET", "/static/../dashboard.go", 404, ""},
		{"GET", "/dashboard.go", 404, ""},
		{"GET", "/other", 404, ""},
	} {
		t.Run(c.method+c.path, func(t *testing.T) {
			res := do(c.method, c.path)
			if res.StatusCode != c.status {
				t.Fatalf("status %d, want %d", res.StatusCode, c.status)
			}
			if kind := res.Header.Get("Content-Type"); c.kind != "" && kind != c.kind {
				t.Errorf("type %q, want %q", kind, c.kind)
			}
			if body, _ := io.ReadAll(res.Body); c.method == "HEAD" && len(body) > 0 {
				t.Error("HEAD has a body")
			}
		})
	}
}

func TestFilesHaveTypes(t *testing.T) {
	for name, f := range files() {
		if f.kind == "" {
			t.Errorf("%s: no type; add the end of its name to kinds", name)
		}
	}
}

func TestPolicy(t *testing.T) {
	for path := range files() {
		h := do("GET", path).Header
		csp := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; ") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: policy %q", path, csp)
		}
		for _, loose := range []string{"unsafe", "*", "http:", "https:", "data:", "blob:"} {
			if strings.Contains(csp, loose) {
				t.Errorf("%s: the policy has %q", path, loose)
			}
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

func TestCompression(t *testing.T) {
	for _, c := range []struct {
		accept string
		zipped bool
	}{{"", false}, {"gzip", true}, {"br, GZIP;q=0.5", true}, {"gzip;q=0", false}, {"gzip; q=0.0", false}, {"deflate", false}, {"gzip;q=x", false}} {
		res := do("GET", "/static/js/main.js", "Accept-Encoding", c.accept)
		if zipped := res.Header.Get("Content-Encoding") == "gzip"; zipped != c.zipped {
			t.Errorf("Accept-Encoding %q: gzip is %v", c.accept, zipped)
		}
		body := res.Body
		if c.zipped {
			z, err := gzip.NewReader(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		want, _ := os.ReadFile("static/js/main.js")
		if err != nil || string(text) != string(want) {
			t.Errorf("Accept-Encoding %q: another file (%v)", c.accept, err)
		}
		if res.Header.Get("Vary") != "Accept-Encoding" {
			t.Error("no Vary")
		}
	}
}

func TestETag(t *testing.T) {
	plain, zipped := do("GET", "/").Header.Get("ETag"), do("GET", "/", "Accept-Encoding", "gzip").Header.Get("ETag")
	if plain == "" || plain == zipped {
		t.Fatalf("tags %q and %q", plain, zipped)
	}
	for _, c := range []struct {
		match  string
		status int
	}{{plain, 304}, {"W/" + plain, 304}, {`"x", ` + plain, 304}, {"*", 304}, {`"x"`, 200}, {zipped, 200}, {"", 200}} {
		res := do("GET", "/", "If-None-Match", c.match)
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != c.status || (c.status == 304 && len(body) > 0) {
			t.Errorf("If-None-Match %s: %d with %d bytes, want %d", c.match, res.StatusCode, len(body), c.status)
		}
	}
}

// TestWeight bounds what a browser loads if it opens every page: 120 kB compressed.
func TestWeight(t *testing.T) {
	var plain, zipped int
	for name, f := range files() {
		if filepath.Ext(name) == ".LICENSE" {
			continue // the page does not load it
		}
		plain += len(f.plain)
		zipped += len(f.zipped)
	}
	t.Logf("%d bytes, compressed %d", plain, zipped)
	if zipped >= 120_000 {
		t.Errorf("the page has %d bytes compressed", zipped)
	}
}
