package httplimit

import (
	"net/http"

	"github.com/stintdev/stint"
)

// SetDegraded sets the header Stint-Degraded to who decided where the Store that
// counts for all has not counted: local or policy. Else it leaves h as it is.
func SetDegraded(h http.Header, by stint.Source) {
	if !by.Counted() {
		h["Stint-Degraded"] = []string{by.String()}
	}
}
