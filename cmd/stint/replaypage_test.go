package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stintdev/stint/cmd/stint/internal/replay"
)

// pageLog is an hour of an address that asks too much, among others.
func pageLog() string {
	var log strings.Builder
	for second := range 3600 {
		at := "[20/Nov/2026:10:" + time2(second/60) + ":" + time2(second%60) + " +0000]"
		if second%2 == 0 {
			log.WriteString("203.0.113.9 - - " + at + ` "GET /a HTTP/1.1" 200 1 "-" "-"` + "\n")
		}
		log.WriteString("192.0.2." + time2(10+second%50) + " - - " + at + ` "GET /a HTTP/1.1" 200 1 "-" "-"` + "\n")
	}
	return log.String()
}

func time2(n int) string { return string([]byte{byte('0' + n/10%10), byte('0' + n%10)}) }

// The page has what the report has, and the peaks of rules for which nobody wished suggestions. What is printed is
// the same with and without it.
func TestReplayPage(t *testing.T) {
	dir := t.TempDir()
	file, old, path, to := filepath.Join(dir, "new.yaml"), filepath.Join(dir, "old.yaml"), filepath.Join(dir, "access.log"), filepath.Join(dir, "report.html")
	put(t, file, "rules: [{name: address, key: client.ip, limits: [5 per 1m]}, {name: path, key: request.path, limits: [10000 per 1m]}]")
	put(t, old, "rules: [{name: address, key: client.ip, limits: [20 per 1m]}, {name: gone, key: client.ip, limits: [1 per 1h]}]")
	put(t, path, pageLog())
	for _, flag := range []string{"--json", "--repeats"} {
		args := []string{"replay", "--rules", file, "--against", old, flag, path}
		_, want, _ := call("", args...)
		code, out, errs := call("", append(args, "--html", to)...)
		if code != 0 || out != want {
			t.Errorf("%d %s%s, want %s", code, errs, out, want)
		}
		page, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"<h2><code>address</code></h2>", "<code>203.0.113.9</code>", "<svg", "limit before", "gone</code> (", `class="week"`, `class="c4" title="`, "建议的限额"} {
			if !strings.Contains(string(page), part) {
				t.Errorf("the page has no %s", part)
			}
		}
		if err := os.Remove(to); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(to); err == nil {
		t.Fatal("the page is still there")
	}
	put(t, to, "mine")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--html", to}, 1, "--html: create " + to + ": file exists"},
		{[]string{"--html", filepath.Join(dir, "no", "report.html")}, 1, "--html: stat " + filepath.Join(dir, "no") + ": no such file or directory"},
		{[]string{"--html", filepath.Join(file, "report.html")}, 1, "--html: " + file + " is not a directory"},
		{[]string{"--html", "-"}, 2, "--html: want a file: standard output has the report"},
		{[]string{"--suggest", "all", "--suggested", "-"}, 2, "--suggested: want a file"},
		{[]string{"--suggest", "all", "--suggested", filepath.Join(dir, "same"), "--html", dir + "/./same"}, 2, "--suggested and --html want different files"},
		{[]string{"--html", filepath.Join(dir, "new.html"), "--each"}, 2, "--each prints no report: want it without --json, --repeats, --suggest and --html"},
	} {
		if code, out, errs := call("", append([]string{"replay", "--rules", file, path}, c.args...)...); code != c.code || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d, %s%s", c.args, code, errs, out)
		}
	}
	if data, err := os.ReadFile(to); err != nil || string(data) != "mine" {
		t.Error(string(data), err)
	}
}

// Ctrl-C writes the page of what is known by then.
func TestReplayPageInterrupted(t *testing.T) {
	dir := t.TempDir()
	file, to := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "report.html")
	put(t, file, "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]")
	ctx, in := interrupted(t)
	var out, errs bytes.Buffer
	code := run(ctx, []string{"replay", "--rules", file, "--html", to, "-"}, in, &out, &errs)
	page, err := os.ReadFile(to)
	if code != 0 || err != nil || !strings.Contains(string(page), "Interrupted: this is what was read until then.") || !strings.Contains(string(page), "1 per 1h") {
		t.Errorf("%d %s%s%v", code, &out, &errs, err)
	}
}

// Ctrl-C counts all lines that a slow pipe gave.
func TestReplayPipeInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	put(t, file, "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]")
	ctx, stop := context.WithCancel(t.Context())
	in, to := io.Pipe()
	defer in.Close()
	go func() {
		io.WriteString(to, strings.Repeat(combined("192.0.2.1", 0, 200), 99))
		io.WriteString(to, combined("192.0.2.1", 0, 200)) // once it is taken, those before were read
		stop()
	}()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"replay", "--rules", file, "--json", "-"}, in, &out, &errs)
	var p replay.Report
	if err := json.Unmarshal(out.Bytes(), &p); err != nil || code != 0 || !p.Log.Interrupted || p.Requests < 99 || p.ByRule[0].Requests != p.Requests {
		t.Errorf("%d %v %s%s", code, err, &out, &errs)
	}
}

// Ctrl-C ends to read a named pipe, too, although somebody still writes to it.
func TestReplayNamedPipeInterrupted(t *testing.T) {
	dir := t.TempDir()
	file, named := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "pipe")
	put(t, file, "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]")
	if err := syscall.Mkfifo(named, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan *os.File, 1)
	go func() {
		to, err := os.OpenFile(named, os.O_WRONLY, 0)
		if err == nil { // more than all buffers on the way have room for
			_, err = io.WriteString(to, strings.Repeat(combined("192.0.2.1", 0, 200), 10_000))
		}
		if err != nil {
			t.Error(err)
		}
		written <- to
		stop()
	}()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"replay", "--rules", file, named}, nil, &out, &errs)
	if to := <-written; code != 0 || !strings.Contains(out.String(), "Interrupted: ") {
		t.Errorf("%d %s%s", code, &out, &errs)
	} else {
		to.Close()
	}
}
