package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// Read reads a whole configuration from files: the section "server", which at most one file
// may have, and the rules. It returns an error if a rule needs a secret that the settings
// do not have. checkStore checks the address of a store other than "memory"; nil accepts
// any. The error has a line for each problem: file:line:column: what.
func Read(files []rules.File, checkStore func(address string) error) (Settings, *rules.Set, error) {
	settings, wrong := ReadSettings(files, checkStore)
	set, err := rules.ParseFiles(files)
	if err == nil && set.HasServer { // rules without settings are for servers whose secrets are not known here
		_, err = set.On(&rules.Instance{Secrets: settings.KnownSecrets()})
	}
	if err = yamlnode.Merge(wrong, err); err != nil {
		return settings, nil, err
	}
	return settings, set, nil
}

// ReadSettings reads the section "server" alone, with the values of Default for what it
// leaves out. It does not refuse a second section in another file: rules.ParseFiles does. Files of
// Envoy's form have no settings. Its errors are like those of Read.
func ReadSettings(files []rules.File, checkStore func(address string) error) (Settings, error) {
	s := Default()
	for _, f := range files {
		if f.Envoy {
			continue
		}
		r, root := yamlnode.Open(f.Name, f.Data)
		r.Mapping(root, yamlnode.Fields{"": r.Skip, "server": func(n *yamlnode.Node) { s.read(r, n, checkStore) }})
		if err := r.Err(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *Settings) read(r *yamlnode.Reader, n *yamlnode.Node, checkStore func(address string) error) {
	before := r.Problems()
	fields := r.Mapping(n, yamlnode.Fields{
		"listen":                 yamlnode.Parsed(r, &s.Listen, parseListen),
		"check_listen":           yamlnode.Parsed(r, &s.CheckListen, parseListenOrOff),
		"probe_listen":           yamlnode.Parsed(r, &s.ProbeListen, parseListenOrOff),
		"store":                  r.Text(&s.Store),
		"namespace":              yamlnode.Parsed(r, &s.Namespace, ParseNamespace),
		"memory":                 yamlnode.Parsed(r, &s.Memory, parseByteSize),
		"max_keys":               r.Int64(&s.MaxKeys, 1, 1<<31),
		"decision_timeout":       r.Period(&s.DecisionTimeout),
		"breaker":                readBreaker(r, &s.Breaker),
		"instances":              r.Int64(&s.Instances, 1, 100_000),
		"remembered_denials":     r.Int64(&s.RememberedDenials, 0, 1<<24),
		"offenders":              r.Int64(&s.Offenders, 0, 10_000),
		"recent_requests":        yamlnode.Parsed(r, &s.RecentRequests, parseRecent),
		"upstream_timeout":       r.Period(&s.UpstreamTimeout),
		"response_timeout":       r.Period(&s.ResponseTimeout),
		"stop_delay":             r.Period(&s.StopDelay),
		"stop_timeout":           r.Period(&s.StopTimeout),
		"cors":                   readCORS(r, &s.CORS),
		"client_header":          yamlnode.Parsed(r, &s.ClientHeader, parseHeader),
		"max_delayed":            r.Int64(&s.MaxDelayed, 1, 1<<20),
		"max_delay":              r.Period(&s.MaxDelay),
		"instance":               func(n *yamlnode.Node) { s.Instance.read(r, n) },
		"max_connections":        r.Int64(&s.MaxConnections, 1, 1<<31),
		"degraded_header":        r.Bool(&s.DegradedHeader),
		"violations_header":      r.Bool(&s.ViolationsHeader),
		"log":                    func(n *yamlnode.Node) { s.Log.read(r, n) },
		"privacy":                yamlnode.Parsed(r, &s.HashKeys, parsePrivacy),
		"traces":                 readTraces(r, &s.Traces),
		"rules":                  yamlnode.Parsed(r, &s.RulesFrom, ParseRulesFrom),
		"secrets":                readSecrets(r, &s.Secrets),
		"jwt":                    readJWT(r, &s.JWT),
		"envoy":                  readEnvoy(r, &s.Envoy),
		"tls":                    readTLS(r, &s.TLS),
		"check_tls":              readTLS(r, &s.CheckTLS),
		"check":                  r.Skip,
		"webhooks":               readWebhooks(r, &s.Webhooks),
		"admin":                  func(n *yamlnode.Node) { s.Admin.read(r, n) },
		"headers":                func(n *yamlnode.Node) { s.readDialect(r, n) },
		"upstream_proxy":         yamlnode.Parsed(r, &s.UpstreamProxy, parseProxy),
		"upgrades":               yamlnode.List(r, &s.Upgrades, parseUpgrade),
		"ambiguous":              readAmbiguous(r, &s.AllowAmbiguous),
		"state_dir":              yamlnode.Parsed(r, &s.StateDir, parseStateDir),
		"ready_without_controls": r.Bool(&s.ReadyWithoutControls),
		"body_timeout":           r.Period(&s.BodyTimeout),
		"routes": func(n *yamlnode.Node) {
			r.Each(n, func(n *yamlnode.Node) { s.readRoute(r, n) })
		},
	})
	s.readCheck(r, fields["check"])
	if err := s.CheckGuarded(); err != nil && r.Problems() == before {
		r.Report(fields["check_listen"], "%v", err)
	}
	if n := fields["store"]; n != nil && s.Store != "memory" && checkStore != nil {
		if err := checkStore(s.Store); err != nil {
			r.Report(n, "store: %v", err)
		}
	}
	for name, d := range map[string]time.Duration{"body_timeout": s.BodyTimeout, "stop_delay": s.StopDelay, "stop_timeout": s.StopTimeout} {
		if d < 0 || d > time.Hour {
			r.Report(fields[name], "%s must be from 0 to 1h", name)
		}
	}
	for name, d := range map[string]time.Duration{"decision_timeout": s.DecisionTimeout, "upstream_timeout": s.UpstreamTimeout, "max_delay": s.MaxDelay} {
		if d <= 0 {
			r.Report(fields[name], "%s must be more than 0", name)
		}
	}
	if s.ResponseTimeout < 0 {
		r.Report(fields["response_timeout"], negativeResponseTimeout)
	}
}

// parseRecent reads a size of at most 1 GiB, or off.
func parseRecent(text string) (int64, error) {
	if text == Off {
		return 0, nil
	}
	n, err := parseByteSize(text)
	if err == nil && n > 1<<30 {
		err = fmt.Errorf("%.40q: at most 1GiB", text)
	}
	return n, err
}

func parseListen(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("address %.60q: want host:port, or :port for every interface", text)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return "", fmt.Errorf("address %.60q: the port must be 0 to 65535, or the name of a service", text)
	}
	return text, nil
}

func parseStateDir(text string) (string, error) {
	if text == "" || strings.ContainsRune(text, 0) {
		return "", errors.New("state_dir: want a directory such as /var/lib/stint")
	}
	if !filepath.IsAbs(text) {
		return "", fmt.Errorf("state_dir %.60q: want an absolute path, such as /var/lib/stint: a relative one depends on the directory in which the program is started", text)
	}
	return text, nil
}

// parsePrivacy reports whether keys are hashed.
func parsePrivacy(text string) (bool, error) {
	switch text {
	case "show":
		return false, nil
	case "hash":
		return true, nil
	}
	return false, fmt.Errorf("privacy %.60q: want show or hash", text)
}

// ParseNamespace checks the name of a namespace by the same rule as redislimit.
func ParseNamespace(text string) (string, error) {
	const letters = "_.:-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if text == "" || len(text) > 64 || strings.Trim(text, letters) != "" {
		return "", fmt.Errorf("namespace %.70q: must be 1 to 64 of A–Z a–z 0–9 _ . : -", text)
	}
	return text, nil
}

