package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// asStint makes of this test's binary the program itself.
const asStint = "STINT_TEST_AS_STINT"

func TestMain(m *testing.M) {
	if os.Getenv(asStint) != "" {
		main()
	}
	_, _ = os.Unsetenv("STINT_TOKEN"), os.Unsetenv("STINT_ADMIN")
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // parallel tests wait for other processes most of the time
	code := m.Run()
	if modelDir != "" {
		_ = os.RemoveAll(modelDir)
	}
	os.Exit(code)
}

// call runs the program in this process.
func call(in string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(in), &o, &e)
	return code, o.String(), e.String()
}

var update = flag.Bool("update", false, "rewrite the expected part of testdata/*.txt")

// TestCalls makes the calls in testdata/calls.txt.
func TestCalls(t *testing.T) {
	golden(t, "testdata/calls.txt", func(_ *testing.T, args []string) (code int, out, errs string) {
		return call(`{"t_us":0,"client":"192.0.2.1"}`, args...)
	})
}

// golden makes the calls in a file. Each has a line "=== what it shows", a line for
// each argument, a line "---", and what comes of it, which -update rewrites for a
// person to read. In the directory are copies of the files of testdata/files.
func golden(t *testing.T, path string, call func(t *testing.T, args []string) (code int, out, errs string)) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var rewritten strings.Builder
	for _, story := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		title, rest, _ := strings.Cut(story, "\n")
		args, want, _ := strings.Cut("\n"+rest, "\n---\n")
		var got string
		t.Run(title, func(t *testing.T) {
			files := t.TempDir()
			if err := os.CopyFS(files, os.DirFS(filepath.Join(home, "testdata/files"))); err != nil {
				t.Fatal(err)
			}
			t.Chdir(files)
			code, out, errs := call(t, strings.Split(args, "\n")[1:])
			got = fmt.Sprintf("exit %d\n%s", code, out)
			if errs != "" {
				got += "(stderr)\n" + errs
			}
			if got = strings.TrimRight(got, "\n"); got != strings.TrimRight(want, "\n") && !*update {
				t.Errorf("%s\n got %s\nwant %s", args, got, want)
			}
		})
		fmt.Fprintf(&rewritten, "=== %s%s\n---\n%s\n\n", title, args, got)
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.TrimRight(rewritten.String(), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A build from a clone says of which commit it is, and of when.
func TestVersionOf(t *testing.T) {
	stamp := func(revision, at, modified string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20260102030405-0123456789ab"}}
		for key, value := range map[string]string{"vcs.revision": revision, "vcs.time": at, "vcs.modified": modified} {
			if value != "" {
				info.Settings = append(info.Settings, debug.BuildSetting{Key: key, Value: value})
			}
		}
		return info
	}
	for want, info := range map[string]*debug.BuildInfo{
		"(devel)":                            {},
		"v0.0.0-20260102030405-0123456789ab": stamp("", "", ""),
		"v0.0.0-20260102030405-0123456789ab, commit 0123456789ab of 2026-01-02T03:04:05Z":                         stamp("0123456789abcdef", "2026-01-02T03:04:05Z", "false"),
		"v0.0.0-20260102030405-0123456789ab, commit 0123456789ab of 2026-01-02T03:04:05Z and uncommitted changes": stamp("0123456789abcdef", "2026-01-02T03:04:05Z", "true"),
	} {
		if got := versionOf(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, name := range []string{"version", "--version"} {
		if code, out, errs := call("", name); code != 0 || !strings.HasPrefix(out, "stint ") || !strings.Contains(out, " go1.") || errs != "" {
			t.Errorf("%s: %d %q %q", name, code, out, errs)
		}
	}
	code, out, errs := call("", "version", "--json")
	var b map[string]any
	if err := json.Unmarshal([]byte(out), &b); code != 0 || err != nil || b["version"] == "" || b["go"] != runtime.Version() || b["os"] != runtime.GOOS || len(b) != 7 {
		t.Errorf("--json: %d %q %q", code, out, errs)
	}
}

// The scripts for shells name the program, and come without an error.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, errs := call("", "completion", shell); code != 0 || !strings.Contains(out, "__complete") || errs != "" {
			t.Errorf("%s: exit %d, %d bytes, %s", shell, code, len(out), errs)
		}
	}
}

func TestProgramName(t *testing.T) {
	for _, tt := range []struct{ args, want []string }{
		{[]string{"/usr/bin/stint", "serve", "--demo"}, []string{"serve", "--demo"}},
		{[]string{"/bin/ratelimit"}, []string{"envoy"}},
		{[]string{"ratelimit", "--envoy-each"}, []string{"envoy", "--envoy-each"}},
	} {
		if got := arguments(tt.args); !slices.Equal(got, tt.want) {
			t.Errorf("arguments(%q) = %q, want %q", tt.args, got, tt.want)
		}
	}
}
