package rules

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// The bounds of a file.
const (
	// maxRules bounds the rules of a file; stint.MaxAsks bounds those that one request may face.
	maxRules  = 10_000
	maxLimits = 64
	maxListed = 1_000
	maxNAT64  = 16
)

const defaultIPv6Prefix = 64

// ParseFiles makes one Set of several files, in this order: their lists are joined, names of
// rules are unique over all of them, and each of enabled, ipv6_prefix, nat64_prefixes,
// credential_headers, refusal, errors and server may be in one of them only. Errors are those of Parse,
// file after file.
func ParseFiles(files []File) (*Set, error) { return ParseContext(context.Background(), files) }

// ParseContext is ParseFiles, but stops when ctx ends. The error wraps the cause then.
func ParseContext(ctx context.Context, files []File) (*Set, error) { return Open(files).Parse(ctx, 1) }

// Opened are files whose YAML has been read, for those who look for more in it than rules.
type Opened struct {
	files   []File
	readers []*yamlnode.Reader // nil: of Envoy's form
	roots   []*yamlnode.Node
}

// Open reads the YAML of files, but of those of Envoy's form. What is wrong with it is known to the readers.
func Open(files []File) *Opened {
	o := &Opened{files, make([]*yamlnode.Reader, len(files)), make([]*yamlnode.Node, len(files))}
	for i, f := range files {
		if !f.Envoy {
			o.readers[i], o.roots[i] = yamlnode.Open(f.Name, f.Data)
		}
	}
	return o
}

// And returns o with more files after its own.
func (o *Opened) And(files []File) *Opened {
	more := Open(files)
	return &Opened{slices.Concat(o.files, more.files), slices.Concat(o.readers, more.readers), slices.Concat(o.roots, more.roots)}
}

// Each calls visit with each file but those of Envoy's form, and a reader of its own, until visit returns an
// error. The nodes must not be changed.
func (o *Opened) Each(visit func(*yamlnode.Reader, *yamlnode.Node) error) error {
	for i, r := range o.readers {
		if r == nil {
			continue
		}
		if err := visit(r.Clone(), o.roots[i]); err != nil {
			return err
		}
	}
	return nil
}

// Parse is ParseContext of the files, with so many workers to compile expressions; the result does not depend on
// them. 0 or 1: it takes one processor, and yields it to requests.
//
// Parse is called once, and last: it drops the nodes of each rule when it has read it, which take as much memory
// as the rules.
func (o *Opened) Parse(ctx context.Context, workers int) (*Set, error) {
	files, roots := o.files, o.roots
	s := &Set{Enabled: true, IPv6Prefix: defaultIPv6Prefix, headerNames: map[string]string{}}
	if len(files) == 0 {
		return nil, errors.New("rules: no files to read rules from")
	}
	seen := &seen{names: map[string]place{}, alerts: map[string]place{}, once: map[string]place{}, counted: map[counting]counted{}}
	compiler := expr.NewCompiler(ctx)
	parsers, digests := make([]*parser, len(files)), make([][]byte, len(files))
	for i, f := range files {
		if !f.Envoy {
			digests[i] = digest(roots[i])
			parsers[i] = &parser{Reader: o.readers[i], compiler: compiler, set: s, path: f.Name, seen: seen}
			parsers[i].nat64(roots[i])
		}
	}
	compiler.NAT64 = s.NAT64 // any file may have them
	if workers > 1 {
		defer compiler.Work(workers)()
	}
	for i, f := range files {
		if !f.Envoy {
			parsers[i].file(roots[i])
		}
	}
	trees := &envoyFiles{set: s}
	for i, f := range files {
		if !f.Envoy {
			continue
		}
		r, root := yamlnode.OpenExpanded(f.Name, f.Data, MaxEnvoyFile, "error loading config file: ")
		digests[i] = digest(root)
		parsers[i] = &parser{Reader: r, compiler: compiler, set: s, path: f.Name, seen: seen}
		trees.load(parsers[i], root, f.MergeDomain)
	}
	s.trees = trees.done()
	for _, p := range parsers { // any file may have the tiers, or the rules of alerts
		p.linkTiers()
		p.linkAlerts()
	}
	if err := compiler.Err(); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	if err := problems(parsers); err != nil {
		return nil, err
	}
	if s.credentialHeaders == nil {
		s.credentialHeaders = httpfield.CredentialHeaders
	}
	s.linkRefusals()
	s.places = placesOf(s.Rules)
	s.Version = version(digests)
	_, s.HasServer = seen.once["server"]
	s.findTrustAll(seen.proxies)
	s.noteUses()
	runtime.Gosched()
	shareKeys(s.written())
	s.indexRules()
	s.safelist.index()
	s.blocklist.index()
	s.findNoToken(seen.byClaims)
	s.findUnusedDefaults(seen.defaults)
	runtime.Gosched()
	s.findLooseKeys(seen.rules)
	s.findOmitted(seen.rules)
	s.findUnindexed(seen.rules)
	return s, nil
}

