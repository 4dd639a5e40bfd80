package config_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

var problemLine = regexp.MustCompile(`^stint\.yaml:(\d+:\d+: \S|.*and \d+ more$)`)

// Any file gives settings that a Server can run with or is refused, with places.
func FuzzSettings(f *testing.F) {
	for _, part := range golden.Read(f, "testdata/settings.txt") {
		f.Add([]byte(part.Given))
	}
	f.Add([]byte("!%0a"))
	none, err := rules.Parse("rules.yaml", []byte("rules: []"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := read(string(file))
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if !problemLine.MatchString(line) {
					t.Errorf("no place in %q", line)
				}
			}
			return
		}
		if s.MaxKeys < 1 && s.MaxKeys != config.ByMemory || s.MaxDelayed < 1 || s.MaxDelay <= 0 || s.DecisionTimeout <= 0 || s.UpstreamTimeout <= 0 || s.ResponseTimeout < 0 || s.Listen == "" || s.CheckListen == "" {
			t.Errorf("settings %+v", s)
		}
		for _, r := range s.Routes {
			if !strings.HasPrefix(r.Path, "/") || r.Upstream.Host == "" || !slices.Contains([]string{"http", "https", "h2c"}, r.Upstream.Scheme) {
				t.Errorf("route %+v", r)
			}
		}
		server.New(server.Config{Settings: s, Rules: none}).Gateway()
	})
}
