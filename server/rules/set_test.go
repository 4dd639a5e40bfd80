package rules_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s, err := rules.Load(write("good.yaml", "rules: [{name: r, key: client.ip, limits: [1 per 1s]}]"))
	if err != nil || len(s.Rules) != 1 {
		t.Errorf("good: %v", err)
	}
	bad := write("bad.yaml", "rulez: []")
	if _, err = rules.Load(bad); err == nil || !strings.HasPrefix(err.Error(), bad+`:1:1: unknown field "rulez": did you mean rules?`) {
		t.Errorf("bad: %v", err)
	}
	big := write("big.yaml", "rules: []\n"+strings.Repeat("# x\n", yamlnode.MaxFile/4))
	if _, err = rules.Load(big); err == nil || err.Error() != fmt.Sprintf("%s:1:1: the file has %d bytes: at most 4194304", big, yamlnode.MaxFile+1) {
		t.Errorf("big: %v", err)
	}
	if _, err = rules.Load(filepath.Join(dir, "gone.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	if _, err = rules.Load(dir); err == nil {
		t.Error("a directory was read")
	}
}

// rich uses all that expressions can do. It must never fail in another way than
// by an error that wraps stint.ErrRequest.
const rich = `
ipv6_prefix: 48
safelist:
  - 'client.ip in cidr("192.0.2.0/24")'
  - 'request.headers["x-safe"] in cidr(attrs.net)'
blocklist:
  - 'request.headers["user-agent"].contains("badbot")'
  - 'timestamp(attrs.when) < timestamp("2000-01-01T00:00:00Z")'
rules:
  - {name: client, key: client.ip, limits: [5 per 1m]}
  - {name: path, key: request.path, limits: [5 per 1m]}
  - {name: parts, key: 'request.path.split("/")', limits: [5 per 1m]}
  - {name: list, key: '[client.ip, request.host, operation, attrs.a, cost]', limits: [5 per 1m]}
  - {name: attr, key: attrs.a, cost: int(attrs.b), limits: [5 per 1m, 7 per 1h]}
  - {name: query, key: request.query.q, match: 'request.query.q.matches("^[a-z]*(x|y)+$")', limits: [5 per 1m]}
  - {name: loop, key: '"k"', match: 'attrs.list.exists(x, x == attrs.a || int(x) > 5)', limits: [5 per 1m]}
  - {name: loops, key: '"k"', match: 'request.headers.all(n, request.query.all(m, n != m))', limits: [5 per 1m]}
  - {name: whole, key: '"k"', match: 'size(request.headers) > size(request.query) || request.headers == attrs', limits: [5 per 1m]}
  - {name: either, key: '"k"', match: 'attrs.a == "x" || int(attrs.b) > 5 && request.method in ["GET", "PUT"]', limits: [5 per 1m]}
  - {name: texts, key: 'request.path.lowerAscii().replace("a", request.host).substring(1)', limits: [5 per 1m]}
  - {name: join, key: 'request.path.split("").join(request.host)', limits: [5 per 1m]}
  - {name: format, key: '"%s-%d".format([attrs.a, cost])', limits: [5 per 1m]}
  - {name: deep, key: attrs.m.n.o, limits: [5 per 1m], penalty: {ban_after: 3, ban_for: 1m}}
  - {name: choice, key: 'has(attrs.m) && has(attrs.m.n) ? attrs.m.n : null', limits: [5 per 1m]}
  - {name: sum, key: client.ip, cost: cost * size(request.path) - 3, limits: [5 per 1m]}
  - {name: dyn, key: '"k"', match: 'attrs.a > attrs.b || attrs.a + attrs.b == attrs.a', limits: [5 per 1m]}
  - {name: member, key: '"k"', match: 'attrs.a in attrs.list || attrs.a in attrs.m || attrs.a in [1, 2.5, "x"]', limits: [5 per 1m]}
  - {name: index, key: 'attrs.list[attrs.b]', limits: [5 per 1m]}
  - {name: bytes, key: 'string(bytes(request.path))', limits: [5 per 1m]}
  - {name: time, key: 'string(timestamp(attrs.when) + duration(attrs.a))', limits: [5 per 1m]}
`

// Many goroutines share one set, each with its own Plan, and get what one alone
// would.
func TestConcurrent(t *testing.T) {
	whole := parse(t, rich)
	var inputs []*rules.Input
	for i := range 40 {
		inputs = append(inputs, &rules.Input{
			Client:    addr(fmt.Sprintf("203.0.113.%d", i)),
			Operation: "op",
			Request:   get(fmt.Sprintf("/P/%d?q=xy&m=%d", i, i), "X-I", fmt.Sprint(i)),
			Cost:      int64(i),
			Attrs: map[string]any{"a": []any{"x", int64(i), nil, true}[i%4], "b": []any{int64(1), "no"}[i%2],
				"list": []any{"x", "y"}, "m": map[string]any{"n": map[string]any{"o": int64(i)}},
				"when": []any{"2020-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "soon"}[i%3]},
		})
	}
	// Each rule of the rich set by itself, so that the failure of one does not
	// keep others from being asked.
	sets := []*rules.Set{whole}
	for _, r := range whole.Rules {
		alone := *whole
		alone.Rules = []*rules.Rule{r}
		sets = append(sets, &alone)
	}
	var want []string
	for _, s := range sets {
		for _, in := range inputs {
			want = append(want, asked(s, in))
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var out rules.Plan
			for i := range want {
				i = (i + g*97) % len(want)
				s, in := sets[i/len(inputs)], inputs[i%len(inputs)]
				if err := s.Asks(in, &out); err != nil && !errors.Is(err, stint.ErrRequest) {
					t.Error(err)
				}
				if got := asked(s, in); got != want[i] {
					t.Errorf("got %s, want %s", got, want[i])
				}
			}
		})
	}
	wg.Wait()
}
