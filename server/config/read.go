package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// Read reads a whole configuration from files: the section "server", which at most one file
// may have, and the rules. It returns an error if a rule needs a secret that the settings
// do not have. checkStore checks the address of a store other than "memory"; nil accepts
// any. The error has a line for each problem: file:line:column: what.
func Read(files []rules.File, checkStore func(address string) error) (Settings, *rules.Set, error) {
	return (&Source{Files: files, CheckStore: checkStore}).Read()
}

// ReadSettings reads the section "server" alone, with defaults for what it leaves out. It does not refuse a
// second section in another file; rules.ParseFiles does. Files of Envoy's form have no settings. Its errors
// are like those of Read.
func ReadSettings(files []rules.File, checkStore func(address string) error) (Settings, error) {
	return (&Source{Files: files, CheckStore: checkStore}).ReadSettings()
}

func (s *Settings) read(r *yamlnode.Reader, n *yamlnode.Node, checkStore func(address string) error) {
	before := r.Problems()
	var readCheck func(*yamlnode.Node)
	fields := r.Mapping(n, s.rows(r, &readCheck).Fields())
	readCheck(fields["check"])
	if err := s.CheckGuarded(); err != nil && r.Problems() == before {
		r.Report(fields["check_listen"], "%v", err)
	}
	s.checkStores(r, fields)
	for name, address := range map[string]string{"store": s.Store, "per_second_store": s.PerSecondStore} {
		n := fields[name]
		if n == nil || address == "memory" || address == "" && name != "store" || checkStore == nil {
			continue
		}
		if err := checkStore(address); err != nil {
			if r.From(n) == "" {
				err = fmt.Errorf("%s: %w", name, err)
			}
			r.Report(n, "%v", err)
		}
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
		return "", fmt.Errorf("state_dir %.60q: want an absolute path, such as /var/lib/stint: a relative one depends on where the program is started", text)
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

// parseHeader refuses names that a header cannot have: with a header that is never found, all clients of a
// proxy would count as one.
func parseHeader(text string) (string, error) {
	const letters = "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if text == "" || strings.Trim(text, letters) != "" {
		return "", fmt.Errorf("header %.60q: want a name such as X-Real-Ip", text)
	}
	return text, nil
}

// dialect is the list of headers. An empty list stands for the default dialect, too.
func (s *Settings) dialect(r *yamlnode.Reader) schema.Value {
	names := schema.Words(strings.Split((^httplimit.Dialect(0)).String(), ",")...)
	return schema.Custom(schema.Shape{Kind: schema.KindList, Item: &names}, func(n *yamlnode.Node) { s.readDialect(r, n) }).ByDefault(func() {}, func() string {
		return "[" + strings.ReplaceAll(s.Dialect.String(), ",", ", ") + "]"
	})
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

// readBreaker is the section breaker of the settings.
func readBreaker(r *yamlnode.Reader, to *fleet.Breaker) schema.Value {
	return schema.Section(r, schema.Rows{
		{Name: "failures", Value: schema.Number(r, &to.Failures, 1, 1_000_000), Default: "5",
			Says: "Failed calls in a row before the store is probed. If the probe fails too, the breaker opens."},
		{Name: "percent", Value: schema.Number(r, &to.Percent, 1, 100), Default: "50",
			Says: "Also probes if this share of at least 20 calls in a second failed, and breaker.failures of them began one after another."},
		{Name: "slow", Value: schema.Duration(r, "slow", &to.Slow, schema.AboveZero, schema.Endless), Example: "20ms",
			Says: "An answer that takes at least this long counts as a failure."},
		{Name: "wait", Value: schema.Duration(r, "wait", &to.Wait, schema.AboveZero, schema.Endless), Default: "100ms",
			Says: "Wait before the first probe of an open breaker; doubles with each failed probe."},
		{Name: "max_wait", Value: schema.Duration(r, "max_wait", &to.MaxWait, schema.AboveZero, schema.Endless), Default: "5s",
			Says: "The longest wait between probes."},
		{Name: "probes", Value: schema.Number(r, &to.Probes, 1, 1000), Default: "3",
			Says: "Probes in a row that must be answered in time to close the breaker."},
	}, nil)
}

// ambiguousShape is refuse, allow, or a mapping with a list of what to allow.
func ambiguousShape() schema.Shape {
	some := schema.Words(strings.Split(rules.Ambiguity(rules.AnyAmbiguity).String(), ",")...)
	return schema.Words("refuse", "allow").OrElse(schema.Shape{Kind: schema.KindMapping, Rows: func() schema.Rows {
		return schema.Rows{{Name: "allow", Value: schema.Custom(schema.Shape{Kind: schema.KindList, Item: &some}, nil), Example: "[encoded_slash]",
			Says: "What may be ambiguous."}}
	}})
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
