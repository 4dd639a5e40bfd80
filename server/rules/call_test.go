package rules_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Expressions see a call of Envoy's service as operation, attrs and client.ip.
func TestExpressionsOfCalls(t *testing.T) {
	two := call("shop", "user=ann path=/a user=bob", "user=carl plan=gold")
	tests := []struct {
		match string
		in    *rules.Input
		want  bool
	}{
		{`operation == "shop"`, two, true},
		{`attrs.domain == "shop"`, two, true},
		{`attrs.user == "ann" && attrs.plan == "gold" && attrs.path == "/a"`, two, true},
		{`attrs.descriptors.size() == 2 && attrs.descriptors[0].user == "ann" && attrs.descriptors[1].user == "carl"`, two, true},
		{`attrs.descriptors.exists(d, "plan" in d && d.user == "ann")`, two, false},
		{`attrs.domain == "shop" && attrs.descriptors.size() == 1`, call("shop", "domain=other descriptors=none"), true}, // entries do not hide them
		{`"user" in attrs`, call("shop", "plan=gold"), false},
		{`client.ip == "192.0.2.1"`, call("shop", "remote_address=192.0.2.1"), true},
		{`client.ip == "192.0.2.1"`, call("shop", "remote_address=::ffff:192.0.2.1"), true},
		{`client.ip == "192.0.2.0"`, call("shop", "user=ann", "masked_remote_address=192.0.2.0/24"), true},
		{`client.ip == "192.0.2.1"`, call("shop", "masked_remote_address=192.0.2.0/24", "remote_address=192.0.2.1"), true},
		{`client.ip == "192.0.2.2"`, call("shop", "remote_address=none", "remote_address=192.0.2.2"), true},
		{`client.ip == client.ip`, call("shop", "remote_address=none", "user=192.0.2.2"), false}, // it is not known
		{`client.ip == "198.51.100.1"`, &rules.Input{Client: addr("198.51.100.1"), Descriptors: call("shop", "remote_address=192.0.2.1").Descriptors}, true},
		{`operation == "given" && attrs.user == "dan" && !has(attrs.domain)`, &rules.Input{Operation: "given", Attrs: map[string]any{"user": "dan"}, Descriptors: two.Descriptors}, true},
	}
	for _, tt := range tests {
		set := one(t, "match: "+quoted(tt.match), `key: '"k"'`)
		if got := asked(set, tt.in) == `r="k":1`; got != tt.want {
			t.Errorf("%s: %v, want %v", tt.match, got, tt.want)
		}
	}
}

// A rule with an expression takes what the descriptor with the highest cost takes. Units that are
// given back are no cost.
func TestCostOfCalls(t *testing.T) {
	set := one(t, "key: attrs.user")
	for _, tt := range []struct {
		costs    []int64
		giveBack int // so many of the last give back
		want     string
	}{
		{[]int64{1, 1}, 0, `r="ann":1`},
		{[]int64{2, 7, 0}, 0, `r="ann":7`},
		{[]int64{0}, 0, `r="ann":0`},
		{[]int64{1, 9}, 1, `r="ann":1`},
		{[]int64{9}, 1, `r="ann":0`},
	} {
		in := call("shop", strings.Split(strings.Repeat(" user=ann", len(tt.costs))[1:], " ")...)
		in.Cost = 3 // is not used
		for i, cost := range tt.costs {
			in.Descriptors.List[i].Cost, in.Descriptors.List[i].GiveBack = cost, i >= len(tt.costs)-tt.giveBack
		}
		if got := asked(set, in); got != tt.want {
			t.Errorf("costs %d, the last %d given back: %s, want %s", tt.costs, tt.giveBack, got, tt.want)
		}
	}
}

// The default key of a rule is the domain and the address of the client.
func TestDefaultKeyOfCalls(t *testing.T) {
	key, err := rules.JoinKey("shop", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	var m rules.Plan
	if err := one(t).Asks(call("shop", "remote_address=192.0.2.1"), &m); err != nil || len(m.Asks) != 1 || m.Asks[0].Key != string(key) {
		t.Errorf("%v, %+v: want the key %q", err, m.Asks, key)
	}
}

// A safelist and a ban of a network find the client of a call.
func TestListsOfCalls(t *testing.T) {
	set := parse(t, "safelist: ['client.ip == \"192.0.2.1\"']\nblocklist: ['attrs.user == \"eve\"']\nrules: [{name: r, key: attrs.user, limits: [1 per 1m]}]\n")
	for _, tt := range []struct {
		in   *rules.Input
		want string
	}{
		{call("d", "remote_address=192.0.2.1", "user=eve"), "safe"},
		{call("d", "remote_address=192.0.2.2", "user=eve"), "blocked"},
		{call("d", "remote_address=192.0.2.2", "user=ann"), `r="ann":1`},
	} {
		if got := asked(set, tt.in); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.in.Descriptors, got, tt.want)
		}
	}
}

// A malformed call is an error, whatever the rules are.
func TestMalformedCalls(t *testing.T) {
	many, negative := call("d", strings.Fields(strings.Repeat("k=v ", stint.MaxAsks+1))...), call("d", "k=v", "k=w")
	negative.Descriptors.List[1].Cost = -1
	for _, tt := range []struct {
		in   *rules.Input
		want string
	}{
		{call("", "k=v"), "rate limit domain must not be empty"},
		{call("d"), "rate limit descriptor list must not be empty"},
		{many, "501 descriptors: at most 500"},
		{negative, "descriptor 2: cost -1: must not be negative"},
	} {
		if got := asked(one(t), tt.in); !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
