package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/descriptors"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Set is one or several compiled rules files. Parse, ParseFiles and Load make it.
// It never changes (its fields must not be written to) and may be used from many
// goroutines at once.
type Set struct {
	// Enabled is the kill switch: if it is false, nothing matches. The default is true.
	Enabled bool
	// TrustedProxies are the networks of proxies that are trusted to name the client's
	// address.
	TrustedProxies []netip.Prefix
	// IPv6Prefix is how many bits of an IPv6 address identify a client: 1 to 128. The
	// default is 64.
	IPv6Prefix int
	// NAT64 are the file's own prefixes of NAT64 (RFC 6052), beside the well-known one. IPv6 addresses in
	// them count as the IPv4 addresses that they embed.
	NAT64 []netip.Prefix
	// Rules are all rules of the file, in its order, including those in mode off.
	Rules []*Rule
	// Refusal is the format of refusals by bans of networks, and Errors the format of all other answers that
	// no rule decides, such as those by the blocklist; nil: the usual one. Each is a *httplimit.ErrorFormat.
	// See Rule.Refusal.
	Refusal, Errors *errorformat.Format
	// Version is 12 hexadecimal digits, a hash of the content of the files in order, without
	// their names, comments, layout and section server. Equal rules have equal versions, even with different
	// settings.
	Version string

	// HasServer reports whether a file has a section server.
	HasServer bool
	// Tiers are the names of the file's tiers, in its order; see Rule.Tiers.
	Tiers []string
	// Alerts are all alerts of the file, in its order.
	Alerts []Alert
	// Findings are things in the file that are valid but probably not meant.
	Findings []Finding

	safelist, blocklist list
	hasDefault          bool               // one of Rules is Default
	indexed, defaults   *index             // of the rules that are not Default, and of those that are
	tiers               []*expr.Expression // the conditions of Tiers
	headerNames         map[string]string  // lower case → canonical
	bans                networkTable[*Ban] // manual bans, of networks
	reads               Ambiguity          // the ambiguities that may mislead its expressions
	usesClaims          bool               // an expression reads claims
	anyHeader           bool               // an expression may read headers that it does not name
	repeatable          repeatable
	credentialHeaders   []string    // canonical names
	outside             []outsideAt // the secrets and lists that its files name
	instance            *Instance   // nil: not known
	readsBody, holds    bool        // see ReadsBody and Holds
	base                *Set        // the Set on which With was called; nil: this one

	// described is how many of Rules, at the end, are from files of Envoy's form; see written.
	described int
	trees     *descriptors.Forest
	// places are the indices of Rules by their names.
	places func() map[string]int
}

// Load is ParseFiles of the files that Read finds at path. Errors name path.
func Load(path string) (*Set, error) {
	files, err := Read(path)
	if err != nil {
		return nil, err
	}
	return ParseFiles(files)
}

// Parse reads and compiles the text of a rules file, which file names in errors.
// An error has a line for each of the first 20 problems: file:line:column: what.
// The top-level field server is ignored; it is for the server.
func Parse(file string, data []byte) (*Set, error) {
	return ParseFiles([]File{{Name: file, Data: data}})
}

// ParseNetwork reads a network such as 10.0.0.0/8, or one address, as the files of s, Controls and
// the function cidr have them. Zones do not count, and bits beyond the prefix are dropped. IPv6 networks
// whose addresses embed IPv4 addresses (mapped, NAT64, 6to4 and Teredo) become IPv4 networks. A network that
// contains such addresses and does not determine which is an error.
func (s *Set) ParseNetwork(text string) (netip.Prefix, error) {
	p, err := expr.ParseNetwork(text, s.NAT64)
	if err != nil {
		return p, err
	}
	if why := s.nat64().Hollow(p); why != "" {
		return p, fmt.Errorf("%q: %s", expr.Clip(text), why)
	}
	return p, nil
}

func (s *Set) nat64() address.NAT64 { return s.NAT64 }

// counted is client.ip in a key.
func (s *Set) counted(a netip.Addr) string { return address.Counted(s.nat64().Plain(a), s.IPv6Prefix) }

// Ambiguous returns the ambiguities of in that could mislead s: of the path if an expression of s reads
// request.path, of the query if one reads request.query, and of the method if one reads request.method. Rules
// that are off or in shadow mode do not count, nor do tiers that only they name. 0: nothing is.
//
// Asks ignores it; the caller decides what to do.
func (s *Set) Ambiguous(in *Input) Ambiguity {
	if in.Request == nil || in.Request.Ambiguous == 0 || !s.Enabled {
		return 0
	}
	return in.Request.Ambiguous & s.reads
}

