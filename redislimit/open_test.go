package redislimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// atMost is a generous bound for an answer that is to come within 25 ms. Without a
// deadline these tests would wait for unhurried, or forever.
const (
	atMost    = 5 * time.Second
	unhurried = "?timeout=30s"
)

// journal is a log that is kept.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// keepLog collects what is logged until the end of the test.
func keepLog(t *testing.T) *journal {
	j, before := new(journal), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(j, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return j
}

func loadUser(_ context.Context, id int) (int, error) { return id, nil }

// troubles bring a server into trouble, and say whether it answers again.
var troubles = map[string]func(*testing.T, *redistest.Server) (mend func()){
	"frozen": func(t *testing.T, s *redistest.Server) func() { return s.Freeze(t) },
	"killed": func(t *testing.T, s *redistest.Server) func() {
		s.Kill()
		return func() { s.Begin(t) }
	},
}

// A Guard over a bare Store answers within the deadline when Redis is frozen or dead:
// by what was left of the limit, as OnError says, and a log line says so.
func TestGuardWithoutRedis(t *testing.T) {
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			log := keepLog(t)
			server := redistest.Start(t)
			limiter := stint.NewLimiter(open(t, server.URL()+unhurried))
			guard := func(o stint.OnError) func(context.Context, int) (int, error) {
				return stint.Guard[int, int]{Limiter: limiter, Limit: stint.MustLimit("3 per 1h"), OnError: o, Name: o.String(), Anonymous: stint.AnonymousShare}.Wrap(loadUser)
			}
			local, deny, allow := guard(stint.OnErrorLocal), guard(stint.OnErrorDeny), guard(stint.OnErrorAllow)
			call := func(f func(context.Context, int) (int, error)) error {
				t.Helper()
				began := time.Now()
				got, err := f(t.Context(), 42)
				if took := time.Since(began); took > atMost {
					t.Fatalf("it took %s", took)
				}
				if err == nil && got != 42 {
					t.Errorf("it returned %d", got)
				}
				return err
			}
			for _, f := range []func(context.Context, int) (int, error){local, deny, allow} {
				await.Until(t, "the store answers", func() bool { return call(f) == nil })
			}
			mend := trouble(t, server)
			allowed := 0
			var refused *stint.RefusedError
			for range 20 {
				switch err := call(local); {
				case err == nil:
					allowed++
				case !errors.As(err, &refused) || refused.By != stint.ByLocal:
					t.Errorf("local: %v", err)
				}
				if err := call(deny); err == nil || errors.As(err, &refused) {
					t.Errorf("deny: %v", err)
				}
				if err := call(allow); err != nil {
					t.Errorf("allow: %v", err)
				}
			}
			if allowed != 2 {
				t.Errorf("%d calls by the local share of the 2 that were left", allowed)
			}
			await.Until(t, "the log tells who decides", func() bool { return strings.Contains(log.String(), "OnError decides") })
			// And a third says that nothing is remembered while messages do not arrive.
			if text := log.String(); strings.Count(text, "\n")-strings.Count(text, "messages of other instances") > 2 || !strings.Contains(text, "error=") {
				t.Errorf("the log:\n%s", text)
			}
			mend()
			await.Until(t, "the store decides", func() bool {
				_ = call(local)
				return strings.Contains(log.String(), "the store decides again")
			})
		})
	}
}

// The same of a Middleware, whose requests would hang or be answered with 503.
func TestMiddlewareWithoutRedis(t *testing.T) {
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			log := keepLog(t)
			server := redistest.Start(t)
			limiter := stint.NewLimiter(open(t, server.URL()+unhurried))
			h := httplimit.Middleware{Decide: httplimit.By(limiter, stint.MustLimit("3 per 1h"), nil)}.Wrap(
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			get := func() int {
				began := time.Now()
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				if took := time.Since(began); took > atMost {
					t.Fatalf("it took %s", took)
				}
				return w.Code
			}
			if got := get(); got != 200 {
				t.Fatal(got)
			}
			trouble(t, server)
			for i, want := range []int{200, 200, 429, 429, 429, 429} {
				if got := get(); got != want {
					t.Errorf("%d: %d, want %d", i, got, want)
				}
			}
			await.Until(t, "the log tells who decides", func() bool { return strings.Contains(log.String(), "OnError") })
		})
	}
}

