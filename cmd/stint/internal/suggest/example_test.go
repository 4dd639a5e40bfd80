package suggest_test

import (
	"fmt"
	"time"

	"github.com/stintdev/stint/cmd/stint/internal/suggest"
)

func Example() {
	s := suggest.New(suggest.Options{Untouched: 0.99})
	at := time.Date(2026, 9, 28, 0, 0, 0, 0, time.UTC)
	for i := range 100_000 { // for a week, 500 keys make two requests at once, one after the other
		at = at.Add(6 * time.Second)
		key := fmt.Sprint("key ", i%500)
		s.Observe(key, at.UnixMicro(), 2)
		if i%10 == 0 {
			s.Observe("crawler", at.UnixMicro(), 2)
		}
	}
	found, err := s.Suggest()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(found.Texts())
	fmt.Println(found.Why)
	for _, key := range found.Apart {
		fmt.Println(key.Key+":", key.Why())
	}
	// Output:
	// [3 per 10m 5 per 1h]
	// 99% of 500 keys never used more than 2 in any 10m, or 4 in any 1h, and the limit has a margin of 20%, rounded up; set apart: 1 key with 9.1% of the units.
	// crawler: 2,880 in 24h, 50 times the mean of the others
}
