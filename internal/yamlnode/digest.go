package yamlnode

import (
	"crypto/sha256"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Digest is one of what the mapping root says, without the field except: equal for
// files that differ in comments, layout or quotes alone. It is nil where root says
// nothing else, or is no mapping.
func Digest(root *Node, except string) []byte {
	if root == nil || root.Kind != yaml.MappingNode {
		return nil
	}
	h := sha256.New()
	said := false
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != except {
			said = true
			write(h, root.Content[i])
			write(h, root.Content[i+1])
		}
	}
	if !said {
		return nil
	}
	return h.Sum(nil)
}

// write writes what n says, unambiguously.
func write(to io.Writer, n *Node) {
	fmt.Fprintf(to, "%d %s %d:%s %d\n", n.Kind, n.ShortTag(), len(n.Value), n.Value, len(n.Content))
	for _, c := range n.Content {
		write(to, c)
	}
}
