package await

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !So(func() bool { return time.Since(began) > 3*time.Second }) {
			t.Error("3 s are too long")
		}
		if late := time.Since(began) - 3*time.Second; late > 20*time.Millisecond {
			t.Errorf("%s late", late)
		}
		if So(func() bool { return false }) {
			t.Error("what never is so was so")
		}
		if waited := time.Since(began) - 3*time.Second; waited < Patience || waited > Patience+time.Second {
			t.Errorf("waited for %s, want %s", waited, Patience)
		}
	})
}
