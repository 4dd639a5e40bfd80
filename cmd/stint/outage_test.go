package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server/config"
)

// What an operator types while the Redis is frozen is done at once by the instance that
// is asked, which says that it is alone with it, and by all when the Redis is back.
func TestFleetFrozen(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 2)
	const login = `{"operation":"login","client":"192.0.2.7"}`
	f.checks(login, 200, 200)
	f.do(0, []string{"the store"}, "status")
	thaw := f.redis.Freeze(t)

	const alone = "in force at this instance only, because the store does not answer"
	want(t, f.at(0), 0, []string{alone}, "ban", "add", "--network", "198.51.100.0/24", "--reason", "flood") // not known to be away yet
	await.Until(t, "it is known to be away", func() bool { code, _ := f.at(0)("status"); return code == 1 })
	want(t, f.at(0), 1, []string{"DOES NOT ANSWER", "decides    each rule's on_store_error", "ban by local, flood: in force only here", "namespace  stint"}, "status")
	began := time.Now()
	want(t, f.at(0), 0, []string{alone, "off"}, "switch", "upload", "off", "--reason", "refuses all")
	want(t, f.at(0), 0, []string{alone}, "override", "add", "--rule", "export", "--key", "ann", "--key", "export", "--times", "10")
	want(t, f.at(0), 0, []string{alone}, "safelist", "add", "--network", "203.0.113.5")
	want(t, f.at(0), 0, []string{"the store does not answer", "198.51.100.0/24"}, "ban", "list")
	want(t, f.at(0), 0, []string{"The store does not answer", "Rule login applies"}, "explain", "--operation", "login", "--client", "192.0.2.7")
	want(t, f.at(0), 0, []string{"the store does not answer", "2 per 1h sliding_log"}, "key", "show", "--rule", "login", "--key", "192.0.2.7")
	want(t, f.at(0), 0, []string{"rules of its file", "ordered by local"}, "rules", "source", "file")
	want(t, f.at(0), 0, []string{"rules of its file"}, "rules", "source", "fleet")
	if took := time.Since(began); took > 10*time.Second { // a second each would be as long as it takes to ask in vain
		t.Errorf("all that took %s", took)
	}
	if code := checked(t, f.all[0], `{"operation":"login","client":"198.51.100.9"}`); code != 429 {
		t.Errorf("who was banned here: %d", code)
	}
	if code := checked(t, f.all[1], `{"operation":"login","client":"198.51.100.9"}`); code != 200 {
		t.Errorf("the other instance knows of the ban: %d", code)
	}

	thaw()
	await.Until(t, "it is merged", func() bool { return len(f.status(0).Controls.Pending) == 0 && f.status(0).Store.OK })
	f.awaitChecks(`{"operation":"login","client":"198.51.100.9"}`, 429)
	f.await("it sees the others", func(i int) bool {
		_, switches := f.at(i)("switch")
		_, overrides := f.at(i)("override", "list")
		_, listed := f.at(i)("safelist", "list")
		return strings.Contains(switches, "upload  off") && strings.Contains(overrides, "ann") && strings.Contains(listed, "203.0.113.5")
	})
	if text := f.all[0].log.String(); strings.Count(text, `msg="audit: merged"`) != 4 || !strings.Contains(text, "pending=") {
		t.Errorf("the audit does not tell of 4 changes merged:\n%s", text)
	}
}

// Two services on one Redis share neither counts nor the kill switch nor bans, if each
// has a namespace, however they are given it.
func TestServeNamespaces(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := t.TempDir() + "/stint.yaml"
	const settings = "server: {decision_timeout: 20s%s}\nrules: [{name: default, key: client.ip, limits: [1 per 1h]}]\n"
	put(t, file, fmt.Sprintf(settings, ", namespace: mail"))
	rule := []string{"--config", configured(t, fmt.Sprintf(settings, "")), "--store"}
	all := map[string]*served{
		"stint": serving(t, append(rule, redis.URL())...),
		"shop":  serving(t, append(rule, redis.URL(), "--namespace", "shop")...),
		"post":  serving(t, append(rule, redis.URL()+"?namespace=post")...),
		"mail":  serving(t, "--config", file, "--store", redis.URL()+"?namespace=post"),
	}
	for name, s := range all {
		want(t, calling(s.admin), 0, []string{"namespace  " + name, "1 instance"}, "status")
		if !strings.Contains(s.log.String(), "namespace="+name+"\n") {
			t.Errorf("the log does not tell the namespace %s:\n%s", name, s.log)
		}
		for i, code := range []int{200, 429} {
			if got := checked(t, s, `{"client":"192.0.2.1"}`); got != code {
				t.Errorf("%s, check %d: %d, want %d", name, i, got, code)
			}
		}
	}
	want(t, calling(all["shop"].admin), 0, nil, "switch", "off")
	want(t, calling(all["post"].admin), 0, nil, "ban", "add", "--network", "198.51.100.0/24")
	time.Sleep(time.Second) // in which each has looked twice
	for name, s := range all {
		limited, banned := 429, 200
		switch name {
		case "shop":
			limited = 200
		case "post":
			banned = 429
		}
		if got := checked(t, s, `{"client":"192.0.2.1"}`); got != limited {
			t.Errorf("%s, who has used his limit: %d, want %d", name, got, limited)
		}
		if got := checked(t, s, `{"client":"198.51.100.1"}`); got != banned {
			t.Errorf("%s, who is banned by post: %d, want %d", name, got, banned)
		}
	}
	keys, err := redis.Do(t, "KEYS", "*").AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if name, _, _ := strings.Cut(key, ":"); all[name] == nil {
			t.Errorf("key %s is in no namespace", key)
		}
	}
	code, _, errs := call("", "serve", "--limit", "1 per 1h", "--store", redis.URL(), "--namespace", "a b")
	if code != 2 || !strings.Contains(errs, "--namespace: namespace \"a b\"") {
		t.Errorf("%d %s", code, errs)
	}
}

// The section server takes the namespaces that the store takes.
func TestNamespacesAgree(t *testing.T) {
	for _, name := range []string{"stint", "a", "A.b_c:d-9", strings.Repeat("x", 64), strings.Repeat("x", 65), "a b", "a{", "ä", "a/b", "\n"} {
		_, ours := config.ParseNamespace(name)
		store, theirs := redislimit.Connect(t.Context(), "redis://127.0.0.1:1", redislimit.Options{Namespace: name, Background: true})
		if theirs == nil {
			store.Close()
		}
		if (ours == nil) != (theirs == nil) {
			t.Errorf("%q: %v, and %v", name, ours, theirs)
		}
	}
}
