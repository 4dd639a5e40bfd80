package stats_test

import (
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/stintdev/stint/server/envoy/stats"
)

// The statistics are the observer of an envoy.Service, and of an envoy.Server.
func Example() {
	counted, err := stats.New(stats.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	counted.Called("ShouldRateLimit", time.Millisecond) // as envoy.NewService(decider, settings, counted) does

	w := httptest.NewRecorder()
	counted.Page().ServeHTTP(w, httptest.NewRequest("GET", "/stats?filter=total_requests", nil))
	fmt.Print(w.Body)
	// Output: ratelimit_server.ShouldRateLimit.total_requests: 1
}
