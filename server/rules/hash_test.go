package rules_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

const hashed = `
rules:
  - {name: hashed, key: 'sha256(attrs.user)', limits: [5 per 1m]}
  - {name: peppered, key: 'hmac(secrets.pepper, attrs.user)', limits: [5 per 1m]}
  - {name: indexed, key: '[hmac(secrets["pepper"], attrs.user + "x"), client.ip]', limits: [5 per 1m]}
`

func pepper(t *testing.T, value string) (*rules.Secrets, *rules.Set) {
	t.Helper()
	secrets := rules.NewSecrets("pepper")
	secrets.Set("pepper", []byte(value))
	set, err := parse(t, hashed).On(&rules.Instance{Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	return secrets, set
}

func hmacOf(key, text string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(text))
	return hex.EncodeToString(m.Sum(nil))
}

func TestHashedKeys(t *testing.T) {
	secrets, set := pepper(t, "one")
	in := &rules.Input{Attrs: map[string]any{"user": "ann"}, Cost: 1}
	sum := sha256.Sum256([]byte("ann"))
	for _, value := range []string{"one", "one", "two"} {
		secrets.Set("pepper", []byte(value))
		var m rules.Plan
		if err := set.Asks(in, &m); err != nil {
			t.Fatal(err)
		}
		if len(m.Asks) != 2 { // of no client the third does not apply
			t.Fatalf("%d asks, want 2", len(m.Asks))
		}
		if got, want := m.Asks[0].Key, hex.EncodeToString(sum[:]); got != want {
			t.Errorf("sha256: %s, want %s", got, want)
		}
		if got, want := m.Asks[1].Key, hmacOf(value, "ann"); got != want {
			t.Errorf("hmac: %s, want %s", got, want)
		}
	}
}

// What has no text does not apply, what is no text is malformed.
// What is done by hand about a key that the rule never counts by says so.
func TestHashedKeysByHand(t *testing.T) {
	_, set := pepper(t, "one")
	hash := hmacOf("one", "ann")
	for key, ok := range map[string]bool{hash: true, "ann": false, strings.ToUpper(hash): false, hash + "0": false} {
		_, problems := set.With(&rules.Controls{
			Bans:      []rules.Ban{{Note: rules.Note{ID: "b"}, Rule: "peppered", Key: rules.Key(key)}},
			Overrides: []rules.Override{{Note: rules.Note{ID: "o"}, Rule: "hashed", Key: rules.Key(key), Times: 2}},
		})
		_, err := set.AsCounted(set.Rules[0], rules.Key(key))
		if ok != (problems == nil && err == nil) || !ok && (len(problems) != 2 || !strings.Contains(err.Error(), "the rule counts by a hash")) {
			t.Errorf("%s: %v, %v", key, problems, err)
		}
	}
}

func TestHashOfMissing(t *testing.T) {
	_, set := pepper(t, "one")
	var m rules.Plan
	if err := set.Asks(&rules.Input{Cost: 1}, &m); err != nil || len(m.Asks) != 0 {
		t.Errorf("without an attribute: %v, %v", m.Asks, err)
	}
	if err := set.Asks(&rules.Input{Cost: 1, Attrs: map[string]any{"user": int64(5)}}, &m); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("a number: %v, want ErrRequest", err)
	}
}

// A Set that no instance has taken, and a secret that was not read, refuse: the rule
// must not be passed by.
func TestHMACWithoutSecret(t *testing.T) {
	in := &rules.Input{Attrs: map[string]any{"user": "ann"}, Cost: 1}
	unread, err := parse(t, hashed).On(&rules.Instance{Secrets: rules.NewSecrets("pepper")})
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]*rules.Set{"no instance": parse(t, hashed), "not read": unread} {
		var m rules.Plan
		if err := set.Asks(in, &m); !errors.Is(err, stint.ErrRequest) {
			t.Errorf("%s: %v, want ErrRequest", name, err)
		}
	}
}

func TestUnknownSecrets(t *testing.T) {
	set := parse(t, `
blocklist: ['hmac(secrets.peper, client.ip) == "x"']
rules:
  - {name: a, key: 'hmac(secrets.pepper, client.ip)', limits: [5 per 1m]}
  - {name: b, key: 'hmac(secrets["other"], client.ip)', limits: [5 per 1m]}
`)
	_, err := set.On(&rules.Instance{Secrets: rules.NewSecrets("pepper", "salt")})
	want := `r.yaml:2:19: there is no secret "peper" under server.secrets: did you mean pepper?
r.yaml:5:26: there is no secret "other" under server.secrets`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := set.On(&rules.Instance{}); err == nil {
		t.Error("an instance without secrets took the set")
	}
}

// So is an entry of a list that was added at run time.
func TestUnknownSecretAtRunTime(t *testing.T) {
	_, set := pepper(t, "one")
	for name, want := range map[string]int{"pepper": 0, "salt": 1} {
		_, problems := set.With(&rules.Controls{Blocklist: []rules.Listed{
			{Note: rules.Note{ID: "x"}, Match: `hmac(secrets.` + name + `, client.ip) == "x"`}}})
		if len(problems) != want {
			t.Errorf("%s: %v, want %d problems", name, problems, want)
		}
	}
}

