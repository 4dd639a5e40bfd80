// Package dashboard has the page that shows and changes a server in a browser. The page is static: it does
// everything through the admin API at the same origin. README.md describes its parts.
//
// Package server serves it with the admin API (config.Admin.Dashboard). A program that has its own
// mux, and limits of a server.Server, serves both:
//
//	mux.Handle("/v1/", limits.Admin())
//	mux.Handle("/", dashboard.Handler())
package dashboard

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed static
var static embed.FS

// policy allows only scripts, styles and calls of this origin. With trusted types, the browser refuses every
// text that would be parsed as HTML, as by innerHTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// kinds are the types of the files, by the end of their names.
var kinds = map[string]string{
	".html":    "text/html; charset=utf-8",
	".js":      "text/javascript; charset=utf-8",
	".css":     "text/css; charset=utf-8",
	".svg":     "image/svg+xml",
	".LICENSE": "text/plain; charset=utf-8",
}

// file is a file of the page, ready to be sent.
type file struct {
	kind          string
	plain, zipped []byte
	tag           string // of plain, without quotes
}

// files are the page's files, by path. They are compressed for the first request, because most programs with
// a Server never show the page.
var files = sync.OnceValue(func() map[string]*file {
	all := map[string]*file{}
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		all["/"+name] = &file{kinds[path.Ext(name)], content, zip(content), hex.EncodeToString(sum[:8])}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	all["/"] = all["/static/index.html"]
	delete(all, "/static/index.html")
	return all
})

func zip(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(content) // a Buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// Handler serves the page at / and its parts below /static/, and answers 404 to every other
// path. The admin API must be at /v1/ of the same origin. The page holds no secret, so
// Handler asks for no token. It may be used concurrently.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := files()[r.URL.Path]
		switch {
		case f == nil:
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		default:
			f.serve(w, r)
		}
	})
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-cache") // ask each time: the program may be a new one
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.plain, `"`+f.tag+`"`
	if acceptsGzip(r) {
		body, tag = f.zipped, `"`+f.tag+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	if matches(r.Header.Get("If-None-Match"), tag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may have left
	}
}

// matches reports whether tag is one of those in a header If-None-Match.
func matches(header, tag string) bool {
	return slices.ContainsFunc(strings.Split(header, ","), func(one string) bool {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		return one == tag || one == "*"
	})
}

// acceptsGzip reports whether Accept-Encoding names gzip without the weight 0.
func acceptsGzip(r *http.Request) bool {
	for _, one := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(one, " ", ""), ";")
		if strings.EqualFold(name, "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(cmp.Or(weight, "q=1"), "q="), 64)
			return err == nil && q > 0
		}
	}
	return false
}
