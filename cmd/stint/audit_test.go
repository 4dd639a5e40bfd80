package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Through a real Redis, every instance lists what was changed at any of them, also after the one
// that was called has ended; and a preview at one knows the requests that it has decided.
func TestFleetAuditAndPreview(t *testing.T) {
	f := startFleet(t, 2)
	f.do(0, nil, "ban", "add", "--rule", "login", "--key", "192.0.2.66", "--for", "1h", "--reason", "tries passwords")
	f.do(1, nil, "rules", "push", f.file, "--note", "first")
	f.awaitRules(1)
	f.all[0].stop()
	f.all = f.all[1:]
	f.await("the audit has both changes", func(i int) bool {
		_, text := f.at(i)("audit")
		return strings.Contains(text, "tries passwords") && strings.Contains(text, "push rules") && strings.Contains(text, "rule login, key 192.0.2.66") && strings.Contains(text, "version 1")
	})

	const export = `{"operation":"export","attrs":{"user":"ann"},"client":"192.0.2.1"}`
	f.checks(export, 200, 200, 429)
	stricter := filepath.Join(t.TempDir(), "stricter.yaml")
	put(t, stricter, strings.Replace(fleetRules, "limits: [2 per 1h sliding_log]}\n  - {name: upload", "limits: [1 per 1h sliding_log]}\n  - {name: upload", 1))
	f.do(0, []string{"3 requests of all clients", "by export  1    2", "192.0.2.1"}, "rules", "preview", stricter)
	f.do(0, []string{"the fleet, number 1,"}, "rules", "source")
}