// Nothing but hmac takes a secret.
func TestSecretsStaySecret(t *testing.T) {
	for _, key := range []string{
		`secrets.pepper`, `secrets`, `[secrets.pepper]`, `string(secrets.pepper)`, `dyn(secrets.pepper)`,
		`secrets.pepper == attrs.guess`, `secrets.pepper == secrets.salt ? "a" : "b"`, `sha256(secrets.pepper)`,
		`size(secrets)`, `has(secrets.pepper)`, `"pepper" in secrets`, `secrets.exists(n, n == "pepper")`,
		`hmac(secrets[attrs.name], "x")`, `hmac(true ? secrets.a : secrets.b, "x")`, `hmac(attrs.x, "x")`,
		`hmac("text", "x")`, `hmac(secrets.pepper, secrets.pepper)`, `hmac(secrets.pepper, secrets.salt == attrs.x ? "a" : "b")`,
		`type(secrets.pepper) == string`, `"%s".format([secrets.pepper])`, `{"a": secrets}.a.b == attrs.c`,
	} {
		_, err := rules.Parse("rules.yaml", fmt.Appendf(nil, "rules: [{name: a, key: '%s', limits: [1 per 1s]}]", key))
		if err == nil {
			t.Errorf("%s: taken", key)
		}
	}
	secrets := rules.NewSecrets("pepper")
	secrets.Set("pepper", []byte("hunter2hunter2"))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		if text := fmt.Sprintf(verb, secrets); strings.Contains(text, "hunter2") || text != "secrets pepper" {
			t.Errorf("%s: %s", verb, text)
		}
	}
}

// Hashing is work as looking through the text is: a loop over large texts ends.
func TestHashingIsCounted(t *testing.T) {
	for _, call := range []string{`sha256(request.path)`, `hmac(secrets.pepper, request.path)`} {
		set := parse(t, `rules: [{name: a, match: 'attrs.list.exists(x, `+call+` == x)', key: '"all"', limits: [1 per 1s]}]`)
		secrets := rules.NewSecrets("pepper")
		secrets.Set("pepper", []byte("one"))
		set, err := set.On(&rules.Instance{Secrets: secrets})
		if err != nil {
			t.Fatal(err)
		}
		list := make([]any, 1000)
		for i := range list {
			list[i] = "x"
		}
		var m rules.Plan
		in := &rules.Input{Request: &rules.Request{Path: "/" + strings.Repeat("a", 10_000)}, Attrs: map[string]any{"list": list}}
		if err := set.Asks(in, &m); err == nil || !strings.Contains(err.Error(), "cost limit") {
			t.Errorf("%s: %v, want the bound on work", call, err)
		}
		in.Request.Path = "/"
		if err := set.Asks(in, &m); err != nil {
			t.Errorf("%s: short text: %v", call, err)
		}
	}
}

func TestClaims(t *testing.T) {
	asked := 0
	set, err := parse(t, `
tiers: {gold: claims.plan == "gold"}
rules:
  - {name: user, key: claims.sub, limits: [5 per 1m], tiers: {gold: {times: 2}}}
  - {name: role, match: '"admin" in claims.roles', key: '[claims.sub, claims.n]', limits: [5 per 1m]}
  - {name: rest, match: '!has(claims.sub)', key: client.ip, limits: [5 per 1m]}
`).On(&rules.Instance{Claims: func(r *rules.Request) map[string]any {
		asked++
		if r.Header.Get("Authorization") != "ann" {
			return nil
		}
		return map[string]any{"sub": "ann", "plan": "gold", "n": int64(7), "roles": []any{"admin"}}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !set.UsesClaims() || parse(t, hashed).UsesClaims() {
		t.Error("UsesClaims is wrong")
	}
	request := &rules.Request{Header: http.Header{"Authorization": {"ann"}}}
	for _, c := range []struct {
		name  string
		in    rules.Input
		want  string
		asked int
	}{
		{"found", rules.Input{Request: request}, "ann | ann\x007\x00", 1},
		{"none found", rules.Input{Request: &rules.Request{}, Client: addr("192.0.2.1")}, "192.0.2.1", 1},
		{"no request", rules.Input{Client: addr("192.0.2.1")}, "192.0.2.1", 0},
		{"given", rules.Input{Request: request, Claims: map[string]any{"sub": "bob"}}, "bob", 0},
		{"given as none", rules.Input{Request: request, Claims: map[string]any{}, Client: addr("192.0.2.1")}, "192.0.2.1", 0},
	} {
		asked = 0
		var m rules.Plan
		if err := set.Asks(&c.in, &m); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var keys []string
		for _, a := range m.Asks {
			keys = append(keys, a.Key)
		}
		if got := strings.Join(keys, " | "); got != c.want || asked != c.asked {
			t.Errorf("%s: keys %q, asked %d times; want %q, %d", c.name, got, asked, c.want, c.asked)
		}
	}
}

// What no expression needs is not asked for.
func TestClaimsAreFoundWhereNeeded(t *testing.T) {
	set, err := parse(t, `
rules:
  - {name: ip, key: client.ip, limits: [5 per 1m]}
  - {name: user, match: request.path == "/a", key: claims.sub, limits: [5 per 1m]}
`).On(&rules.Instance{Claims: func(*rules.Request) map[string]any { panic("asked") }})
	if err != nil {
		t.Fatal(err)
	}
	var m rules.Plan
	if err := set.Asks(&rules.Input{Request: &rules.Request{Path: "/b"}, Client: addr("192.0.2.1")}, &m); err != nil || len(m.Asks) != 1 {
		t.Error(m.Asks, err)
	}
}

// A set that has controls keeps its secrets when they are replaced.
func TestOnAfterWith(t *testing.T) {
	secrets, _ := pepper(t, "one")
	off := false
	set, _ := parse(t, hashed).With(&rules.Controls{Enabled: &off})
	set, err := set.On(&rules.Instance{Secrets: secrets})
	if err != nil {
		t.Fatal(err)
	}
	set, _ = set.With(nil)
	var m rules.Plan
	if err := set.Asks(&rules.Input{Attrs: map[string]any{"user": "ann"}}, &m); err != nil || len(m.Asks) != 2 {
		t.Error(m.Asks, err)
	}
}
