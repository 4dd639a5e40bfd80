package httpfield

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

func TestTwinsOfHeaders(t *testing.T) {
	for other, want := range map[string]bool{
		"X-Api-Key": false, "X_api_key": true, "x_API-key": true, "X.api.key": true, "x-api-key": false,
		"X-Api-Ke": false, "X-Api-Keys": false, "X-Api-Kez": false, "Xaapi-Key": false,
	} {
		if got := HasTwin(http.Header{"X-Api-Key": nil, other: {"a"}}, "X-Api-Key"); got != want {
			t.Errorf("%s: %v", other, got)
		}
	}
}

func TestTwinsOfParameters(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"user", "User", true}, {"user", "user[]", true}, {"user", "user[0]", true}, {"user", " user", true},
		{"user_name", "user.name", true}, {"user_name", "USER NAME", true}, {"user", "user\x00x", true},
		{"user[]", "user[0]", true}, {"filter[a]", "filter[b]", true},
		{"user", "users", false}, {"user", "use", false}, {"user", "", false}, {"user", "user_", false},
		{"user", "[user]", false}, {"user", "user]", false}, {"a", "b", false},
	} {
		if got := IsParameterTwin(test.a, test.b); got != test.want {
			t.Errorf("%q and %q: %v", test.a, test.b, got)
		}
		if got := IsParameterTwin(test.b, test.a); got != test.want {
			t.Errorf("%q and %q: %v", test.b, test.a, got)
		}
	}
}

// No header is both a list and single, and names are as net/http writes them.
func TestTables(t *testing.T) {
	for name := range lists {
		if singles[name] || http.CanonicalHeaderKey(name) != name {
			t.Errorf("list %s", name)
		}
	}
	for name := range singles {
		if http.CanonicalHeaderKey(name) != name {
			t.Errorf("single %s", name)
		}
	}
}

// Folding names, to look for many, and comparing them, to look for one, find the same
// twins.
func TestFoldedTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func() string {
		b := make([]byte, 1+r.IntN(5))
		for i := range b {
			b[i] = "aAbB_-. [\x00"[r.IntN(10)]
		}
		return string(b)
	}
	same := 0
	for range 200_000 {
		a, b := name(), name()
		folded := FoldParameter(a) == FoldParameter(b)
		if got := IsParameterTwin(a, b); got != folded {
			t.Fatalf("parameters %q and %q: twins %v, folded %v", a, b, got, folded)
		}
		if folded {
			same++
		}
		if strings.EqualFold(a, b) {
			continue
		}
		folded = FoldHeader(a) == FoldHeader(b)
		if got := HasTwin(http.Header{a: {"x"}}, b); got != folded {
			t.Fatalf("headers %q and %q: twins %v, folded %v", a, b, got, folded)
		}
	}
	if same < 1000 {
		t.Errorf("%d twins are too few to tell", same)
	}
}
