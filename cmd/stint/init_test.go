package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// written is the file of a use, which init writes with these flags, and what init prints.
func written(t *testing.T, use string, flags ...string) (path, printed string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "new", use+".yaml")
	code, out, errs := call("", append([]string{"init", use, "--file", path}, flags...)...)
	if code != 0 || errs != "" {
		t.Fatalf("init %s %q: exit %d, %s", use, flags, code, errs)
	}
	return path, out
}

// Each use has a file, and each file a use. The documents have all of them.
func TestInitUses(t *testing.T) {
	files, err := firstFiles.ReadDir("init")
	if err != nil {
		t.Fatal(err)
	}
	var of, have []string
	for _, f := range files {
		of = append(of, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	text := readText(t, "../../docs/rules.md")
	for _, u := range uses {
		have = append(have, u.name)
		if !strings.Contains(text, "\n| `"+u.name+"` | ") {
			t.Errorf("docs/rules.md does not say what the file of %s limits", u.name)
		}
	}
	if slices.Sort(have); !slices.Equal(of, have) {
		t.Errorf("files of %q, and uses %q", of, have)
	}
}

// What init writes has no error and no warning, and what the flags say, whatever characters that has.
func TestInitWrites(t *testing.T) {
	for _, u := range uses {
		for _, flags := range [][2]string{{}, {"https://10.0.0.7:8443/api", "rediss://h:6380/2"}, {"http://shop.test/it's", "redis://ann:it's#1@h:6379"}, {"", "redis+cluster://h1,h2"}, {"", "memory"}} {
			t.Run(fmt.Sprint(u.name, flags), func(t *testing.T) {
				upstream, store := flags[0], flags[1]
				var args []string
				if upstream != "" && u.passedOnBy == "" {
					args = append(args, "--upstream", upstream)
				}
				if store != "" {
					args = append(args, "--store", store)
				}
				path, printed := written(t, u.name, args...)
				text := readText(t, path)
				check := []string{"rules", "check", "--strict", path}
				if u.isEnvoys() {
					check = []string{"rules", "check", "--strict", "--envoy", filepath.Dir(path)}
				} else if !strings.HasPrefix(text, "# yaml-language-server: $schema=https://raw.githubusercontent.com/stintdev/stint/main/docs/stint.schema.json\n") {
					t.Errorf("it begins\n%.200s", text)
				}
				if code, out, errs := call("", check...); code != 0 || strings.Contains(out, "ST0") || strings.Count(out, "\n") != 1 || errs != "" {
					t.Errorf("rules check: exit %d\n%s%s", code, out, errs)
				}
				if u.isEnvoys() {
					if store != "" && store != "memory" && !strings.Contains(printed, " --store ") {
						t.Errorf("the command has no store:\n%s", printed)
					}
					return
				}
				settings, _, err := readConfig(path)
				if err != nil {
					t.Fatal(err)
				}
				if want := cmp.Or(store, "memory"); settings.Store != want {
					t.Errorf("store %q, want %q", settings.Store, want)
				}
				if u.passedOnBy != "" {
					return
				}
				if want := cmp.Or(upstream, firstUpstream); len(settings.Routes) != 1 || settings.Routes[0].Upstream.String() != want {
					t.Errorf("routes %+v, want one to %s", settings.Routes, want)
				}
			})
		}
	}
}

// The file may have a password, so nobody else reads it. It can be printed, too.
func TestInitFile(t *testing.T) {
	path, _ := written(t, "login", "--store", "redis://:secret@h")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}
	t.Chdir(t.TempDir())
	code, out, errs := call("", "init", "login", "--file", "-", "--store", "redis://:secret@h")
	if code != 0 || out != readText(t, path) || errs != "" {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
		t.Errorf("files %v, %v", files, err)
	}
	for use, want := range map[string]string{"login": "stint.yaml", "envoy": "envoy/descriptors.yaml"} {
		if code, out, errs := call("", "init", use); code != 0 || !strings.HasPrefix(out, want+" is written.") || readText(t, want) == "" {
			t.Errorf("%s: exit %d, %s%s", use, code, out, errs)
		}
	}
}

// Whatever is at the path stays as it is.
func TestInitNeverOverwrites(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "file.yaml", "mine")
	for path, err := range map[string]error{"link.yaml": os.Symlink("file.yaml", "link.yaml"), "dangling.yaml": os.Symlink("nowhere.yaml", "dangling.yaml"), "folder": os.Mkdir("folder", 0o700)} {
		if err != nil {
			t.Fatal(path, err)
		}
	}
	for _, u := range uses {
		for _, path := range []string{"file.yaml", "link.yaml", "dangling.yaml", "folder"} {
			code, out, errs := call("", "init", u.name, "--file", path)
			if code != 1 || out != "" || !strings.Contains(errs, path+" exists, and stint init overwrites nothing") {
				t.Errorf("%s, %s: exit %d, %s%s", u.name, path, code, out, errs)
			}
		}
	}
	if got := readText(t, "file.yaml"); got != "mine" {
		t.Errorf("the file is %q", got)
	}
	if _, err := os.Stat("nowhere.yaml"); !os.IsNotExist(err) {
		t.Errorf("it wrote where the link points: %v", err)
	}
}