// parseHeader refuses names that no header has: with one that is never found, all clients of a
// proxy would count as one.
func parseHeader(text string) (string, error) {
	const letters = "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if text == "" || strings.Trim(text, letters) != "" {
		return "", fmt.Errorf("header %.60q: want a name such as X-Real-Ip", text)
	}
	return text, nil
}

func (s *Settings) readDialect(r *yamlnode.Reader, n *yamlnode.Node) {
	var names []string
	before := r.Problems()
	r.Each(n, func(n *yamlnode.Node) {
		yamlnode.Parsed(r, new(httplimit.Dialect), func(name string) (httplimit.Dialect, error) {
			names = append(names, name)
			return httplimit.ParseDialect(name)
		})(n)
	})
	if r.Problems() > before {
		return
	}
	var err error
	if s.Dialect, err = httplimit.ParseDialect(names...); err != nil {
		r.Report(n, "%v", err)
	}
}

// readBreaker reads the section breaker of the settings.
func readBreaker(r *yamlnode.Reader, to *fleet.Breaker) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		failures, percent, probes := int64(0), int64(0), int64(0)
		fields := r.Mapping(n, yamlnode.Fields{
			"failures": r.Int64(&failures, 1, 1_000_000),
			"percent":  r.Int64(&percent, 1, 100),
			"slow":     r.Period(&to.Slow),
			"wait":     r.Period(&to.Wait),
			"max_wait": r.Period(&to.MaxWait),
			"probes":   r.Int64(&probes, 1, 1000),
		})
		to.Failures, to.Percent, to.Probes = int(failures), int(percent), int(probes)
		for name, d := range map[string]time.Duration{"slow": to.Slow, "wait": to.Wait, "max_wait": to.MaxWait} {
			if fields[name] != nil && d <= 0 {
				r.Report(fields[name], "%s must be more than 0", name)
			}
		}
	}
}

// readAmbiguous makes a reader of "ambiguous": refuse, allow, or allow with a list of
// what to allow.
func readAmbiguous(r *yamlnode.Reader, allowed *rules.Ambiguity) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if len(n.Content) == 0 {
			yamlnode.Parsed(r, allowed, parseAmbiguous)(n)
			return
		}
		var some rules.Ambiguity
		r.Mapping(n, yamlnode.Fields{"allow": func(n *yamlnode.Node) {
			r.Each(n, func(n *yamlnode.Node) {
				var one rules.Ambiguity
				yamlnode.Parsed(r, &one, func(name string) (rules.Ambiguity, error) {
					a, err := rules.ParseAmbiguity(name)
					if err != nil {
						return 0, fmt.Errorf("allow: %w", err)
					}
					return a, nil
				})(n)
				some |= one
			})
		}})
		*allowed = some
	}
}

func parseAmbiguous(text string) (rules.Ambiguity, error) {
	switch text {
	case "refuse":
		return 0, nil
	case "allow":
		return rules.AnyAmbiguity, nil
	}
	return 0, fmt.Errorf("ambiguous %.60q: want refuse, allow, or {allow: [encoded_slash]} with what to allow", text)
}
