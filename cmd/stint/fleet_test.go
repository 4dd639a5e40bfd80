package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server/adminapi"
)

// fleet is instances of the real program that share a Redis. Everything that is done
// to them is done by the command line.
type fleet struct {
	*testing.T
	redis *redistest.Server
	file  string // that each of them starts with
	all   []*served
}

const fleetSettings = "server: {rules: fleet, decision_timeout: 2s}\n"

const fleetRules = `
tiers: {gold: attrs.plan == "gold"}
rules:
  - {name: login, match: operation == "login", key: client.ip, limits: [2 per 1h sliding_log], penalty: {ban_after: 3, ban_for: 30m}}
  - {name: export, match: operation == "export", key: '[attrs.user, operation]', limits: [2 per 1h sliding_log]}
  - {name: upload, match: operation == "upload", key: attrs.user, limits: [2 per 1h sliding_log]}
`

// startFleet starts n instances.
func startFleet(t *testing.T, n int) *fleet { return startFleetWith(t, fleetRules, n) }

// startFleetWith starts n instances with these rules in their file.
func startFleetWith(t *testing.T, rules string, n int) *fleet {
	t.Helper()
	f := &fleet{T: t, redis: redistest.Start(t), file: filepath.Join(t.TempDir(), "stint.yaml")}
	put(t, f.file, fleetSettings+rules)
	for range n {
		f.join()
	}
	return f
}

// join starts one more instance.
func (f *fleet) join() *served {
	f.Helper()
	s := serving(f.T, "--config", f.file, "--store", f.redis.URL())
	f.all = append(f.all, s)
	return s
}

// at makes calls to an instance.
func (f *fleet) at(i int) func(args ...string) (code int, text string) {
	return func(args ...string) (int, string) {
		code, out, errs := call("", append(args, "--admin", f.all[i].admin)...)
		return code, out + errs
	}
}

// do makes a call to an instance that must succeed and say all words.
func (f *fleet) do(i int, words []string, args ...string) string {
	f.Helper()
	return want(f.T, f.at(i), 0, words, args...)
}

// await waits for something to become so at every instance, which the fleet promises
// within a second, and returns how long it took.
func (f *fleet) await(what string, so func(i int) bool) time.Duration {
	f.Helper()
	start := time.Now()
	for i := range f.all {
		if !await.So(func() bool { return so(i) }) {
			f.Fatalf("instance %d: not within %s: %s\n%s", i, await.Patience, what, f.all[i].log)
		}
	}
	return time.Since(start)
}

// awaitRules waits until every instance runs a version of the fleet's rules.
func (f *fleet) awaitRules(number int64) time.Duration {
	f.Helper()
	return f.await(fmt.Sprintf("it runs version %d", number), func(i int) bool { return f.status(i).Rules.Number == number })
}

func (f *fleet) status(i int) (s adminapi.Status) {
	f.Helper()
	_, text := f.at(i)("status", "--json") // 1 where the store does not answer
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		f.Fatalf("%v: %s", err, text)
	}
	return s
}

// awaitChecks waits until a check at every instance has this status. What is asked
// must not count.
func (f *fleet) awaitChecks(body string, status int) {
	f.Helper()
	f.await(fmt.Sprintf("%s: %d", body, status), func(i int) bool { return checked(f.T, f.all[i], body) == status })
}

// checks asks the instances in turn, and wants these statuses.
func (f *fleet) checks(body string, statuses ...int) {
	f.Helper()
	for i, status := range statuses {
		if code := checked(f.T, f.all[i%len(f.all)], body); code != status {
			f.Fatalf("%s, request %d: %d, want %d", body, i, code, status)
		}
	}
}

// write makes a file of the test's own.
func (f *fleet) write(name, text string) (path string) {
	path = filepath.Join(filepath.Dir(f.file), name)
	put(f.T, path, text)
	return path
}

