package stint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a program that uses a part of Stint sees in go list -m all: how many modules, itself and ours
// among them, and none of what belongs to other parts. Most are those that the foreign module brings: a
// program with grpc alone sees 40, with connect 5, with Prometheus's client 33, with OpenTelemetry's API
// 18. A dependency that brings more fails here, and then is worth it or not.
func TestUsersModules(t *testing.T) {
	const (
		grpc       = "google.golang.org/grpc"
		connect    = "connectrpc.com/connect"
		prometheus = "github.com/prometheus/client_golang"
		otel       = "go.opentelemetry.io/otel"
		cel        = "cel.dev/cel-go"
		cobra      = "github.com/spf13/cobra"
		browser    = "github.com/chromedp/chromedp"
	)
	released := strings.Fields(output(t, "bash", "scripts/modules"))
	for _, c := range []struct {
		imports []string
		most    int
		lacks   []string
	}{
		{[]string{"", "/fleet", "/redislimit", "/httplimit", "/limittest", "/store"}, 20, []string{grpc, connect, prometheus, otel, cel, cobra}},
		{[]string{"/grpclimit"}, 50, []string{connect, prometheus, cel, cobra}},
		{[]string{"/connectlimit"}, 25, []string{prometheus, cel, cobra}},
		{[]string{"/promlimit"}, 39, []string{grpc, connect, otel, cel, cobra}},
		{[]string{"/otellimit"}, 32, []string{grpc, connect, prometheus, cel, cobra}},
		{[]string{"/server"}, 124, []string{connect, cobra}},
	} {
		t.Run(strings.Join(c.imports, ","), func(t *testing.T) {
			dir := t.TempDir()
			mod, program := "module user\n", "package user\n\nimport (\n"
			for _, folder := range released {
				abs, err := filepath.Abs(folder)
				if err != nil {
					t.Fatal(err)
				}
				mod += fmt.Sprintf("replace %s => %q\n", strings.TrimSuffix(ours+"/"+folder, "/."), abs)
			}
			for _, i := range c.imports {
				program += fmt.Sprintf("\t_ %q\n", ours+i)
			}
			for name, text := range map[string]string{"go.mod": mod, "user.go": program + ")\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("GOWORK", "off")
			output(t, "go", "-C", dir, "mod", "tidy")
			output(t, "go", "-C", dir, "build", "./...")
			all := strings.Split(strings.TrimSpace(output(t, "go", "-C", dir, "list", "-m", "-f", "{{.Path}}", "all")), "\n")
			if len(all) > c.most {
				t.Errorf("%d modules, want at most %d: %s", len(all), c.most, all)
			}
			for _, path := range append(c.lacks, browser) {
				if slices.Contains(all, path) {
					t.Errorf("%s is among them", path)
				}
			}
		})
	}
}
