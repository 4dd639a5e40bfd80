package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/internal/rulestest"
	"github.com/stintdev/stint/server/rules"
)

// What rules read and a log lacks is never guessed: the rules that are tried ask the same about a request and
// about what is known of it.
func TestTryingReadsOnlyTheKnown(t *testing.T) {
	asked, off, compared := 0, 0, 0
	for seed := range uint64(400) {
		scenario := rulestest.Draw(seed)
		set, err := scenario.Set()
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(seed, 1))
		known := drawKnown(random)
		trying, lacks := set.Trying(&known)
		off += len(lacks)
		for i := range scenario.Steps {
			in, err := server.ReadInput([]byte(scenario.Steps[i].Body))
			if err != nil || in.Descriptors != nil {
				continue
			}
			whole, part := askedOf(trying, in), askedOf(trying, onlyKnown(in, &known))
			if whole != part {
				t.Fatalf("seed %d, known %+v:\n%s\nasks %s\nof what is known: %s\n%s", seed, known, scenario.Steps[i].Body, whole, part, scenario.Rules)
			}
			compared++
			if whole != "[] <nil>" {
				asked++
			}
		}
	}
	t.Logf("%d compared, %d of them asked something; %d rules and entries off", compared, asked, off)
	if asked < 1000 || off < 1000 {
		t.Errorf("only %d requests asked something, only %d rules were off", asked, off)
	}
}

func drawKnown(random *rand.Rand) rules.Known {
	likely := func() bool { return random.IntN(4) > 0 }
	header, attrs := likely(), []string{}
	for _, name := range []string{"user", "plan", "size", "vip"} {
		if likely() {
			attrs = append(attrs, name)
		}
	}
	return rules.Known{
		Client: likely(), Method: likely(), Path: likely(), Query: likely(), Host: likely(), Route: likely(), Operation: likely(),
		Header: func(name string) bool { return header && name != "X-Api-Key" }, Attrs: attrs,
	}
}

// onlyKnown is what is known of in, which has a cost of its own.
func onlyKnown(in *rules.Input, k *rules.Known) *rules.Input {
	part := &rules.Input{Cost: in.Cost}
	if k.Client {
		part.Client = in.Client
	}
	if k.Operation {
		part.Operation = in.Operation
	}
	for name, value := range in.Attrs {
		if slices.Contains(k.Attrs, name) {
			if part.Attrs == nil {
				part.Attrs = map[string]any{}
			}
			part.Attrs[name] = value
		}
	}
	if in.Request == nil {
		return part
	}
	from := in.Request
	part.Request = &rules.Request{Header: http.Header{}, Ambiguous: from.Ambiguous}
	for to, copied := range map[*string]struct {
		known bool
		value string
	}{
		&part.Request.Method: {k.Method, from.Method}, &part.Request.Path: {k.Path, from.Path}, &part.Request.Host: {k.Host, from.Host},
		&part.Request.RawQuery: {k.Query, from.RawQuery}, &part.Request.Route: {k.Route, from.Route},
	} {
		if copied.known {
			*to = copied.value
		}
	}
	for name, lines := range from.Header {
		if k.Header(name) {
			part.Request.Header[name] = lines
		}
	}
	return part
}

func askedOf(set *rules.Set, in *rules.Input) string {
	var plan rules.Plan
	err := set.Asks(in, &plan)
	text := []string{}
	for i, a := range plan.Asks {
		text = append(text, fmt.Sprintf("%s %q %d of %v", plan.Rules[i].Name, a.Key, a.Units(), a.Limit))
	}
	if plan.List != rules.Unlisted {
		text = append(text, plan.Entry.String())
	}
	return fmt.Sprint(text, " ", err)
}

