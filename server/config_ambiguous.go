package server

import (
	"fmt"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/rules"
)

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
				yamlnode.Parsed(r, &one, rules.ParseAmbiguity)(n)
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
