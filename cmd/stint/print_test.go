package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

// TestPrintStatus prints what no one instance is at a time.
func TestPrintStatus(t *testing.T) {
	at := func(minutes int) time.Time { return time.Date(2026, 3, 1, 12, minutes, 0, 250e6, time.UTC) }
	read, no, ahead := at(-60), false, -(2 * time.Minute).Microseconds()
	s := adminapi.Status{
		Program: "stint v1.2.3", Started: at(0),
		Rules: adminapi.RulesStatus{
			Source: "fleet", Version: "a1b2c3d4e5f6", Number: 2, Count: 12, Taken: at(0),
			Refused: &adminapi.RefusedRules{At: at(5), Error: "2:25: unknown variable \x1b[2J\n3:1: and another"},
			Ordered: &adminapi.Order{At: at(1), Who: "ann", Reason: "they refuse all\x1b"},
		},
		Controls: adminapi.ControlsStatus{
			Number: 9, Source: "state_dir", Read: &read, StateError: "no space left \x1b[2J",
			Problems: []adminapi.ControlProblem{{ID: "o2", Text: "unknown tier"}},
			Pending:  []adminapi.PendingChange{{At: at(6), Who: "ann", Action: "switch", Reason: "it burns \x1b[2J"}},
		},
		Store: adminapi.StoreStatus{
			Kind: "redis", Shared: true, Error: "connection refused", Breaker: "open", Instances: 3,
			Decides: "on_store_error", Namespace: "shop", Listening: &no, ClockAhead: &ahead,
		},
		Memory:   adminapi.MemoryStatus{Bytes: 1 << 30, From: "cgroup", Sum: 886 << 20},
		Findings: []rules.Finding{{Code: "ST002", Where: "stint.yaml:3:5", Text: "the rule never applies"}, {Code: "ST009", Text: "no limit is shared"}},
	}
	const want = `program    stint v1.2.3
started    2026-03-01T12:00:00Z
rules      12 rules, version a1b2c3d4e5f6, from the fleet, number 2, taken 2026-03-01T12:00:00Z
           limiting is off: everything passes; see ` + "`stint switch`" + `
           ordered by ann at 2026-03-01T12:01:00Z, they refuse all\x1b; ` + "`stint rules source fleet`" + ` ends it
refused    2026-03-01T12:05:00Z: 2:25: unknown variable \x1b[2J
           3:1: and another
controls   version 9, KEPT in state_dir, read from the store 2026-03-01T11:00:00Z: the store was not read since the start
           the state for the next start cannot be written to state_dir: no space left \x1b[2J
           o2 has no effect: unknown tier
pending    2026-03-01T12:06:00Z switch by ann, it burns \x1b[2J: in force only here until the store is back
store      redis, DOES NOT ANSWER: connection refused
namespace  shop
clock      2m0s BEHIND the store's clock, by which bans and overrides expire
decides    each rule's on_store_error; local is one of 3 shares of each limit
breaker    open, 3 instances
memory     at most 886MiB of 1GiB (cgroup)
denials    not remembered: other instances cannot tell this one what they reset or lift
finding    ST002 stint.yaml:3:5: the rule never applies
finding    ST009 no limit is shared
`
	var b strings.Builder
	printStatus(&b, s)
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
	b.Reset()
	s.Controls.Source, s.Store.Instances = "nowhere", 1
	printStatus(&b, s)
	for _, words := range []string{"controls   NOT READ since the start", "local is the whole limit"} {
		if !strings.Contains(b.String(), words) {
			t.Errorf("want %q in\n%s", words, &b)
		}
	}
}

// TestPrintBans prints bans of keys of which a store tells the hash, and others that take
// long to come about.
func TestPrintBans(t *testing.T) {
	var b strings.Builder
	printBans(&b, adminapi.Bans{Truncated: true, ByPenalty: []adminapi.PenaltyBan{
		{Rule: "login", Key: "\u009b2J\u202e", Left: (76 * time.Hour).Microseconds() + 5, Bans: 3},
		{Rule: "export", Key: "5f2b", Hashed: true, Left: -1, Bans: 2},
	}, CountedBy: adminapi.CountedBy{By: "local", StoreError: "refused \x1b[2J"}})
	const want = `the store does not answer: refused \x1b[2J; bans by penalty are those that this instance knows of
by penalty:
RULE    KEY                        LEFT   IN A ROW
login   "\u009b2J\u202e"           3d 4h  3
export  5f2b (hash of a long key)  never  2
there are more: --limit shows more, --rule only those of one rule
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}

// TestExplainBody says which request the flags of explain make.
func TestExplainBody(t *testing.T) {
	for args, want := range map[string]string{
		"": `{}`,
		"--method POST --path /login?a=b --host example.com --header x-user:ann --header X-User:bob --client 192.0.2.1 --cost 2": `{"cost":2,"client":"192.0.2.1","request":{"method":"POST","path":"/login?a=b","host":"example.com","headers":{"X-User":["ann","bob"]}}}`,
		"--route api": `{"request":{"method":"GET","path":"/","route":"api"}}`,
		"--operation export --attr user=ann --attr size=20 --attr id=12345678901234567890 --attr big=1e3 --attr ok=true --attr none=null --attr text=\"20\" --attr list=[1] --attr empty= --claim sub=7": `{"operation":"export","attrs":{"big":1e3,"empty":"","id":12345678901234567890,"list":"[1]","none":null,"ok":true,"size":20,"text":"\"20\"","user":"ann"},"claims":{"sub":7}}`,
	} {
		c := &cobra.Command{}
		body, finish := explainFlags(c)
		if err := c.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := finish(); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(body)
		if err != nil || string(got) != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", args, got, err, want)
		}
	}
}

// TestPrintOffenders prints what a terminal must not obey, and hashes as such.
func TestPrintOffenders(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pair, err := rules.JoinKey("ann", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		all  adminapi.Offenders
		want string
	}{
		{adminapi.Offenders{Of: "keys", By: "refusals", Since: at, Total: 100, Instances: 3, Offenders: []adminapi.Offender{
			{Rule: "login", Key: pair, Count: 50, Error: 2}, {Rule: "api", Key: "\x1b[2J", Count: 7}, {Rule: "api", Key: "h:0123456789abcdef", Hashed: true, Count: 1},
		}}, `keys by refusals since 2026-03-01T12:00:00Z, 3 instances: 100 in all
COUNT  ERROR  RULE   KEY
50     2      login  ["ann","192.0.2.1"]
7      -      api    "\x1b[2J"
1      -      api    h:0123456789abcdef (hash)
`},
		{adminapi.Offenders{Of: "paths", By: "use", Since: at, Total: 5, Instances: 1, Offenders: []adminapi.Offender{{Name: "/a\u202e", Count: 5}}},
			"paths by use since 2026-03-01T12:00:00Z, 1 instance: 5 in all\nCOUNT  PATH\n5      \"/a\\u202e\"\n"},
	} {
		var b strings.Builder
		printOffenders(&b, c.all)
		if b.String() != c.want {
			t.Errorf("%s\nwant\n%s", b.String(), c.want)
		}
	}
	var b strings.Builder
	printHistory(&b, adminapi.History{Hours: []adminapi.HistoryHour{{From: at, Count: 9, Error: 1}, {From: at.Add(time.Hour), Count: 2}}})
	if want := "HOUR                  COUNT  ERROR\n2026-03-01T12:00:00Z  9      1\n2026-03-01T13:00:00Z  2      -\n"; b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
