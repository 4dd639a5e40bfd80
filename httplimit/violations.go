package httplimit

import (
	"net/http"
	"strconv"

	"github.com/stintdev/stint"
)

// SetViolations sets the header Stint-Violations to how many violations count, where d
// is a refusal that counts as one: 4;warn-after=3;ban-after=5, a structured field (RFC
// 9651). What the penalty does not do is left out. Else it leaves h as it is.
func SetViolations(h http.Header, d *stint.Decision) {
	if d.Violations == 0 {
		return
	}
	b := strconv.AppendInt(make([]byte, 0, 48), d.Violations, 10)
	p := d.Penalty.Spec()
	if p.WarnAfter > 0 {
		b = strconv.AppendInt(append(b, ";warn-after="...), p.WarnAfter, 10)
	}
	if p.BanAfter > 0 {
		b = strconv.AppendInt(append(b, ";ban-after="...), p.BanAfter, 10)
	}
	h["Stint-Violations"] = []string{string(b)}
}