// expressions calls visit with every expression of s and the mode of its rule. Expressions of lists are
// enforced. A tier's comes once for each rule that may need it, and once as if off.
func (s *Set) expressions(visit func(e *expr.Expression, mode Mode)) {
	for _, l := range []*list{&s.safelist, &s.blocklist} {
		for _, e := range l.conditions {
			visit(e, Enforce)
		}
		for _, added := range l.added {
			visit(added.condition, Enforce)
		}
	}
	for _, e := range s.tiers {
		visit(e, Off)
	}
	for _, r := range s.Rules {
		for _, e := range []*expr.Expression{r.match, r.key, r.cost} {
			if e != nil {
				visit(e, r.Mode)
			}
		}
		for _, e := range r.costs {
			visit(e, r.Mode)
		}
		for _, t := range r.Tiers {
			visit(s.tiers[t.index], r.Mode)
		}
		if r.controls != nil {
			for _, t := range r.controls.others {
				visit(s.tiers[t.index], r.Mode)
			}
		}
	}
}

// noteUses records what the expressions of s read, and whether a rule holds units. Call it when all else of s
// is complete.
func (s *Set) noteUses() {
	s.reads, s.usesClaims, s.anyHeader, s.readsBody, s.holds = 0, false, false, false, false
	s.expressions(func(e *expr.Expression, mode Mode) {
		s.anyHeader = s.anyHeader || e.AnyHeader
		s.usesClaims = s.usesClaims || e.Uses("claims")
		s.noteHeaders(e)
		s.readsBody = s.readsBody || mode != Off && e.Uses("body")
		if mode == Enforce {
			s.reads |= misread(e)
		}
	})
	for _, r := range s.Rules {
		if r.Mode == Off {
			continue
		}
		s.readsBody = s.readsBody || r.Tokens.API != NoTokens && r.cost == nil || r.Tokens.IncludeUsage
		s.holds = s.holds || r.Holds()
	}
}

// indexRules indexes the rules of files. Call it when modes have changed.
func (s *Set) indexRules() {
	of := func(byDefault bool) *index {
		conditions := make([]condition, len(s.written()))
		for i, r := range s.written() {
			conditions[i] = condition{r.match, r.Mode == Off || r.Default != byDefault}
		}
		return newIndex(conditions, false)
	}
	s.indexed = of(false)
	if s.hasDefault {
		s.defaults = of(true)
	}
}

// written are the rules from rules files.
func (s *Set) written() []*Rule { return s.Rules[:len(s.Rules)-s.described] }

// placesOf returns a function that finds rules by name. It builds its index at the first call. The rules of a
// Set that With returns have the same places.
func placesOf(all []*Rule) func() map[string]int {
	return sync.OnceValue(func() map[string]int {
		places := make(map[string]int, len(all))
		for i, r := range all {
			places[r.Name] = i
		}
		return places
	})
}

// ruleNamed is the rule of this name; nil: there is none.
func (s *Set) ruleNamed(name string) *Rule {
	if i := s.place(name); i >= 0 {
		return s.Rules[i]
	}
	return nil
}

// place is the index of the rule of this name; -1: there is none.
func (s *Set) place(name string) int {
	if i, ok := s.places()[name]; ok {
		return i
	}
	return -1
}

func misread(e *expr.Expression) (a Ambiguity) {
	if e.Uses("request.path") {
		a |= PathAmbiguity
	}
	if e.Uses("request.query") {
		a |= QueryAmbiguity
	}
	if e.Uses("request.method") {
		a |= MethodCase
	}
	return a
}

// ReadsBody reports whether Asks may look at Request.Body, or a gateway may have to change it for
// Tokens.IncludeUsage.
func (s *Set) ReadsBody() bool { return s.readsBody }

// Holds reports whether a rule that is not off has held limits.
func (s *Set) Holds() bool { return s.holds }

// UsesClaims reports whether an expression of s reads the claims of a token.
func (s *Set) UsesClaims() bool { return s.usesClaims }

// Headers returns the canonical names of the headers that expressions of s name, in order, including rules
// that are off. others reports whether an expression may read other headers, too.
func (s *Set) Headers() (names []string, others bool) {
	return slices.Sorted(maps.Values(s.headerNames)), s.anyHeader
}

// check finds malformed parts of in, whatever the expressions are.
func (s *Set) check(in *Input) error {
	if err := in.check(); err != nil {
		return err
	}
	r := in.Request
	if r == nil || s.repeatable.allow&RepeatedHeader != 0 {
		return nil
	}
	if name := httpfield.Repeated(r.Header); name != "" && !s.repeatable.headers[name] {
		return fmt.Errorf("rules: %w", &AmbiguousError{Is: RepeatedHeader, Name: strings.ToLower(name)})
	}
	return nil
}

// VersionOf is the Version of the Set that Parse makes from a text.
func VersionOf(text string) string {
	_, root := yamlnode.Open("", []byte(text))
	return version([][]byte{digest(root)})
}

// digest leaves out the section server, so that instances with the same rules have the same version.
func digest(root *yamlnode.Node) []byte { return yamlnode.Digest(root, "server") }

// version is of the digests of files.
func version(digests [][]byte) string {
	h := sha256.New()
	for _, d := range digests {
		h.Write(d)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}
