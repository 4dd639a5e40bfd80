package rules

import (
	"cmp"
	"math/bits"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/stintdev/stint/server/rules/internal/expr"
)

// index finds which of many conditions a request may fulfil, without a look at the others: those of which
// each term of a guard is false. A nil index finds all.
type index struct {
	unguarded bitset // the conditions that are always candidates
	groups    []*group
}

// fewestIndexed is from how many conditions with guards an index is faster than an evaluation of all.
const fewestIndexed = 4

// condition is one for an index.
type condition struct {
	is  *expr.Expression // nil: always fulfilled
	out bool             // it is never a candidate
}

// newIndex indexes conditions. noClaims leaves out guards by claims.
func newIndex(conditions []condition, noClaims bool) *index {
	guards, n := chooseGuards(conditions, noClaims)
	if n < fewestIndexed {
		return nil
	}
	x := &index{unguarded: newBitset(len(conditions))}
	groups := map[groupKey]*group{}
	for i, c := range conditions {
		takeTurns(i)
		guard := guards[i]
		if guard == nil {
			if !c.out {
				x.unguarded.add(i)
			}
			continue
		}
		for _, t := range guard.Terms {
			key := groupKey{t.Field, t.By}
			g := groups[key]
			if g == nil {
				g = newGroup(t.Field, t.By)
				groups[key] = g
				x.groups = append(x.groups, g)
			}
			g.add(t, int32(i), guard.Quiet)
		}
	}
	for _, g := range x.groups {
		runtime.Gosched()
		g.done()
	}
	return x
}

// chooseGuards chooses the guard of each condition that has one: that whose terms the fewest conditions have.
func chooseGuards(conditions []condition, noClaims bool) (chosen []*expr.Guard, n int) {
	shared := map[expr.Term]int{}
	each := func(c condition, visit func(g *expr.Guard)) {
		if c.is == nil || c.out {
			return
		}
		for i := range c.is.Guards {
			if g := &c.is.Guards[i]; !noClaims || !expr.ReadClaims(g.Terms) {
				visit(g)
			}
		}
	}
	for i, c := range conditions {
		takeTurns(i)
		each(c, func(g *expr.Guard) {
			for _, t := range g.Terms {
				shared[t]++
			}
		})
	}
	chosen = make([]*expr.Guard, len(conditions))
	for i, c := range conditions {
		takeTurns(i)
		least := 0
		each(c, func(g *expr.Guard) {
			sum := 0
			for _, t := range g.Terms {
				sum += shared[t]
			}
			if chosen[i] == nil || sum < least {
				chosen[i], least = g, sum
			}
		})
		if chosen[i] != nil {
			n++
		}
	}
	return chosen, n
}

// candidates are the conditions that the request may fulfil, in the memory of use; nil: all.
func (x *index) candidates(ev *evaluation, use *bitset) bitset {
	if x == nil { // inlined: most files have few rules
		return nil
	}
	return x.find(ev, use)
}

func (x *index) find(ev *evaluation, use *bitset) bitset {
	if ev.scope.HasLongText() {
		return nil
	}
	*use = append((*use)[:0], x.unguarded...)
	for _, g := range x.groups {
		g.mark(ev, *use)
	}
	return *use
}

type groupKey struct {
	field expr.Field
	by    expr.Comparison
}

// group has the terms of one field and one comparison.
type group struct {
	groupKey
	all      []int32            // the conditions with a term of the group
	loud     []int32            // those of them that an absent field does not exclude
	equal    map[string][]int32 // by text; of other comparisons, the texts of prefixes
	prefixes []prefix           // in order
	networks map[netip.Prefix][]int32
	lengths  prefixLengths // of networks
}

func newGroup(f expr.Field, by expr.Comparison) *group {
	return &group{groupKey: groupKey{f, by}, equal: map[string][]int32{}, networks: map[netip.Prefix][]int32{}}
}

