package descriptors

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Many patterns find what a search in their order finds.
func TestManyPatterns(t *testing.T) {
	text := func(r *rand.Rand, alphabet string, most int) (s string) {
		for range r.IntN(most + 1) {
			s += string(alphabet[r.IntN(len(alphabet))])
		}
		return s
	}
	found := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		n, seen := &Node{}, map[pair]bool{}
		var all []*Node
		for range 5 + r.IntN(60) {
			child := &Node{Key: text(r, "ab*", 2), Value: text(r, "xy*", 4)}
			if child.Key == "" || seen[pair{child.Key, child.Value}] {
				continue
			}
			seen[pair{child.Key, child.Value}] = true
			n.add(child)
			all = append(all, child)
		}
		for range 200 {
			key, value := text(r, "ab", 2), text(r, "xy", 5)
			if got, want := n.Next(key, value), plainNext(all, key, value); got != want {
				t.Fatalf("seed %d: (%s, %s) finds %s, want %s", seed, key, value, nameOf(got), nameOf(want))
			} else if want != nil && want.IsPattern() {
				found++
			}
		}
	}
	if found < 10_000 {
		t.Errorf("only %d entries found a pattern", found)
	}
}

func nameOf(n *Node) string {
	if n == nil {
		return "nothing"
	}
	return fmt.Sprintf("(%s, %s)", n.Key, n.Value)
}

func plainNext(all []*Node, key, value string) *Node {
	for _, n := range all {
		if n.Key == key && n.Value == value && value != "" {
			return n
		}
	}
	for _, n := range all {
		if n.IsPattern() && n.matches(key, value) {
			return n
		}
	}
	for _, n := range all {
		if n.Key == key && n.Value == "" {
			return n
		}
	}
	return nil
}

func TestIsLike(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "x", true}, {"**", "x", true},
		{"a*", "a", true}, {"a*", "b", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "abc", true}, {"a*b*c", "acbc", true}, {"a*b*c", "acc", false},
		{"a*b*b", "ab", false}, {"a*b*b", "abb", true}, {"/v1/*/items/*", "/v1/7/items/8", true}, {"/v1/*/items/*", "/v1/7/item/8", false},
	} {
		if got := isLike(partsOf(test.pattern), test.text); got != test.want {
			t.Errorf("%s like %s: %t", test.text, test.pattern, got)
		}
	}
}