func problems(parsers []*parser) error {
	var errs []error
	reported, silent := 0, 0
	for _, p := range parsers {
		switch err := p.Err(); {
		case err == nil:
		case reported >= mostReported:
			silent++
		default:
			reported += p.Problems()
			errs = append(errs, err)
		}
	}
	if silent > 0 {
		errs = append(errs, fmt.Errorf("rules: and %s with problems", spelling.Several(silent, "more file")))
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// mostReported is the number of problems after which those of further files are only counted.
const mostReported = 20

// parser adds a file to a Set. It reports a problem and goes on, to find all of them.
type parser struct {
	*yamlnode.Reader
	compiler *expr.Compiler
	set      *Set
	path     string // of the file
	seen     *seen
	// tierUses are where rules name tiers.
	tierUses []tierUse
	// alertUses are where alerts name rules.
	alertUses []alertUse
}

func (p *parser) file(root *yamlnode.Node) {
	if at := descriptorsIn(root); at != nil {
		p.Report(at, "this is a file of descriptors for Envoy, not of rules: give its directory as --envoy, or in the section server as envoy: {directory: …}")
		return
	}
	prefix := int64(p.set.IPv6Prefix)
	p.Mapping(root, yamlnode.Fields{
		"enabled":            p.once("enabled", p.Bool(&p.set.Enabled)),
		"trusted_proxies":    p.proxies,
		"ipv6_prefix":        p.once("ipv6_prefix", p.Int64(&prefix, 1, 128)),
		"nat64_prefixes":     p.Skip, // nat64 has read them
		"safelist":           p.safelist,
		"blocklist":          p.conditions(&p.set.blocklist.conditions),
		"tiers":              p.tiers,
		"repeatable":         p.repeatable,
		"credential_headers": p.once("credential_headers", p.credentialHeaders),
		"refusal":            p.once("refusal", p.refusal(&p.set.Refusal)),
		"errors":             p.once("errors", p.errors(&p.set.Errors)),
		"rules":              p.rules,
		"alerts":             p.alerts,
		"server":             p.once("server", p.Skip),
	})
	p.set.IPv6Prefix = int(prefix)
}

// descriptorsIn finds the descriptors of a file of Envoy's form that was given as a rules file; nil: it has
// rules, or neither.
func descriptorsIn(root *yamlnode.Node) (at *yamlnode.Node) {
	if root == nil || root.Tag != "!!map" {
		return nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch name := root.Content[i]; name.Value {
		case "descriptors":
			at = name
		case "rules":
			return nil
		}
	}
	return at
}

// few reports whether a list, together with the already known items, is short enough.
func (p *parser) few(n *yamlnode.Node, already, most int, what string) bool {
	if total := already + len(n.Content); total > most {
		p.Report(n, "%d %s: at most %d", total, what, most)
		return false
	}
	return true
}

func (p *parser) proxies(n *yamlnode.Node) {
	if !p.few(n, len(p.set.TrustedProxies), maxListed, "networks") {
		return
	}
	p.Each(n, func(n *yamlnode.Node) {
		var network netip.Prefix
		yamlnode.Parsed(p.Reader, &network, func(text string) (netip.Prefix, error) { return expr.ParseNetwork(text, p.set.NAT64) })(n)
		if why := p.set.nat64().Hollow(network); why != "" {
			p.found(codeNeverMatches, p.Place(n), "%s", why)
		}
		p.set.TrustedProxies = append(p.set.TrustedProxies, network)
		p.seen.proxies = append(p.seen.proxies, p.Place(n))
	})
}

func (p *parser) conditions(to *[]*expr.Expression) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if !p.few(n, len(*to), maxListed, "expressions") {
			return
		}
		p.Each(n, func(n *yamlnode.Node) {
			*to = append(*to, p.condition(n))
		})
	}
}

func (p *parser) safelist(n *yamlnode.Node) {
	all := &p.set.safelist.conditions
	before := len(*all)
	p.conditions(all)(n)
	for i, e := range (*all)[before:] {
		if e == nil {
			continue
		}
		if always, _ := e.FixedBool(); always {
			p.found(codeNeverMatches, p.Place(n.Content[i]), "this is always true, so no rule ever applies: to switch limits off, use enabled: false")
		}
	}
}

