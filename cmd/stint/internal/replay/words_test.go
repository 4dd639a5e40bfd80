package replay

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// What a log lacks is said in both languages, unless it is a part of an expression.
func TestLacksAreInBothLanguages(t *testing.T) {
	set, err := rules.Parse("rules", []byte(`
rules:
  - {name: small, key: client.ip, limits: [9 per 1m]}
  - {name: failing, key: client.ip, penalty: {on_status: [401], ban_after: 5, ban_for: 5m}}
  - {name: banning, key: client.ip, limits: [5000 per 1m], penalty: {ban_after: 5, ban_for: 5m}}
  - {name: busy, key: client.ip, limits: [4 in_flight]}
  - {name: user, key: attrs.user, limits: [5000 per 1m]}
  - {name: other, default: true, key: client.ip, limits: [5000 per 1m]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, lacks := set.Trying(&rules.Known{Client: true, Status: true, Share: 0.1})
	said := map[string]string{}
	for _, l := range lacks {
		for _, read := range l.Reads {
			p := sayRead(read)
			if p.String() != read {
				t.Errorf("%q is said as %q", read, p)
			}
			if said[l.Rule.Name] = p.Chinese(); strings.Contains(read, " ") && p.Chinese() == read {
				t.Errorf("%q has no Chinese", read)
			}
		}
	}
	for rule, want := range map[string]string{
		"small": "每一个请求（限额 9 per 1m）", "failing": "每一个响应", "banning": "每一个被拒绝的请求（用于封禁）", "user": "attrs.user", "other": "规则 small 是否适用",
	} {
		if said[rule] != want {
			t.Errorf("%s: %q, want %q", rule, said[rule], want)
		}
	}
}
