package offenders

import (
	"bytes"
	"testing"

	"github.com/stintdev/stint/internal/heavy"
)

// Whatever another program writes in place of a part is refused, or is a part that is written
// and read again the same.
func FuzzDecode(f *testing.F) {
	var l lists
	f.Add(l.encode(1, partBytes))
	sum := heavy.New(3)
	for _, key := range []string{"login\x00192.0.2.1", "login\x01#abc", "api\x00x", "z"} {
		sum.Add([]byte(key), 7)
	}
	for of := range l {
		for by := range l[of] {
			l[of][by] = sum.Top(1 + of)
		}
	}
	f.Add(l.encode(3, partBytes))
	f.Add(l.encode(3, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := decode(b, func(of Dimension, by Weight) bool { return of == Keys && by == Use }); err != nil {
			if _, _, err := decode(b, everything); err == nil {
				t.Error("some of it is refused, and all is not")
			}
			return
		}
		l, n, err := decode(b, everything)
		if err != nil {
			return
		}
		again := l.encode(n, 1<<30)
		second, m, err := decode(again, everything)
		if err != nil || m != n || !bytes.Equal(second.encode(m, 1<<30), again) {
			t.Errorf("%x became %x, %v", b, again, err)
		}
		for of := range l {
			for by := range l[of] {
				for _, c := range l[of][by].Counts {
					_, _ = KeyOf(c.Key)
					_, _ = ClientOf(c.Key)
				}
			}
		}
	})
}