// What is pushed at one instance, every one runs soon; of two who push at once one is
// told of the other, and nothing is lost.
func TestFleetPush(t *testing.T) {
	f := startFleet(t, 3)
	if s := f.status(2); s.Rules.Source != "file" || s.Rules.Number != 0 || !s.Store.Shared || s.Store.Kind != "redis" {
		t.Fatalf("at the start: %+v", s)
	}
	start := time.Now()
	f.do(0, []string{"version 1 ("}, "rules", "push", f.write("first.yaml", limited(1, "")), "--note", "first")
	f.awaitRules(1)
	t.Logf("from the command to the last instance: %v", time.Since(start))
	f.do(1, []string{"version 2 ("}, "rules", "push", f.write("second.yaml", limited(2, "")), "--after", "1")
	f.awaitRules(2)
	f.checks(`{"client":"192.0.2.1"}`, 200, 200, 429)

	// Two at once.
	var codes [2]int
	var said, files [2]string
	var both sync.WaitGroup
	for i := range codes {
		files[i] = f.write(fmt.Sprintf("rival%d.yaml", i), limited(10+i, ""))
		both.Go(func() {
			codes[i], said[i] = f.at(i)("rules", "push", files[i], "--after", "2", "--note", fmt.Sprint("rival ", i))
		})
	}
	both.Wait()
	winner, loser := 0, 1
	if codes[0] != 0 {
		winner, loser = 1, 0
	}
	if codes[winner] != 0 || codes[loser] != 1 || !strings.Contains(said[loser], "nothing is changed: version 2 was to be replaced") ||
		!strings.Contains(said[loser], fmt.Sprintf("%q", fmt.Sprint("rival ", winner))) || !strings.Contains(said[loser], "--after 3") {
		t.Fatalf("exit %v\n%s\n%s", codes, said[0], said[1])
	}
	f.do(loser, []string{"version 4 ("}, "rules", "push", files[loser], "--after", "3", "--note", fmt.Sprint("rival ", loser))
	f.awaitRules(4)
	f.do(2, []string{"rival 0", "rival 1", "first"}, "rules", "history")
	for number, amount := range map[int]int{1: 1, 2: 2, 3: 10 + winner, 4: 10 + loser} {
		f.do(2, []string{fmt.Sprintf("# version %d of the fleet's rules\n%s", number, limited(amount, ""))}, "rules", "pull", "--number", fmt.Sprint(number))
	}

	// Back to the second, at the third instance; one that comes later has it, too,
	// whatever its file says, before it answers anybody.
	f.do(2, []string{"version 5 (", "what version 2 held replaces version 4"}, "rules", "rollback", "2", "--note", "both were wrong")
	t.Logf("from the rollback's answer to the last instance: %v", f.awaitRules(5))
	f.join()
	if s := f.status(3); s.Rules.Number != 5 || s.Rules.Version != f.status(0).Rules.Version {
		t.Errorf("one that came later: %+v", s.Rules)
	}
	pulled := f.write("pulled.yaml", f.do(3, nil, "rules", "pull"))
	if text := f.do(0, nil, "rules", "diff", pulled); text != "" {
		t.Errorf("what was pulled differs:\n%s", text)
	}
	want(t, f.at(1), 1, []string{"-  - {name: client", "[2 per 1h", "+  - {name: client", "[1 per 1h"}, "rules", "diff", filepath.Join(filepath.Dir(f.file), "first.yaml"))
	want(t, f.at(1), 1, []string{"bad.yaml:2:25: unknown variable"}, "rules", "push", "testdata/files/bad.yaml", "--after", "5")
	f.checks(`{"client":"192.0.2.1"}`, 429)
}

// What is switched, overridden and listed at one instance is so at every other.
func TestFleetControls(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	const export = `{"operation":"export","attrs":{"user":"ann"}}`
	f.checks(export, 200, 200, 429)

	f.do(0, []string{"export  shadow  shadow  enforce"}, "switch", "export", "shadow", "--reason", "refuses the fair")
	f.awaitChecks(export, 200)
	f.do(1, []string{"limiting: off, everything passes"}, "switch", "off")
	f.do(2, []string{"limiting: off", "export  enforce"}, "switch", "export", "file") // on top of what others set
	f.awaitChecks(export, 200)
	f.do(0, []string{"limiting: on (as the file says)"}, "switch", "file")
	f.awaitChecks(export, 429)

	// Ten times the limits, for a while.
	f.do(1, []string{`rule export, key ["ann","export"], 10 times, until `}, "override", "add", "--rule", "export", "--key", "ann", "--key", "export", "--times", "10", "--for", "3s")
	f.await("it is listed", func(i int) bool { _, text := f.at(i)("override", "list"); return strings.Contains(text, "10 times") })
	f.do(2, []string{"20"}, "key", "show", "--rule", "export", "--key", "ann", "--key", "export")
	f.checks(export, 200)
	f.await("it has ended", func(i int) bool {
		_, text := f.at(i)("override", "list")
		return strings.Contains(text, "no overrides")
	})
	f.checks(export, 429)
	text := f.do(0, nil, "override", "add", "--rule", "upload", "--tier", "gold", "--limit", "5 per 1h sliding_log")
	id, _, _ := strings.Cut(strings.TrimPrefix(text, "override "), ":")
	gold := func(i int) bool {
		return strings.Contains(f.do(i, nil, "key", "show", "--rule", "upload", "--key", "x", "--tier", "gold"), "5 per 1h")
	}
	f.await("gold has more", gold)
	f.do(2, []string{"removed override " + id}, "override", "remove", id, "--reason", "the fair is over")
	f.await("gold has no more", func(i int) bool { return !gold(i) })
	if log := f.all[2].log.String(); !strings.Contains(log, `action="remove override" what="rule upload, tier gold: 5 per 1h sliding_log" reason="the fair is over"`) {
		t.Errorf("the log does not tell why:\n%s", log)
	}

	f.do(0, nil, "safelist", "add", "--match", `attrs.user == "ann"`)
	f.awaitChecks(export, 200)
	f.do(1, nil, "blocklist", "add", "--network", "203.0.113.0/24", "--for", "1h")
	f.awaitChecks(`{"client":"203.0.113.9"}`, 403)
	if code := checked(t, f.join(), `{"client":"203.0.113.9"}`); code != 403 {
		t.Errorf("one that came later: %d", code)
	}
	f.checks(export, 200, 200, 200, 200)
}