func (p *parser) rules(n *yamlnode.Node) {
	if !p.few(n, len(p.set.Rules), maxRules, "rules") {
		return
	}
	begun, i := 0, 0
	p.Each(n, func(rule *yamlnode.Node) {
		for i++; begun < min(i+ahead, len(n.Content)); begun++ {
			p.begin(n.Content[begun])
		}
		p.rule(rule)
		rule.Content = nil // what is still needed of it has its own node
		runtime.Gosched()  // it is some 50 µs of work
	})
}

// ahead is of how many rules the expressions are begun before they are read. It is few, because the nodes of a
// rule are dropped when it is read: all compiled rules and all nodes take twice the memory.
const ahead = 64

// begin begins to compile what a rule has for itself, if there are workers.
func (p *parser) begin(rule *yamlnode.Node) {
	if rule.Tag != "!!map" {
		return
	}
	for i := 0; i+1 < len(rule.Content); i += 2 {
		switch value := rule.Content[i+1]; rule.Content[i].Value {
		case "match":
			p.compiler.Begin(value.Value, expr.Condition)
		case "key":
			p.compiler.Begin(value.Value, expr.Key)
		}
	}
}

// takeTurns lets requests have a turn at some i. All that is done for each rule of a file calls it: 10,000 of
// them keep a processor busy for a second, and requests should not wait for the 10 ms after which Go takes turns
// by itself.
func takeTurns(i int) {
	if i%64 == 63 {
		runtime.Gosched()
	}
}

func (p *parser) expression(n *yamlnode.Node, want *expr.Type) *expr.Expression {
	if len(n.Content) > 0 {
		hint := "quote one that begins with a bracket, as in '[client.ip, request.path]'"
		if n.Tag == "!!map" {
			hint = `this is a mapping to YAML: quote one that begins with a brace or holds ": ", as in 'has(attrs.plan) ? attrs.plan == "free" : true'`
		}
		p.Report(n, "want an expression: %s", hint)
		return nil
	}
	source, ok := p.Scalar(n, "an expression")
	if !ok || p.compiler.Err() != nil {
		return nil
	}
	if want == expr.Condition {
		if network, err := p.set.nat64().ParseNetwork(source); err == nil {
			p.Report(n, "want an expression, have a network or an address: write client.ip in cidr(%q)", network)
			return nil
		}
	}
	e, problems := p.compiler.Compile(source, want)
	for _, found := range problems {
		p.ReportWithin(n, found.Offset, "%s", found.Text)
	}
	if e == nil {
		return nil
	}
	for _, use := range e.Outside {
		line, column := p.Position(n, use.Offset)
		p.set.outside = append(p.set.outside, outsideAt{use, p.File(), line, column})
	}
	return e
}

// condition also finds conditions that are surely not meant.
func (p *parser) condition(n *yamlnode.Node) *expr.Expression {
	e := p.expression(n, expr.Condition)
	if e == nil {
		return nil
	}
	if value, ok := e.FixedBool(); ok && !value {
		p.found(codeNeverMatches, p.PlaceWithin(n, 0), "this is always false, so it never applies")
	}
	for _, hint := range e.Hints {
		p.found(codeNeverMatches, p.PlaceWithin(n, hint.Offset), "%s", hint.Text)
	}
	for _, hint := range e.Patterns {
		p.found(codePattern, p.PlaceWithin(n, hint.Offset), "%s", hint.Text)
	}
	return e
}

// noteHeaders records the canonical names of the headers that e reads.
func (s *Set) noteHeaders(e *expr.Expression) {
	for _, name := range e.Headers {
		s.headerNames[name] = http.CanonicalHeaderKey(name)
	}
	if e.Uses("request.cookies") {
		s.headerNames["cookie"] = "Cookie"
	}
	if e.Uses("request.credential") {
		for _, name := range s.credentialHeaders {
			s.headerNames[strings.ToLower(name)] = name
		}
	}
}

type seen struct {
	names  map[string]place // of rules
	alerts map[string]place
	// measures is the number of measures in the alerts.
	measures int
	once     map[string]place // fields that only one file may have
	counted  map[counting]counted
	proxies  []string // the place of each of TrustedProxies
	rules    []ruleAt
	// byClaims are the enforced rules whose keys need claims.
	byClaims []byClaims
	// defaults are the rules that apply when no other does.
	defaults []defaultAt
}

type place struct {
	file string
	line int
}

func (at place) from(file string) string {
	if at.file == file {
		return fmt.Sprintf("on line %d", at.line)
	}
	return fmt.Sprintf("at %s:%d", at.file, at.line)
}

// once makes a reader of a field that only one file may have.
func (p *parser) once(name string, read func(*yamlnode.Node)) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if first, ok := p.seen.once[name]; ok {
			p.Report(n, "%s is given twice, first %s: only one file may have it", name, first.from(p.path))
			return
		}
		p.seen.once[name] = place{p.path, n.Line}
		read(n)
	}
}
