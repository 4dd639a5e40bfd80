package rules

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules/internal/expr"
)

// The index that expressions use once they have looked up many names finds what looking up
// one by one does, whatever the request brings and the file lets repeat.
func TestAttackFieldsAreTwins(t *testing.T) {
	for seed := range uint64(10_000) {
		random := rand.New(rand.NewPCG(seed, 3))
		text := func(of string, most int) string {
			b := make([]byte, 1+random.IntN(most))
			for i := range b {
				b[i] = of[random.IntN(len(of))]
			}
			return string(b)
		}
		r := &Request{Header: http.Header{}}
		for range random.IntN(6) {
			name := text("aAb-_.", 4)
			if random.IntN(4) > 0 {
				name = http.CanonicalHeaderKey(name)
			}
			for range random.IntN(3) {
				r.Header[name] = append(r.Header[name], text("xy", 2))
			}
			if random.IntN(10) == 0 {
				r.Header[name] = nil
			}
		}
		if random.IntN(3) == 0 {
			r.Header["Accept"], r.Header["Cookie"] = []string{"a", "b"}[:1+random.IntN(2)], []string{"a", "b"}[:1+random.IntN(2)]
		}
		var query []string
		for range random.IntN(6) {
			name := strings.NewReplacer("[", "[]", "0", "%00", "z", "%zz", "5", "%5b").Replace(text("aAb._+[05z ", 3))
			query = append(query, name+[]string{"", "=", "=" + text("xy+", 3)}[random.IntN(3)])
		}
		r.RawQuery = strings.Join(query, "&")
		may := &repeatable{headers: map[string]bool{}, parameters: map[string]bool{}}
		if random.IntN(2) == 0 {
			may.headers[http.CanonicalHeaderKey(text("ab-", 2))], may.parameters[text("ab", 2)] = true, true
		}
		if random.IntN(3) == 0 {
			may.allow = Ambiguity(random.Uint64()) & AnyAmbiguity
		}
		var names []string
		for name := range r.Header {
			names = append(names, name, strings.ToLower(name))
		}
		for name := range queryParts(r.RawQuery) {
			names = append(names, name, strings.ToLower(name), strings.ToUpper(name), name+"[]", " "+name)
		}
		for range 8 {
			names = append(names, text("aAb-_.[ ", 4))
		}
		slices.Sort(names)
		for _, isQuery := range []bool{false, true} {
			request := func(lookups lookups) (*evaluation, expr.Fields) {
				ev := &evaluation{
					set: &Set{headerNames: map[string]string{"a-b": "A-B"}, repeatable: *may}, in: &Input{Request: r}, headers: lookups, query: lookups}
				if isQuery {
					return ev, (*queryFields)(ev)
				}
				return ev, (*headerFields)(ev)
			}
			_, indexed := request(lookups{n: mostLookups})
			for _, name := range names {
				ev, one := request(lookups{})
				text, ok, err := one.Lookup(name)
				again, found, worse := indexed.Lookup(name)
				if text != again || ok != found || fmt.Sprint(err) != fmt.Sprint(worse) {
					t.Fatalf("seed %d: query %v: %q: %q %v %v by itself, %q %v %v by the index, of %v ?%s, with %+v",
						seed, isQuery, name, text, ok, err, again, found, worse, r.Header, r.RawQuery, may)
				}
				if ev.headers.index != nil || ev.query.index != nil {
					t.Fatal("both were looked up in the same way")
				}
			}
		}
	}
}