// What init prints can be given to a shell: the command serves the file, and what there is to try
// is answered.
func TestInitCommands(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not there")
	}
	for _, u := range uses {
		t.Run(u.name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "it's a folder")
			args := []string{"init", u.name, "--file", filepath.Join(folder, u.name+".yaml")}
			if u.passedOnBy == "" {
				args = append(args, "--upstream", hello(t))
			}
			code, printed, errs := call("", args...)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, errs)
			}
			var commands []string
			for line := range strings.Lines(printed) {
				if command, ok := strings.CutPrefix(line, "  "); ok {
					commands = append(commands, strings.TrimSpace(command))
				}
			}
			if len(commands) != 2 || !strings.HasPrefix(commands[0], "stint serve ") {
				t.Fatalf("it prints\n%s", printed)
			}
			serve := shellWords(t, commands[0])[2:]
			if u.isEnvoys() {
				serve = append(serve, "--envoy-listen", "127.0.0.1:0")
			}
			s := serving(t, serve...)
			try := strings.NewReplacer("http://localhost:8080", s.gateway, "http://localhost:8082", s.check).Replace(commands[1])
			words := shellWords(t, try)
			switch words[0] {
			case "curl":
				out, err := exec.Command(curl, append([]string{"-s"}, words[1:]...)...).CombinedOutput()
				if err != nil || !strings.HasPrefix(string(out), "HTTP/1.1 200 ") || !strings.Contains(strings.ToLower(string(out)), "ratelimit-remaining") {
					t.Errorf("%s: %v\n%s", try, err, out)
				}
			default:
				code, out, errs := call("", append(words[1:], "--admin", s.admin)...)
				if code != 0 || !strings.Contains(out, "allowed") || strings.Count(out, " applies: ") != 1 {
					t.Errorf("%s: exit %d\n%s%s", try, code, out, errs)
				}
			}
		})
	}
}

// shellWords are the words of a command as a shell reads them.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `printf '%s\n' `+command).Output()
	if err != nil {
		t.Fatal(command, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// A person at a terminal is asked for what flags do not say, until the answers are valid.
func TestInitAsks(t *testing.T) {
	for _, c := range []struct {
		name, said           string
		given                wanted
		use, upstream, store string
		failed               string
	}{
		{name: "a number", said: "2\n\n\n", use: "login", upstream: firstUpstream, store: "memory"},
		{name: "a name", said: "webhooks\nhttp://a:1\nredis://b\n", use: "webhooks", upstream: "http://a:1", store: "redis://b"},
		{name: "blanks", said: " 3 \n http://a:1 \n\n", use: "llm", upstream: "http://a:1", store: "memory"},
		{name: "wrong first", said: "\n8\n0\nlogins\n1\nlocalhost\nhttp://\n\nmemori\nmemory\n", use: "api-keys", upstream: firstUpstream, store: "memory"},
		{name: "Envoy has no upstream", said: "envoy\nredis://b\n", use: "envoy", store: "redis://b"},
		{name: "nginx has no upstream", said: "7\n\n", use: "nginx", store: "memory"},
		{name: "flags are not asked for", said: "2\n", given: wanted{upstream: "http://a:1", store: "redis://b"}, use: "login", upstream: "http://a:1", store: "redis://b"},
		{name: "the last answer is missing", said: "2\n\n", failed: "no answer"},
		{name: "nothing", failed: "no answer"},
		{name: "a flag that does not fit", said: "nginx\n", given: wanted{upstream: "http://a:1"}, failed: "nginx passes requests on itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := c.given
			var out bytes.Buffer
			err := w.ask(t.Context(), strings.NewReader(c.said), &out)
			if c.failed != "" {
				if err == nil || !strings.Contains(err.Error(), c.failed) {
					t.Fatalf("%v, want %s", err, c.failed)
				}
				return
			}
			if err != nil {
				t.Fatal(err, "\n", out.String())
			}
			if w.use.name != c.use || w.upstream != c.upstream || w.store != c.store {
				t.Errorf("%s, %s, %s\n%s", w.use.name, w.upstream, w.store, out.String())
			}
		})
	}
}

// Who stops the program, and does not answer, is not asked on.
func TestInitStopped(t *testing.T) {
	in, _ := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := new(wanted).ask(ctx, in, io.Discard); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Error(err)
	}
}

// The shell completes the uses, with their sentences.
func TestInitCompletion(t *testing.T) {
	_, out, _ := call("", "__complete", "init", "")
	for _, u := range uses {
		if !strings.Contains(out, u.name+"\t"+u.sentence+"\n") {
			t.Errorf("no %s:\n%s", u.name, out)
		}
	}
}
