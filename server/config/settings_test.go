package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// read reads the settings of a file.
func read(file string) (config.Settings, error) {
	return config.ReadSettings([]rules.File{{Name: "stint.yaml", Data: []byte(file)}}, nil)
}

// TestSettings reads the files in testdata/settings.txt.
func TestSettings(t *testing.T) {
	golden.Run(t, "testdata/settings.txt", func(_ *testing.T, file string) string {
		s, err := read(file)
		if err != nil {
			return err.Error()
		}
		return describe(&s)
	})
}

// describe tells of each setting that is not the default.
func describe(s *config.Settings) string {
	var b strings.Builder
	d := config.Default()
	for _, f := range []struct {
		name          string
		is, byDefault any
	}{
		{"listen", s.Listen, d.Listen},
		{"check_listen", s.CheckListen, d.CheckListen},
		{"probe_listen", s.ProbeListen, d.ProbeListen},
		{"check open", s.Check.Open, d.Check.Open},
		{"store", s.Store, d.Store},
		{"per_second_store", s.PerSecondStore, ""},
		{"namespace", s.Namespace, d.Namespace},
		{"memory", s.Memory, d.Memory},
		{"max_keys", s.MaxKeys, d.MaxKeys},
		{"decision_timeout", s.DecisionTimeout, d.DecisionTimeout},
		{"upstream_timeout", s.UpstreamTimeout, d.UpstreamTimeout},
		{"response_timeout", s.ResponseTimeout, d.ResponseTimeout},
		{"body_timeout", s.BodyTimeout, d.BodyTimeout},
		{"stop_delay", s.StopDelay, d.StopDelay},
		{"stop_timeout", s.StopTimeout, d.StopTimeout},
		{"headers", s.Dialect, d.Dialect},
		{"client_header", s.ClientHeader, d.ClientHeader},
		{"max_delayed", s.MaxDelayed, d.MaxDelayed},
		{"max_delay", s.MaxDelay, d.MaxDelay},
		{"instance", s.Instance, d.Instance},
		{"max_connections", s.MaxConnections, d.MaxConnections},
		{"upstream_proxy", s.UpstreamProxy, d.UpstreamProxy},
		{"upgrades", strings.Join(s.Upgrades, ","), strings.Join(d.Upgrades, ",")},
		{"ambiguous allow", s.AllowAmbiguous, d.AllowAmbiguous},
		{"recent_requests", s.RecentRequests, d.RecentRequests},
		{"degraded_header", s.DegradedHeader, d.DegradedHeader},
		{"violations_header", s.ViolationsHeader, d.ViolationsHeader},
		{"log", s.Log, d.Log},
		{"privacy hash", s.HashKeys, d.HashKeys},
		{"envoy", shownEnvoy(s.Envoy), ""},
		{"cors", shownCORS(s.CORS), ""},
		{"rules", s.RulesFrom, d.RulesFrom},
		{"admin listen", s.Admin.Listen, d.Admin.Listen},
		{"admin dashboard", s.Admin.Dashboard, d.Admin.Dashboard},
	} {
		if f.is != f.byDefault {
			fmt.Fprintf(&b, "%s %v\n", f.name, f.is)
		}
	}
	for _, r := range s.Routes {
		if r.Name != "" {
			fmt.Fprintf(&b, "%s: ", r.Name)
		}
		fmt.Fprintf(&b, "route %q %s to %s", r.Host, r.Path, r.Upstream)
		if r.TLS != nil {
			fmt.Fprintf(&b, " by %+v", *r.TLS)
		}
		if r.BodyTimeout != nil {
			fmt.Fprintf(&b, ", body_timeout %s", *r.BodyTimeout)
		}
		if r.UpstreamTimeout != nil {
			fmt.Fprintf(&b, ", upstream_timeout %s", *r.UpstreamTimeout)
		}
		if r.ResponseTimeout != nil {
			fmt.Fprintf(&b, ", response_timeout %s", *r.ResponseTimeout)
		}
		b.WriteByte('\n')
	}
	for i, f := range []*config.TLSFiles{s.TLS, s.CheckTLS, s.Admin.TLS} {
		if f != nil {
			fmt.Fprintf(&b, "%s %+v\n", []string{"tls", "check_tls", "admin tls"}[i], *f)
		}
	}
	for _, w := range s.Webhooks {
		tls := w.TLS
		w.TLS = nil
		fmt.Fprintf(&b, "webhook %+v tls %+v\n", w, tls)
	}
	for _, secret := range s.Secrets {
		fmt.Fprintf(&b, "secret %+v\n", secret)
	}
	for _, list := range s.Lists {
		fmt.Fprintf(&b, "list %+v\n", list)
	}
	if s.JWT != nil {
		fmt.Fprintf(&b, "jwt %+v\n", *s.JWT)
	}
	if s.Traces != nil {
		fmt.Fprintf(&b, "traces %+v\n", *s.Traces)
		if s.Traces.TLS != nil {
			fmt.Fprintf(&b, "traces tls %+v\n", *s.Traces.TLS)
		}
	}
	for i, callers := range []*config.Callers{&s.Admin.Callers, &s.Check.Callers} {
		name := []string{"", "check "}[i]
		for _, t := range callers.Tokens {
			fmt.Fprintf(&b, "%stoken %+v\n", name, t)
		}
		for _, c := range callers.Clients {
			fmt.Fprintf(&b, "%sclient %+v\n", name, c)
		}
		if callers.Hosts != nil {
			fmt.Fprintf(&b, "%shosts %q\n", name, callers.Hosts)
		}
	}
	if b.Len() == 0 {
		return "as by default"
	}
	return b.String()
}

