package stint

import "testing"

// The names are as the compiler makes them: these are of a program.
func TestNameOf(t *testing.T) {
	for function, want := range map[string]string{
		"main.Plain":                             "Plain",
		"main.LeakyRateController.Test1-fm":      "LeakyRateController.Test1", // a method value
		"main.(*C).Ptr-fm":                       "C.Ptr",
		"main.(*C).Ptr":                          "C.Ptr", // a method expression
		"main.Gen[...]":                          "Gen",
		"main.(*Box[...]).Load-fm":               "Box.Load",
		"main.Box[...].Val-fm":                   "Box.Val",
		"main.init.func1":                        "init.func1", // of a variable
		"main.main.func1":                        "main.func1",
		"main.main.(*C).Mk.func6":                "main.C.Mk.func6",
		"main.main.Mk[...].func5":                "main.Mk.func5",
		"main.main.main.func4.main-range1.func8": "main.main.func4.main-range1.func8",
		"example.com/shop.(*Cart).Load-fm":       "example.com/shop.Cart.Load",
		"example.com/main.Load":                  "example.com/main.Load",
		"gopkg.in/shop%2ev3.Load":                "gopkg.in/shop.v3.Load",
		"example.com/a.b/shop.Load":              "example.com/a.b/shop.Load",
		"strings.Cut":                            "strings.Cut",
	} {
		if got := nameOf(function); got != want {
			t.Errorf("%s: %s, want %s", function, got, want)
		}
	}
}
