package yamlnode

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Expand returns the scalar n with each ${...} replaced by its value from Outside; $${ stands for ${.
// It returns false if n cannot be read: the problem was reported, or Outside is nil.
func (r *Reader) Expand(n *Node) (*Node, bool) {
	if n == nil || n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "${") {
		return n, true
	}
	var b strings.Builder
	known, before := true, r.Problems()
	for rest := n.Value; rest != ""; {
		text, reference, found := strings.Cut(rest, "${")
		if found && strings.HasSuffix(text, "$") {
			b.WriteString(text + "{")
			rest = reference
			continue
		}
		b.WriteString(text)
		if !found {
			break
		}
		reference, rest, found = strings.Cut(reference, "}")
		switch {
		case !found:
			r.Report(n, "${ without }: write ${NAME} for a variable of the environment, ${file:PATH} for what a file has, or $${ for ${")
			rest = ""
		case !isReference(reference):
			r.Report(n, "${%s}: write ${NAME} for a variable of the environment, or ${file:PATH} for what a file has", clip(oneLine(reference), 60))
		case r.Outside == nil:
			known = false
		default:
			value, err := r.Outside(reference)
			if err != nil {
				r.Report(n, "${%s}: %v", clip(oneLine(reference), 200), err)
			}
			b.WriteString(value)
		}
	}
	if !known || r.Problems() > before {
		return nil, false
	}
	expanded := *n
	expanded.Value, expanded.Tag = b.String(), "!!str"
	if from := r.from[n]; from != "" {
		r.from[&expanded] = from
	}
	return &expanded, true
}

// isReference reports whether text is the name of a variable, or file: and a path.
func isReference(text string) bool {
	if path, ok := strings.CutPrefix(text, "file:"); ok {
		return path != ""
	}
	const letters = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return text != "" && strings.Trim(text[:1], letters) == "" && strings.Trim(text, letters+"0123456789") == ""
}
