package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// before is the version that this one replaces, instance by instance: until there is a release, a commit
// of main. docs/upgrades.md says what holds meanwhile.
const before = "e310d0c7"

const upgradeRules = `
server: {decision_timeout: 10s}
rules:
  - {name: token, match: operation == "token", key: client.ip, limits: [50 per 24h]}
  - {name: window, match: operation == "window", key: client.ip, limits: [50 per 5000h fixed_window]}
  - {name: log, match: operation == "log", key: client.ip, limits: [50 per 24h sliding_log]}
  - {name: sliding, match: operation == "sliding", key: client.ip, limits: [50 per 24h sliding_window]}
  - {name: leaky, match: operation == "leaky", key: client.ip, limits: [1 per 24h leaky_bucket burst 50]}
  - {name: held, match: operation == "held", key: client.ip, limits: [50 per 5000h fixed_window hold 1h]}
  - {name: login, match: operation == "login", key: client.ip, limits: [1 per 5000h fixed_window], penalty: {ban_after: 2, ban_for: 24h}}
`

// Instances of both versions over one Redis, through a rolling upgrade and back, admit what the limits
// say, keep each other's bans, and count each other as instances. While Redis is away, all together
// admit no more than a limit.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("builds another version")
	}
	old := buildOld(t)
	redis := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(file, []byte(upgradeRules), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(isOld bool) *served {
		t.Helper()
		args := []string{"serve", "--config", file, "--store", redis.URL(), "--listen", "127.0.0.1:0", "--check-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}
		c := program(t, args...)
		if isOld {
			c = exec.Command(old, args...)
		}
		_, s := started(t, c)
		stopsAtEnd(t, s.stop, s.log)
		return s
	}
	u := &upgrade{T: t, allowed: map[string]int{}}
	defer u.tellAfterFailure()
	u.instances = []*served{start(true), start(true)}
	u.step(1)
	for stage, isOld := range []bool{false, false, true, true} { // there and back
		i := stage % 2
		u.instances[i].stop()
		u.instances[i] = start(isOld)
		u.step(stage + 2)
	}
	for operation, n := range u.allowed {
		if n != 50 {
			t.Errorf("%s: %d of 50 were allowed", operation, n)
		}
	}
	for i, s := range u.instances {
		if strings.Contains(s.log.String(), "cannot be exchanged") {
			t.Errorf("instance %d cannot read the numbers of another one", i)
		}
	}
	// One of each, and no Redis: each decides by its share.
	u.instances[1].stop()
	u.instances[1] = start(false)
	await.Until(t, "each counts both", func() bool { return u.instancesOf(0) == 2 && u.instancesOf(1) == 2 })
	redis.Stop(t)
	admitted := 0
	for range 60 {
		for i := range u.instances {
			if u.ask(i, "window", "192.0.2.200") == "allowed" {
				admitted++
			}
		}
	}
	if admitted == 0 || admitted > 50 {
		t.Errorf("without Redis, %d of 50 were admitted", admitted)
	}
}

// upgrade is a fleet of two instances.
type upgrade struct {
	*testing.T
	instances []*served
	allowed   map[string]int
	banned    []string
}

// step asks both instances, and has each ban somebody whom both must refuse from then on.
func (u *upgrade) step(stage int) {
	u.Helper()
	for _, operation := range []string{"token", "window", "log", "sliding", "leaky", "held"} {
		for range 7 {
			for i := range u.instances {
				if u.ask(i, operation, "192.0.2.1") == "allowed" {
					u.allowed[operation]++
				}
			}
		}
	}
	for i, s := range u.instances {
		key := fmt.Sprintf("192.0.2.%d", 10*stage+i+100)
		for range 3 { // the second refusal bans
			u.ask(i, "login", key)
		}
		byHand := fmt.Sprintf("198.51.100.%d", 10*stage+i)
		u.call(s.admin+"/v1/bans", map[string]any{"rule": "login", "key": byHand, "for": "24h"}, nil)
		u.banned = append(u.banned, key, byHand)
	}
	for i := range u.instances {
		await.Until(u.T, "the bans are known", func() bool { return u.ask(i, "login", u.banned[len(u.banned)-1]) == "banned" })
		for _, key := range u.banned {
			if got := u.ask(i, "login", key); got != "banned" {
				u.Errorf("stage %d: instance %d answers %s about %s, which is banned", stage, i, got, key)
			}
		}
		await.Until(u.T, "each counts both", func() bool { return u.instancesOf(i) == 2 })
	}
}

// ask makes a check, and returns its outcome.
func (u *upgrade) ask(i int, operation, client string) string {
	u.Helper()
	var answer struct{ Outcome string }
	u.call(u.instances[i].check+"/v1/check", map[string]any{"operation": operation, "client": client}, &answer)
	return answer.Outcome
}

func (u *upgrade) instancesOf(i int) int {
	u.Helper()
	var status struct{ Instances []any }
	resp, err := http.Get(u.instances[i].admin + "/v1/instances")
	if err != nil {
		u.Fatal(err)
	}
	if err := json.Unmarshal([]byte(bodyOf(u.T, resp)), &status); err != nil {
		u.Fatal(err)
	}
	return len(status.Instances)
}

// tellAfterFailure logs what the instances knew of each other, and what they logged.
func (u *upgrade) tellAfterFailure() {
	for i, s := range u.instances {
		if !u.Failed() {
			return
		}
		if resp, err := http.Get(s.admin + "/v1/instances"); err == nil {
			u.Logf("instance %d: %s\n%s", i, bodyOf(u.T, resp), s.log)
		}
	}
}

func (u *upgrade) call(url string, body, answer any) {
	u.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		u.Fatal(err)
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		u.Fatal(err)
	}
	got := bodyOf(u.T, resp)
	if resp.StatusCode >= 500 || answer == nil && resp.StatusCode >= 300 {
		u.Fatalf("%s: %d %s", url, resp.StatusCode, got)
	}
	if answer != nil && json.Unmarshal([]byte(got), answer) != nil {
		u.Fatalf("%s: %s", url, got)
	}
}

// buildOld builds the program of the version before.
func buildOld(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	archive := exec.Command("git", "-C", "../..", "archive", before)
	text, err := archive.Output()
	if err != nil {
		t.Skipf("the checkout does not have the commit %s", before)
	}
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(text)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	program := filepath.Join(dir, "stint")
	build := exec.Command("go", "build", "-o", program, "./cmd/stint")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return program
}
