package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

// Two people change the rules, and neither undoes what the other did unseen.
func TestPushPullRace(t *testing.T) {
	do := startFleet(t, 1).at(0)
	file := func(name string) string { return filepath.Join(t.TempDir(), name) }
	first, mine, theirs := file("first.yaml"), file("mine.yaml"), file("theirs.yaml")

	want(t, do, 1, []string{"the fleet has no rules yet"}, "rules", "pull")
	want(t, do, 0, []string{"no versions"}, "rules", "history")
	put(t, first, limited(1, ""))
	want(t, do, 0, []string{"version 1 (", "every instance takes it within a second"}, "rules", "push", first)
	want(t, do, 1, []string{"nothing is pushed", "version 1 (", "rules diff " + first, "--after 1"}, "rules", "push", first)

	pulled := want(t, do, 0, nil, "rules", "pull")
	if pulled != "# version 1 of the fleet's rules\n"+limited(1, "") {
		t.Fatalf("pulled %q", pulled)
	}
	put(t, mine, pulled)
	if text := want(t, do, 0, nil, "rules", "diff", mine); text != "" {
		t.Errorf("what was pulled differs:\n%s", text)
	}
	put(t, mine, strings.Replace(pulled, "[1 per", "[2 per", 1))
	put(t, theirs, strings.Replace(pulled, "[1 per", "[3 per", 1))
	want(t, do, 1, []string{"@@ -1,3 +1,3 @@", "-  - {name: client, key: client.ip, limits: [1 per", "+  - {name: client, key: client.ip, limits: [2 per"}, "rules", "diff", mine)

	want(t, do, 0, []string{"version 2 ("}, "rules", "push", theirs, "--note", "theirs")
	want(t, do, 1, []string{"nothing is changed: version 1 was to be replaced", "version 2 (", `"theirs"`, "--after 2"}, "rules", "push", mine)
	want(t, do, 1, []string{"-  - {name: client, key: client.ip, limits: [3 per"}, "rules", "diff", mine)
	want(t, do, 0, []string{"version 3 ("}, "rules", "push", mine, "--after", "2")
	if text := want(t, do, 0, nil, "rules", "pull"); text != "# version 3 of the fleet's rules\n"+limited(2, "") {
		t.Errorf("the first line became part of the rules: %q", text)
	}

	want(t, do, 1, []string{"nothing is changed: version 2", "version 3 (", "rollback 1` with --after 3"}, "rules", "rollback", "1", "--after", "2")
	want(t, do, 0, []string{"version 4 (", "what version 2 held replaces version 3"}, "rules", "rollback", "2", "--note", "undo")
	if text := want(t, do, 0, nil, "rules", "pull"); !strings.HasSuffix(text, "\n"+limited(3, "")) {
		t.Errorf("rolled back to %q", text)
	}
	want(t, do, 0, []string{"NUMBER", "undo", "theirs"}, "rules", "history")
	if text := want(t, do, 0, nil, "rules", "history", "--limit", "1"); strings.Count(text, "\n") != 2 {
		t.Errorf("more than one version:\n%s", text)
	}
}

// What is set by one call is shown by the next, and undone by another.
func TestControlsStory(t *testing.T) {
	do := startFleet(t, 1).at(0)
	want(t, do, 0, []string{"no bans"}, "ban", "list")
	text := want(t, do, 0, []string{"rule export, key [\"ann\",\"/v1\"]", "without end", "it has no end"}, "ban", "add", "--rule", "export", "--key", "ann", "--key", "/v1")
	id, _, _ := strings.Cut(strings.TrimPrefix(text, "ban "), ":")
	want(t, do, 0, []string{`["ann","/v1"]`, id}, "ban", "list", "--rule", "export")
	want(t, do, 0, []string{"lifted ban " + id}, "ban", "lift", id)
	want(t, do, 1, nil, "ban", "lift", id)
	want(t, do, 0, nil, "ban", "add", "--network", "192.0.2.0/24", "--for", "30m")
	want(t, do, 0, []string{"network 192.0.2.0/24, until "}, "ban", "lift", "--network", "192.0.2.0/24", "--reason", "sorry")
	want(t, do, 0, []string{`key "\x1b]0;x\a"`}, "ban", "add", "--rule", "upload", "--key", "\x1b]0;x\a", "--for", "30m")
	want(t, do, 0, []string{`key ["a","\x1b"]`}, "ban", "add", "--rule", "export", "--key", "a", "--key", "\x1b", "--for", "30m")
	if text := want(t, do, 0, []string{`"\x1b]0;x\a"`, `["a","\x1b"]`}, "ban", "list"); strings.ContainsRune(text, 0x1b) {
		t.Errorf("a key is shown as it is: %q", text)
	}
	want(t, do, 0, []string{"lifted ban"}, "ban", "lift", "--rule", "export", "--key", "a", "--key", "\x1b")
	want(t, do, 0, []string{"lifted ban"}, "ban", "lift", "--rule", "upload", "--key", "\x1b]0;x\a")
	want(t, do, 2, []string{`argument "\xff" is not UTF-8`}, "ban", "lift", "\xff")
	want(t, do, 0, []string{"no bans"}, "ban", "list")

	want(t, do, 0, []string{"limiting: off, everything passes (set; the file says "}, "switch", "off")
	want(t, do, 0, []string{"limiting: off", "login", "shadow"}, "switch", "login", "shadow")
	want(t, do, 0, []string{"limiting: on (as the file says)"}, "switch", "file")
}

