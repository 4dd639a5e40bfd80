package limittest

import (
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// Wrapper checks a Store that wraps another one, as those of promlimit and otellimit do: wrap
// returns one around s. In whatever order such wrappers and those of package fleet are nested, the
// layers of fleet.New are put around a shared Store once, around a Memory never, and the whole admits
// what one Store does, also while that does not answer.
func Wrapper(t *testing.T, wrap func(s stint.Store) stint.Store) {
	layers := func(s stint.Store) *fleet.Store {
		f := fleet.New(s, fleet.Options{})
		t.Cleanup(f.Close)
		return f
	}
	wrappers := map[string]func(stint.Store) stint.Store{
		"nothing":     func(s stint.Store) stint.Store { return s },
		"the wrapper": wrap,
		"two of them": func(s stint.Store) stint.Store { return wrap(wrap(s)) },
		"fleet.New":   func(s stint.Store) stint.Store { return layers(s) },
		"a Fallback":  func(s stint.Store) stint.Store { return &fleet.Fallback{Store: s} },
	}
	limit := stint.MustLimit("10 per 1h")
	for _, away := range []bool{false, true} {
		for inner, wrapInner := range wrappers {
			for outer, wrapOuter := range wrappers {
				var base stint.Store = new(stint.Memory)
				if away {
					base = &Faulty{Store: base, Fault: func(int) Fault { return Fault{Err: fleet.ErrNotCharged} }}
				} else if inner == "a Fallback" || outer == "a Fallback" {
					continue // as its caller wanted
				}
				s := layers(wrapOuter(wrapInner(base)))
				admitted := 0
				for range 40 {
					if d, err := stint.NewLimiter(s).Allow(t.Context(), "k", limit); err != nil {
						t.Fatal(err)
					} else if d.Allowed {
						admitted++
					}
				}
				if outer == "a Fallback" && inner != "nothing" {
					continue // nothing prevents putting one around layers by hand
				}
				if admitted != 10 || s.IsLayered() != away {
					t.Errorf("%s around %s, away %t: %d admitted of 10, layered %t", outer, inner, away, admitted, s.IsLayered())
				}
			}
		}
	}
}
