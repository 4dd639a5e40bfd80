package kind_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server/internal/kind"
)

// Each kind has a word of its own, and the gRPC code that httplimit writes for its HTTP status.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for k := range kind.Kind(kind.Kinds) {
		if seen[k.String()] || (k.String() == "") != (k == kind.None) {
			t.Errorf("kind %d is named %q", k, k)
		}
		seen[k.String()] = true
		if k.Refuses() && k.Status() < 400 || (k.Status() < 400) != (k.Code() == 0) {
			t.Errorf("%s: status %d, code %d, refuses %t", k, k.Status(), k.Code(), k.Refuses())
		}
		if k.Status() < 400 {
			continue
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Content-Type", "application/grpc")
		r.ProtoMajor = 2
		httplimit.GRPC(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			httplimit.Problem(w, r, k.Status(), "")
		})).ServeHTTP(w, r)
		if got := w.Result().Header.Get("Grpc-Status"); got != strconv.Itoa(int(k.Code())) {
			t.Errorf("%s: code %d, httplimit writes %q", k, k.Code(), got)
		}
	}
	for k := kind.Allowed; int(k) < kind.Kinds; k++ {
		if counted := int(k) <= kind.Counted; counted != (k.Scope() != kind.Uncounted) {
			t.Errorf("%s: scope %d, but counted: %t", k, k.Scope(), counted)
		}
	}
}
