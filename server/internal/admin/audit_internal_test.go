package admin

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// Keys are in the audit as they are shown elsewhere, however deep; all else stays.
func TestAuditedKeys(t *testing.T) {
	pair, err := rules.JoinKey("ann", "/v1")
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]any{"bans": []rules.Ban{{Rule: "login", Key: "192.0.2.1"}, {Rule: "api", Key: pair}, {Network: "192.0.2.0/24"}}, "n": int64(1<<62 + 1)}
	asIs := &Audit{Shown: func(key string) string { return key }}
	hashed := &Audit{Shown: func(key string) string { return "h:" + strings.Repeat("0", len(key)) }}
	for _, text := range []string{`"192.0.2.1"`, `["ann","/v1"]`, `"192.0.2.0/24"`, "4611686018427387905"} {
		if got := asIs.compact(state); !strings.Contains(got, text) {
			t.Errorf("%s lacks %s", got, text)
		}
		public := strings.HasSuffix(text, `/24"`) || text[0] == '4'
		if got := hashed.compact(state); strings.Contains(got, text) != public || strings.Count(got, `"h:0000`) != 2 {
			t.Errorf("%s of %s: want %v", got, text, public)
		}
	}
	if got := asIs.compact([]rules.Ban(nil)); got != "" {
		t.Errorf("no bans: %q", got)
	}
}