// The defaults are those of the design.
func TestDefaultSettings(t *testing.T) {
	const want = "{Listen::8080 CheckListen:127.0.0.1:8082 ProbeListen:off Store:memory Namespace: Memory:0 MaxKeys:-1 DecisionTimeout:25ms Breaker:{Failures:5 Percent:50 Slow:0s Wait:100ms MaxWait:5s Probes:3 Changed:<nil>} Instances:0 PerSecondStore: RememberedDenials:-1 Offenders:1000 RecentRequests:4194304 UpstreamTimeout:1m0s ResponseTimeout:0s BodyTimeout:30s StopDelay:0s StopTimeout:25s " +
		"Dialect:x-ratelimit ClientHeader: Routes:[] UpstreamProxy: Upgrades:[websocket] AllowAmbiguous: MaxDelayed:1000 MaxDelay:10s Instance:none, by memory in flight, bytes by memory MaxConnections:-1 DegradedHeader:false ViolationsHeader:false CORS:<nil> HashKeys:false Log:{JSON:false Level:INFO Refusals:5 Access:false} Traces:<nil> StateDir: ReadyWithoutControls:true " +
		"RulesFrom:file Secrets:[] Lists:[] JWT:<nil> TLS:<nil> CheckTLS:<nil> Check:{Callers:{Tokens:[] Clients:[] Hosts:[]} Open:false} " +
		"Admin:{Listen:127.0.0.1:8090 TLS:<nil> Callers:{Tokens:[] Clients:[] Hosts:[]} Dashboard:true} Envoy:<nil> Webhooks:[] origins:[]}"
	if got := fmt.Sprintf("%+v", config.Default()); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// A file has room for settings and rules, and each reader leaves the other's part
// alone.
func TestSettingsBesideRules(t *testing.T) {
	const file = "server: {listen: 'localhost:1'}\nenabled: true\nrules: [{name: a, key: client.ip, limits: [1 per 1s]}]\n"
	s, err := read(file)
	if err != nil || s.Listen != "localhost:1" {
		t.Errorf("%+v, %v", s, err)
	}
	if set, err := rules.Parse("stint.yaml", []byte(file)); err != nil || len(set.Rules) != 1 {
		t.Errorf("%+v, %v", set, err)
	}
}

func shownEnvoy(e *config.Envoy) string {
	if e == nil {
		return ""
	}
	shown := *e
	shown.TLS, shown.XDS, shown.SharedCounters = nil, nil, nil
	text := fmt.Sprintf("%+v tls %+v", shown, e.TLS)
	if x := e.XDS; x != nil {
		files := x.TLS
		x.TLS = nil
		text += fmt.Sprintf(" xds %+v tls %+v", *x, files)
	}
	if e.SharedCounters != nil {
		text += fmt.Sprintf(" counters %+v", *e.SharedCounters)
	}
	return text
}

func shownCORS(c *config.CORS) string {
	switch {
	case c == nil:
		return ""
	case c.Upstream:
		return "as upstreams"
	}
	return fmt.Sprintf("%+v", c.Policy)
}

// An instance has at most a hundred lists.
func TestMostLists(t *testing.T) {
	for n, want := range map[int]string{100: "", 101: "stint.yaml:1:17: 101 lists: at most 100"} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "l%d: {file: /x},", i)
		}
		s, err := read("server: {lists: {" + b.String() + "}}")
		if want == "" && (err != nil || len(s.Lists) != n) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d lists: %d, %v", n, len(s.Lists), err)
		}
	}
}