// Bans by hand and by penalty hold everywhere, and are lifted from anywhere.
func TestFleetBans(t *testing.T) {
	f := startFleet(t, 3)
	login := func(client string) string { return fmt.Sprintf(`{"operation":"login","client":%q}`, client) }
	explained := func(client string, words ...string) {
		t.Helper()
		for i := range f.all {
			f.do(i, words, "explain", "--operation", "login", "--client", client)
		}
	}

	f.do(0, []string{"rule login, key 192.0.2.7, until "}, "ban", "add", "--rule", "login", "--key", "192.0.2.7", "--for", "2h", "--reason", "tries passwords")
	f.await("it lists the ban", func(i int) bool { return strings.Contains(f.do(i, nil, "ban", "list"), "192.0.2.7") })
	f.checks(login("192.0.2.7"), 429, 429, 429)
	explained("192.0.2.7", "banned, rule login", "tries passwords")
	f.do(2, []string{"network 198.51.100.0/24, without end", "it has no end"}, "ban", "add", "--network", "198.51.100.0/24")
	f.awaitChecks(`{"client":"198.51.100.77"}`, 429)
	f.do(1, []string{"192.0.2.7", "198.51.100.0/24", "tries passwords"}, "ban", "list")
	if code := checked(t, f.join(), login("192.0.2.7")); code != 429 {
		t.Errorf("one that came later: %d", code)
	}
	f.do(1, []string{"lifted ban ", "key 192.0.2.7"}, "ban", "lift", "--rule", "login", "--key", "192.0.2.7")
	f.do(0, []string{"lifted ban ", "network 198.51.100.0/24"}, "ban", "lift", "--network", "198.51.100.0/24")
	f.await("no ban is left", func(i int) bool { _, text := f.at(i)("ban", "list"); return text == "no bans\n" })
	f.awaitChecks(`{"client":"198.51.100.77"}`, 200)
	f.checks(login("192.0.2.7"), 200)

	// The third violation bans, wherever the ones before were counted.
	f.checks(login("192.0.2.8"), 200, 200, 429, 429, 429)
	explained("192.0.2.8", "banned, rule login", "banned for another")
	f.do(3, []string{"by penalty:", "login  192.0.2.8"}, "ban", "list", "--rule", "login")
	f.do(1, []string{"lifted the penalty's ban: rule login, key 192.0.2.8"}, "ban", "lift", "--rule", "login", "--key", "192.0.2.8")
	explained("192.0.2.8", "limited, rule login", "0 violations")
	f.checks(login("192.0.2.8"), 429)
	f.do(2, []string{"no ban was in force; violations are forgotten"}, "ban", "lift", "--rule", "login", "--key", "192.0.2.8")
	want(t, f.at(2), 1, []string{"neither a ban nor a violation"}, "ban", "lift", "--rule", "login", "--key", "192.0.2.8")
}

// What is done to a key is seen at every instance.
func TestFleetKeys(t *testing.T) {
	f := startFleet(t, 3)
	const upload = `{"operation":"upload","attrs":{"user":"ann"}}`
	key := func(i int, what string, more ...string) func(line string) {
		t.Helper()
		text := f.do(i, nil, append([]string{"key", what, "--rule", "upload", "--key", "ann"}, more...)...)
		return func(line string) {
			t.Helper()
			if !strings.Contains(text, "\n2 per 1h sliding_log  "+line) {
				t.Errorf("want %q in\n%s", line, text)
			}
		}
	}
	f.checks(upload, 200, 200, 429)
	key(0, "show")("2     2   0 ")
	key(1, "refund", "--cost", "1", "--reason", "upload 17 failed")("1     2   1 ")
	key(2, "show")("1     2   1 ")
	f.checks(upload, 200, 429)
	key(2, "reset")("0     2   2     0s")
	f.checks(upload, 200, 200, 429)
}
