package yamlnode

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

const (
	// longestSearched is the size of the largest file in which mistakeAt looks: it parses parts of it
	// again and again.
	longestSearched = 32 << 10
	// longestBroken is how many lines a valid text or list may span: a part of the file that ends
	// within one is then not a mistake.
	longestBroken = 16
)

// mistakeAt returns the place of the mistake in data, which is not YAML: the first line that no
// later line makes valid. Package yaml reports at most the line on which the block around the
// mistake begins. 0: not found.
func mistakeAt(data []byte) (line, column int) {
	if len(data) > longestSearched {
		return 0, 0
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	ends := make([]int, len(lines)+1)
	for i, l := range lines {
		ends[i+1] = ends[i] + len(l)
	}
	isGood := func(n int) bool { return yaml.Unmarshal(data[:ends[n]], new(yaml.Node)) == nil }
	if isGood(len(lines)) {
		return 0, 0
	}
	good, bad := 0, len(lines)
	for good+1 < bad {
		if middle := (good + bad) / 2; isGood(middle) {
			good = middle
		} else {
			bad = middle
		}
		if good+1 < bad {
			continue
		}
		for n := bad + 1; n <= min(bad+longestBroken, len(lines)); n++ {
			if isGood(n) { // the invalid part was only a beginning
				good, bad = n, len(lines)
				break
			}
		}
	}
	text := lines[bad-1]
	return bad, 1 + len(text) - len(bytes.TrimLeft(text, " \t"))
}