// Whoever closes the Store ends what stands by for it; after that, too, nothing hangs.
func TestWithFallbackCloses(t *testing.T) {
	keepLog(t)
	server := redistest.Start(t)
	s, err := redislimit.Connect(t.Context(), server.URL(), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := s.WithFallback().(*fleet.Store)
	if s.WithFallback() != stint.Store(f) {
		t.Error("a second call returns another one")
	}
	await.Until(t, "it has joined and listens", func() bool { return f.Live() == 1 && f.Connected() })
	s.Close()
	other, err := redislimit.Connect(t.Context(), server.URL(), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	for _, store := range []stint.Store{f, other.WithFallback()} {
		d, err := stint.NewLimiter(store).Allow(t.Context(), "a", stint.MustLimit("1 per 1h"))
		if err != nil || d.By != stint.ByLocal {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// The first two blocks of Go of docs/library.md after its imports, compiled and run as they stand there,
// answer also where Redis is frozen, or not there at all. The packages that it imports are there.
func TestLibraryExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go\nimport (\n")
	imports, rest, _ := strings.Cut(rest, ")\n```\n")
	if out, err := exec.CommandContext(t.Context(), "go", append([]string{"vet"}, regexp.MustCompile(`github.com[\w/]+`).FindAllString(imports, -1)...)...).CombinedOutput(); err != nil || !strings.Contains(imports, "stint") {
		t.Errorf("the imports: %v\n%s", err, out)
	}
	_, rest, ok1 := strings.Cut(rest, "```go\n")
	code, rest, ok2 := strings.Cut(rest, "```\n")
	if lines := strings.Count(code, "\n"); lines != 2 {
		t.Errorf("a Limiter over a Redis takes %d lines", lines)
	}
	_, rest, _ = strings.Cut(rest, "```go\n")
	use, _, _ := strings.Cut(rest, "```\n")
	code += use
	if !ok1 || !ok2 || !strings.Contains(code, `"redis://localhost:6379"`) {
		t.Fatal("the page has no example of the library with a Redis")
	}
	server := redistest.Start(t)
	frozen := redistest.Start(t)
	frozen.Freeze(t)
	for name, c := range map[string]struct{ address, want string }{
		"there":  {server.URL(), "true"},
		"frozen": {frozen.URL(), "true local"},
		"away":   {"redis://127.0.0.1:1", "true local"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "main.go")
			text := strings.ReplaceAll(code, "redis://localhost:6379", c.address)
			text = "package main\n\nimport (\n\"context\"\n\"fmt\"\n\"time\"\n\n\"github.com/stintdev/stint\"\n\"github.com/stintdev/stint/redislimit\"\n)\n\n" +
				"func run(ctx context.Context) error {\nbegan := time.Now()\n" + text +
				"if took := time.Since(began); took > 5*time.Second { return fmt.Errorf(\"it took %s\", took) }\n" +
				"fmt.Println(d.Allowed, d.By)\nreturn err\n}\n\nfunc main() {\nif err := run(context.Background()); err != nil { panic(err) }\n}\n"
			fill(t, file, []byte(text))
			out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The page's Go code is that of Example functions, which are compiled and run.
func TestLibraryQuotes(t *testing.T) {
	page, err := os.ReadFile("../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := ""
	for _, file := range []string{"example_test.go", "../example_test.go", "../httplimit/example_test.go", "../grpclimit/example_test.go", "../server/example_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		examples += spaced(string(text)) + "\n"
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page)+string(readme), "```go\n")[2:] // after the imports
	if len(blocks) != 8 {
		t.Errorf("%d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```\n")
		for line := range strings.Lines(code) {
			if line = spaced(line); !strings.Contains(examples, line) && !strings.HasPrefix(line, "http.ListenAndServe(") {
				t.Errorf("not in an Example function: %s", line)
			}
		}
	}
}

// spaced is text with single spaces, since gofmt aligns comments of lines that follow each
// other.
func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }
