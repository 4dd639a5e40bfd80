package descriptors

// patterns are nodes with asterisks in their value or, for patterns of keys, in their key. They are found by
// the text before the first asterisk and after the last, so that many cost no more than few, unless those
// texts are the same.
type patterns struct {
	all    []*Node // in file order
	byEnds map[ends][]*Node
	shapes []shape // the lengths of byEnds, each once
}

type ends struct{ first, last string }

type shape struct{ first, last int }

// few is how many patterns are tried one by one.
const few = 8

// add adds a node that is a pattern by parts.
func (p *patterns) add(n *Node, parts []string) {
	p.all = append(p.all, n)
	e := ends{parts[0], parts[len(parts)-1]}
	if p.byEnds == nil {
		p.byEnds = map[ends][]*Node{}
	}
	p.byEnds[e] = append(p.byEnds[e], n)
	this := shape{len(e.first), len(e.last)}
	for _, s := range p.shapes {
		if s == this {
			return
		}
	}
	p.shapes = append(p.shapes, this)
}

// find is the first node in the file that key and value match; nil: none. text is either key or value,
// depending on what the patterns are for.
func (p *patterns) find(text, key, value string) *Node {
	if p == nil {
		return nil
	}
	if len(p.all) <= few {
		return firstOf(p.all, nil, key, value)
	}
	var best *Node
	for _, s := range p.shapes {
		if len(text) >= s.first+s.last {
			best = firstOf(p.byEnds[ends{text[:s.first], text[len(text)-s.last:]}], best, key, value)
		}
	}
	return best
}

// firstOf is the first of nodes that key and value match, or best, if that comes before it.
func firstOf(nodes []*Node, best *Node, key, value string) *Node {
	for _, n := range nodes {
		if best != nil && best.order < n.order {
			return best
		}
		if n.matches(key, value) {
			return n
		}
	}
	return best
}
