package yamlnode

import (
	"crypto/sha256"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Digest is equal for files with the same content, ignoring comments, layout, quotes and the field
// except. nil: root has no other content, or is not a mapping.
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

// write writes the content of n, unambiguously.
func write(to io.Writer, n *Node) {
	fmt.Fprintf(to, "%d %s %d:%s %d\n", n.Kind, n.ShortTag(), len(n.Value), n.Value, len(n.Content))
	for i, c := range n.Content {
		takeTurns(i)
		write(to, c)
	}
}
