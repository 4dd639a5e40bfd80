package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint/rules"
)

// While rules are swapped a hundred times, every request is answered, by the rules
// of before or by those of after, and what was counted stays counted.
func TestReloadUnderLoad(t *testing.T) {
	text := func(amount int) string {
		return fmt.Sprintf("rules: [{name: a, key: client.ip, limits: [%d per 24h sliding_log]}]", amount)
	}
	s := newServer(t, text(1_000_000))
	h := s.Check()
	const callers, each = 4, 500
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/check", strings.NewReader(`{"client":"192.0.2.1"}`)))
				if w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
	for i := range 100 {
		set, err := rules.Parse("rules.yaml", []byte(text(1_000_001+i)))
		if err != nil {
			t.Fatal(err)
		}
		s.SetRules(set)
	}
	wg.Wait()
	if w := check(s, `{"client":"192.0.2.1","cost":0}`); !strings.Contains(w.Body.String(), fmt.Sprintf(`"remaining":%d,`, 1_000_100-callers*each)) {
		t.Errorf("after %d requests: %s", callers*each, w.Body)
	}
}