// The file that one works on can be pushed again and again, and its settings stay.
func TestPushAgain(t *testing.T) {
	do := startFleet(t, 1).at(0)
	path := configured(t, "server:\n  store: redis://:secret@localhost\n"+limited(1, ""))
	want(t, do, 0, []string{"version 1 (", "the section server of", "was not pushed", "rules push " + path + " --after 1"}, "rules", "push", path)
	pulled := want(t, do, 0, nil, "rules", "pull")
	if strings.Contains(pulled, "secret") {
		t.Errorf("pulled %q", pulled)
	}
	if text := want(t, do, 0, nil, "rules", "diff", path); text != "" {
		t.Errorf("what was pushed differs:\n%s", text)
	}

	put(t, path, pulled)
	for n := 2; n < 5; n++ {
		text := readText(t, path)
		put(t, path, strings.Replace(text, fmt.Sprintf("[%d per", n-1), fmt.Sprintf("[%d per", n), 1))
		want(t, do, 0, []string{fmt.Sprintf("version %d (", n)}, "rules", "push", path)
		if first, _, _ := strings.Cut(readText(t, path), "\n"); first != fmt.Sprintf("# version %d of the fleet's rules", n) {
			t.Errorf("after version %d the file begins with %q", n, first)
		}
	}
}

// A pipeline pushes the file of a repository, whoever pushed before, and changes neither that file nor
// rules that are the same. If somebody pushes while it does, it says so, and the next run replaces that.
func TestPushForce(t *testing.T) {
	f := startFleet(t, 1)
	do := f.at(0)
	path, theirs := configured(t, "server:\n  store: redis://localhost\n"+limited(1, "")), f.write("theirs.yaml", limited(2, ""))
	force := []string{"rules", "push", path, "--force"}
	if text := want(t, do, 0, []string{"version 1 (", "the section server of"}, force...); strings.Contains(text, "--after") {
		t.Errorf("the first: %s", text)
	}
	if text := want(t, do, 0, nil, force...); text != "version 1 already has these rules\n" {
		t.Errorf("the same: %s", text)
	}
	want(t, do, 0, []string{"version 2 ("}, "rules", "push", theirs, "--after", "1")
	want(t, do, 0, []string{"version 3 ("}, append(force, "--note", "commit 4f2a91c")...)
	if text := want(t, do, 0, nil, "rules", "pull"); !strings.HasSuffix(text, "\n"+limited(1, "")) {
		t.Errorf("pulled %q", text)
	}
	pulled := "# version 1 of the fleet's rules\n" + limited(3, "")
	put(t, path, pulled)
	want(t, do, 0, []string{"version 4 ("}, force...)
	want(t, do, 0, []string{"version 4 already has these rules"}, force...)
	if text := readText(t, path); text != pulled {
		t.Errorf("the file is now %q", text)
	}

	put(t, path, limited(4, ""))
	to, err := url.Parse(f.all[0].admin)
	if err != nil {
		t.Fatal(err)
	}
	rivals := 1
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && rivals > 0 {
			rivals--
			want(t, do, 0, []string{"version 5 ("}, "rules", "push", theirs, "--after", "4", "--note", "a rival")
		}
		proxy.ServeHTTP(w, r)
	}))
	defer between.Close()
	through := func(args ...string) (int, string) {
		code, out, errs := call("", append(args, "--admin", between.URL)...)
		return code, out + errs
	}
	want(t, through, 1, []string{"nothing is changed: version 4 was to be replaced", "version 5 (", `"a rival"`, "run the command again"}, force...)
	want(t, through, 0, []string{"version 6 ("}, force...)
	if n := strings.Count(want(t, do, 0, nil, "rules", "history"), "\n"); n != 1+6 {
		t.Errorf("the history has %d lines", n)
	}
}
