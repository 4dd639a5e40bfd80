package rules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/stintdev/stint/internal/yamlnode"
)

// File is a file of rules, as read. Name names it in errors.
type File struct {
	Name string
	Data []byte
}

// ParseFiles makes one Set of several files, in the order given: what they list is
// appended, names of rules are unique over all of them, and each of enabled,
// ipv6_prefix and server may stand in one of them only. An error is as that of
// Parse, file after file.
func ParseFiles(files []File) (*Set, error) { return ParseContext(context.Background(), files) }

// ParseContext is ParseFiles, which stops when ctx ends. The error wraps the cause then.
func ParseContext(ctx context.Context, files []File) (*Set, error) {
	s := &Set{Enabled: true, IPv6Prefix: 64, headerNames: map[string]string{}}
	if len(files) == 0 {
		return nil, errors.New("rules: no files to read rules from")
	}
	seen := &seen{names: map[string]place{}, once: map[string]place{}, counted: map[counting]counted{}}
	budget := newBudget(ctx)
	parsers, roots := make([]*parser, len(files)), make([]*yamlnode.Node, len(files))
	for i, f := range files {
		r, root := yamlnode.Open(f.Name, f.Data)
		roots[i] = root
		parsers[i] = &parser{Reader: r, compiler: compiler{r, s.headerNames, &s.Findings, &s.secrets, budget}, set: s, path: f.Name, seen: seen}
		parsers[i].file(root)
	}
	for _, p := range parsers { // any file may have the tiers
		p.linkTiers()
	}
	if err := budget.stopped(); err != nil {
		return nil, err
	}
	if err := problems(parsers); err != nil {
		return nil, err
	}
	s.Version = version(roots)
	_, s.HasServer = seen.once["server"]
	s.findTrustAll(seen.proxies)
	s.noteReads()
	s.findNoToken(seen.byClaims)
	s.findLooseKeys(seen.keys)
	return s, nil
}

// problems is what is wrong with all files.
func problems(parsers []*parser) error {
	var errs []error
	told, silent := 0, 0
	for _, p := range parsers {
		switch err := p.Err(); {
		case err == nil:
		case told >= mostTold:
			silent++
		default:
			told += p.Problems()
			errs = append(errs, err)
		}
	}
	if silent > 0 {
		errs = append(errs, fmt.Errorf("rules: and %d more files have problems", silent))
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// mostTold is after how many problems those of further files are only counted.
const mostTold = 20

// VersionOf is the Version of a Set that Parse makes of a text.
func VersionOf(text string) string {
	_, root := yamlnode.Open("", []byte(text))
	return version([]*yamlnode.Node{root})
}

// version is made of what the files say, but for the section server, so that instances
// with settings of their own have the same version where they have the same rules. A
// file that says nothing else is none.
func version(roots []*yamlnode.Node) string {
	h := sha256.New()
	for _, root := range roots {
		h.Write(yamlnode.Digest(root, "server"))
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// seen is what the files before, and this one so far, have said.
type seen struct {
	names   map[string]place // of rules
	once    map[string]place // fields that only one file may have
	counted map[counting]counted
	proxies []string // the place of each of TrustedProxies
	// keys are those of the rules.
	keys []keyAt
	// byClaims are the enforced rules whose keys need claims.
	byClaims []byClaims
}

// place is a line of a file.
type place struct {
	file string
	line int
}

// from is the place in words, for somebody in a file.
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
