package rules

import (
	"net/netip"
	"strings"

	"github.com/stintdev/stint/internal/yamlnode"
)

// nat64 reads nat64_prefixes of a file, before anything with networks.
func (p *parser) nat64(root *yamlnode.Node) {
	if root == nil || root.Tag != "!!map" {
		return
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "nat64_prefixes" {
			p.once("nat64_prefixes", p.nat64Prefixes)(root.Content[i+1])
			return // Mapping reports a second one
		}
	}
}

func (p *parser) nat64Prefixes(n *yamlnode.Node) {
	if !p.few(n, 0, maxNAT64, "prefixes") {
		return
	}
	p.Each(n, func(n *yamlnode.Node) {
		text, ok := p.Scalar(n, "a prefix")
		if !ok {
			return
		}
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			p.Report(n, "%.60q: want a prefix of IPv6 with its length, such as 2001:db8:64::/96", text)
			return
		}
		if err := p.set.nat64().Check(prefix); err != nil {
			p.Report(n, "%s", err)
			return
		}
		p.set.NAT64 = append(p.set.NAT64, prefix)
	})
}
