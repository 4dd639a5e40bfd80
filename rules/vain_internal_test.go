package rules

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// randomCondition is made of a few variables and texts.
func randomCondition(r *rand.Rand, depth int) string {
	atoms := []string{
		`true`, `false`, `1 == 2`, `request.path == "/a"`, `"/b" == request.path`, `request.path != "/a"`,
		`request.path in ["/a", "/b"]`, `request.path in ["/c"]`, `request.path.startsWith("/")`, `operation == "x"`, `operation == "y"`,
		`attrs.k == "v"`, `attrs["k"] == "w"`, `attrs.k in ["v", "2"]`, `int(attrs.k) > 1`, `attrs.exists(operation, operation == "k")`,
	}
	if depth == 0 {
		return atoms[r.IntN(len(atoms))]
	}
	part := func() string { return randomCondition(r, r.IntN(depth)) }
	switch r.IntN(6) {
	case 0:
		return "!(" + part() + ")"
	case 1:
		return fmt.Sprintf("(%s ? %s : %s)", part(), part(), part())
	case 2, 3:
		return fmt.Sprintf("(%s || %s)", part(), part())
	}
	return fmt.Sprintf("(%s && %s && %s)", part(), part(), part())
}

// What is said to be never true is true for no request, and what is said to be
// always true for all, missing and malformed ones among them.
func TestJudgementIsCertain(t *testing.T) {
	var inputs []*Input
	for _, path := range []string{"/a", "/b", "/c", "unknown"} {
		for _, operation := range []string{"", "x", "y"} {
			for _, k := range []any{nil, "v", "w", "2", int64(2)} {
				in := &Input{Operation: operation, Attrs: map[string]any{}}
				if path != "unknown" {
					in.Request = &Request{Path: path}
				}
				if k != nil {
					in.Attrs["k"] = k
				}
				inputs = append(inputs, in)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	never, always := 0, 0
	for range 5000 {
		source := randomCondition(r, 4)
		set, err := Parse("r.yaml", []byte("blocklist:\n  - |\n    "+source+"\n"))
		if err != nil {
			continue // too deep
		}
		e := set.blocklist.conditions[0]
		vain := len(set.Findings) > 0
		if vain {
			never++
		}
		if e.always {
			always++
		}
		for _, in := range inputs {
			var sc scope
			sc.open(set, in)
			yes, err := e.isTrue(&sc)
			if yes && vain || e.always && (!yes || err != nil) {
				t.Fatalf("%s: found %v, always %t; it is %t, %v for %+v %+v", source, set.Findings, e.always, yes, err, in, in.Request)
			}
		}
	}
	if never < 100 || always < 100 {
		t.Errorf("of 5000 conditions %d are never true and %d always: the test shows little", never, always)
	}
}