// TestTryingNames names what each rule lacks.
func TestTryingNames(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte(`
tiers: {gold: claims.plan == "gold"}
safelist: ['request.headers["x-probe"] == "1"', 'client.ip in cidr("192.0.2.0/24")']
rules:
- {name: address, key: client.ip, limits: [1 per 1m]}
- {name: path, match: request.path.under("/a"), key: client.ip, limits: [1 per 1m]}
- {name: query, key: 'request.query["q"]', limits: [1 per 1m]}
- {name: header, key: 'request.headers["x-key"]', limits: [1 per 1m]}
- {name: attr, key: 'attrs["user"]', match: has(attrs.plan), limits: [1 per 1m]}
- {name: attrs, key: client.ip, match: 'attrs.exists(a, a == "x")', limits: [1 per 1m]}
- {name: tier, key: client.ip, limits: [1 per 1m], tiers: {gold: {limits: [9 per 1m]}}}
- {name: cookie, key: request.cookies.session, limits: [1 per 1m]}
- {name: credential, key: request.credential, limits: [1 per 1m]}
- {name: body, key: client.ip, cost: int(body.n), limits: [1 per 1m]}
- {name: status, key: client.ip, limits: [1 per 1m], penalty: {ban_after: 3, ban_for: 1m, on_status: [401]}}
- {name: off, mode: off, key: claims.sub, limits: [1 per 1m]}
- {name: rest, default: true, key: client.ip, limits: [1 per 1m]}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := func(k rules.Known) map[string][]string {
		trying, lacks := set.Trying(&k)
		by := map[string][]string{}
		for _, l := range lacks {
			name := l.Entry.String()
			if l.Rule != nil {
				name = l.Rule.Name
			}
			by[name] = l.Reads
		}
		for i, r := range trying.Rules {
			if _, lacks := by[r.Name]; lacks != (r.Mode == rules.Off) && r.Name != "off" {
				t.Errorf("%s is %s", r.Name, r.Mode)
			}
			if set.Rules[i].Mode == rules.Off != (r.Name == "off") {
				t.Error("the set itself has changed")
			}
		}
		return by
	}
	log := rules.Known{Client: true, Method: true, Path: true, Status: true, Header: func(name string) bool { return name == "Referer" }, Attrs: []string{"user"}}
	want := map[string][]string{
		`safelist entry 1: request.headers["x-probe"] == "1"`: {`request.headers["x-probe"]`},
		"query":      {"request.query"},
		"header":     {`request.headers["x-key"]`},
		"attr":       {"attrs.plan"},
		"attrs":      {"attrs"},
		"tier":       {"claims"},
		"cookie":     {"request.cookies"},
		"credential": {"request.credential"},
		"body":       {"body"},
		"rest":       {"whether the rule query applies"},
	}
	if by := got(log); !reflect.DeepEqual(by, want) {
		t.Errorf("got  %v\nwant %v", by, want)
	}
	log.Status, log.Client = false, false
	by := got(log)
	for name, reads := range map[string][]string{"address": {"client.ip"}, "status": {"client.ip", "response.status"}, "body": {"body", "client.ip"}} {
		if !reflect.DeepEqual(by[name], reads) {
			t.Errorf("%s: %v", name, by[name])
		}
	}
	log.Header, log.Query, log.Client, log.Status, log.Attrs = func(string) bool { return true }, true, true, true, []string{"user", "plan"}
	if by := got(log); len(by) != 4 || by["attrs"] == nil || by["tier"] == nil || by["body"] == nil || by["rest"] == nil {
		t.Errorf("with all headers: %v", by)
	}
	trying, _ := set.Trying(&log)
	list := func(a string) rules.List {
		var plan rules.Plan
		if err := trying.Asks(&rules.Input{Client: netip.MustParseAddr(a), Cost: 1}, &plan); err != nil {
			t.Fatal(err)
		}
		return plan.List
	}
	if list("192.0.2.1") != rules.Safe || list("198.51.100.1") != rules.Unlisted {
		t.Error("the entries that can be tried are not in force")
	}
}
