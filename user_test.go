package stint_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a program that requires one of our modules sees in go list -m all: how many modules, itself and ours
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
		module string
		most   int
		lacks  []string
	}{
		{".", 20, []string{grpc, connect, prometheus, otel, cel, cobra}},
		{"grpclimit", 50, []string{connect, prometheus, cel, cobra}},
		{"connectlimit", 25, []string{prometheus, cel, cobra}},
		{"promlimit", 39, []string{grpc, connect, otel, cel, cobra}},
		{"otellimit", 32, []string{grpc, connect, prometheus, cel, cobra}},
		{"server", 124, []string{connect, cobra}},
	} {
		t.Run(c.module, func(t *testing.T) {
			mod := "module user\n\ngo 1.26.0\n\n"
			for _, folder := range released {
				abs, err := filepath.Abs(folder)
				if err != nil {
					t.Fatal(err)
				}
				mod += fmt.Sprintf("replace %s => %q\n", path.Join(ours, folder), abs)
			}
			mod += fmt.Sprintf("require %s v0.0.0\n", path.Join(ours, c.module))
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOWORK", "off")
			all := strings.Fields(output(t, "go", "-C", dir, "list", "-mod=mod", "-m", "-f", "{{.Path}}", "all"))
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