func (g *group) add(t expr.Term, place int32, quiet bool) {
	g.all = append(g.all, place)
	if !quiet {
		g.loud = append(g.loud, place)
	}
	switch g.by {
	case expr.AsNetwork:
		g.networks[t.Network] = append(g.networks[t.Network], place)
		g.lengths.add(t.Network)
	case expr.AsUnder:
		if t.Text != "" { // nothing is under it
			text := strings.TrimSuffix(t.Text, "/")
			g.equal[text] = append(g.equal[text], place)
		}
	default:
		g.equal[t.Text] = append(g.equal[t.Text], place)
	}
}

// done makes ready what was added.
func (g *group) done() {
	g.all, g.loud = slices.Compact(g.all), slices.Compact(g.loud)
	if g.by == expr.AsPrefix || g.by == expr.AsUnder {
		g.prefixes = nest(g.equal)
	}
}

// mark adds to to the conditions that a request may fulfil by the group's terms.
func (g *group) mark(ev *evaluation, to bitset) {
	if g.field.Variable == "claims" && ev.in.Request != nil && ev.in.Request.Preflight {
		to.addAll(g.all) // which then mostly are not evaluated: so claims are not looked for
		return
	}
	text, is := ev.scope.Text(&g.field)
	switch is {
	case expr.Unclear:
		to.addAll(g.all)
		return
	case expr.Absent:
		to.addAll(g.loud)
		return
	case expr.NoText:
		return
	}
	switch g.by {
	case expr.AsEqual:
		to.addAll(g.equal[text])
	case expr.AsFolded:
		to.addAll(g.equal[ev.scope.FoldedPath()])
	case expr.AsPrefix:
		for i := lastPrefix(g.prefixes, text); i >= 0; i = g.prefixes[i].within {
			to.addAll(g.prefixes[i].places)
		}
	case expr.AsUnder:
		text = ev.scope.FoldedPath()
		for i := lastPrefix(g.prefixes, text); i >= 0; i = g.prefixes[i].within {
			if n := len(g.prefixes[i].text); len(text) == n || text[n] == '/' {
				to.addAll(g.prefixes[i].places)
			}
		}
	case expr.AsNetwork:
		for p := range g.lengths.around(ev.client) {
			to.addAll(g.networks[p])
		}
	}
}

// prefix is a text that others begin with.
type prefix struct {
	text   string
	places []int32
	within int // the index of the longest other that it begins with; -1: there is none
}

// nest puts prefixes in order.
func nest(texts map[string][]int32) (all []prefix) {
	for text, places := range texts {
		all = append(all, prefix{text: text, places: places})
	}
	slices.SortFunc(all, func(a, b prefix) int { return cmp.Compare(a.text, b.text) })
	for i := range all {
		within := i - 1
		for within >= 0 && !strings.HasPrefix(all[i].text, all[within].text) {
			within = all[within].within
		}
		all[i].within = within
	}
	return all
}

// lastPrefix is the index of the longest prefix of text; -1: there is none. The last prefix in order that is
// not after text begins with each prefix of text.
func lastPrefix(all []prefix, text string) int {
	i, found := slices.BinarySearchFunc(all, text, func(p prefix, text string) int { return cmp.Compare(p.text, text) })
	if !found {
		i--
	}
	for i >= 0 && !strings.HasPrefix(text, all[i].text) {
		i = all[i].within
	}
	return i
}

// bitset is a set of small numbers; nil: of all.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) add(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitset) addAll(all []int32) {
	for _, i := range all {
		b[i>>6] |= 1 << (i & 63)
	}
}

// next is the first number from i on; at least n: there is none.
func (b bitset) next(i, n int) int {
	if b == nil { // inlined
		return i
	}
	return b.nextOf(i, n)
}

func (b bitset) nextOf(i, n int) int {
	w := i / 64
	if w >= len(b) {
		return n
	}
	word := b[w] >> (i % 64) << (i % 64)
	for word == 0 {
		if w++; w >= len(b) {
			return n
		}
		word = b[w]
	}
	return w*64 + bits.TrailingZeros64(word)
}
