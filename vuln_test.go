package stint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/vuln says in its exit code that nothing was checked, unless that is allowed by
// name, and never takes findings or failures for success.
func TestVulnTells(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	for name, c := range map[string]struct {
		build, check string // what go tool and govulncheck do, in shell
		offline      string
		code         int
		said         string
	}{
		"nothing found":              {"", "exit 0", "", 0, ""},
		"something found":            {"", "exit 3", "", 1, ""},
		"found outside workspace":    {"", "[ $3 = work ] || exit 3", "", 1, "in bench"},
		"found, offline allowed":     {"", "exit 3", "allow", 1, ""},
		"it fails":                   {"", "echo loading packages; exit 1", "", 1, "govulncheck failed"},
		"it fails, offline allowed":  {"", "echo loading packages; exit 1", "allow", 1, "govulncheck failed"},
		"no database":                {"", "echo fetching vulnerabilities: no network; exit 1", "", 2, "NOTHING WAS CHECKED"},
		"no database, allowed":       {"", "echo fetching vulnerabilities: no network; exit 1", "allow", 0, "NOTHING WAS CHECKED"},
		"no govulncheck":             {"exit 1", "", "", 2, "NOTHING WAS CHECKED"},
		"no govulncheck, allowed":    {"exit 1", "", "allow", 0, "NOTHING WAS CHECKED"},
		"no govulncheck, misspelled": {"exit 1", "", "alow", 2, "want allow"},
	} {
		dir := t.TempDir()
		for name, script := range map[string]string{
			"go":          c.build + "\necho '" + dir + "/govulncheck'",
			"govulncheck": c.check,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		out, code := run(t, ".", "PATH='"+dir+"':$PATH STINT_VULN_OFFLINE="+c.offline+" scripts/vuln")
		if code != c.code || !strings.Contains(out, c.said) {
			t.Errorf("%s: exit %d, want %d:\n%s", name, code, c.code, out)
		}
	}
}
