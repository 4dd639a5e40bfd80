package spelling_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/spelling"
)

func TestNearest(t *testing.T) {
	names := []string{"limits", "match", "key", "cost", "on_store_error", "request.path"}
	for name, want := range map[string]string{
		"limit": "limits", "lmits": "limits", "ilmits": "limits", "LIMITS": "limits", "limitss": "limits", "limiting": "",
		"mach": "match", "matches": "match", "kye": "key", "kee": "key", "k": "", "": "", "xyz": "", "cots": "cost", "on_store_errors": "on_store_error",
		"on-store-error": "on_store_error", "request.pth": "request.path", strings.Repeat("x", 10000): "",
	} {
		if got := spelling.Nearest(name, names); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
