package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/stintdev/stint/internal/redistest"
)

const envoyExamples = "../../examples/envoy/"

// awayFromMidnight waits until no window of a day ends soon.
func awayFromMidnight() {
	if left := 86400 - time.Now().Unix()%86400; left < 60 {
		time.Sleep(time.Duration(left+1) * time.Second)
	}
}

// TestEnvoyExample is examples/envoy/envoy.yaml and its file of descriptors, with Envoy's filter
// replayed. The windows are days, so that no window ends while a slow machine asks.
func TestEnvoyExample(t *testing.T) {
	text, err := os.ReadFile(envoyExamples + "ratelimit/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	awayFromMidnight()
	redis := redistest.Start(t)
	variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": strings.NewReplacer("unit: second", "unit: day", "unit: minute", "unit: day").Replace(string(text))})
	s := asEnvoy(t, append(variables, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr)...)
	f := filterOf(t, envoyExamples+"envoy.yaml", s.client)
	get := func(path, key, client string) string {
		r := &webRequest{path: path, client: client, headers: map[string]string{}}
		if key != "" {
			r.headers["x-api-key"] = key
		}
		out := f.serve(t, r)
		delete(out.headers, "x-ratelimit-reset") // see TestEnvoyHeadersOfAlgorithms
		return out.String()
	}
	const policy, refused = "limit:3, 100;w=86400, 3;w=86400", "429 x-envoy-ratelimited:true "
	for i, want := range []string{ // each with another query
		"200 " + policy + " remaining:2", "200 " + policy + " remaining:1", "200 " + policy + " remaining:0", refused + policy + " remaining:0",
	} {
		if got := get(fmt.Sprint("/search?q=", i), "ann", "192.0.2.1"); got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
	// What was refused cost the address nothing.
	if got := get("/", "", "192.0.2.1"); got != "200 limit:100, 100;w=86400 remaining:96" {
		t.Errorf("without a key: %s", got)
	}
	if got := get("/health", "ann", "192.0.2.2"); got != "200 limit:100, 100;w=86400 remaining:99" {
		t.Errorf("/health: %s", got)
	}
	for range 9 {
		get("/search", "ann", "192.0.2.3")
	}
	// The tenth refusal banned the key, so the limit of the address is not asked.
	if got := get("/search", "ann", "192.0.2.4"); got != refused+"limit:3, 3;w=86400 remaining:0" {
		t.Errorf("banned: %s", got)
	}
	if got := get("/search", "bob", "192.0.2.4"); got != "200 "+policy+" remaining:2" {
		t.Errorf("another key: %s", got)
	}
	s.stop()
	if got := get("/search", "ann", "192.0.2.1"); got != "200" { // failure_mode_deny: false
		t.Errorf("without Stint: %s", got)
	}
	f.filter.FailureModeDeny = true
	if got := get("/search", "ann", "192.0.2.1"); got != "500" {
		t.Errorf("without Stint and with failure_mode_deny: %s", got)
	}
}

// TestEnvoyHeadersOfAlgorithms has what clients of Envoy see of each algorithm: never more left than
// the limit says, one less with each request, and after a refusal a wait.
func TestEnvoyHeadersOfAlgorithms(t *testing.T) {
	awayFromMidnight()
	redis := redistest.Start(t)
	all := []struct {
		algorithm string
		burst     int // 0: none is given
		reset     int // the greatest, in seconds, when one is left to wait for
	}{
		{algorithm: "fixed_window", reset: 86400},
		{algorithm: "sliding_window", reset: 2 * 86400},
		{algorithm: "sliding_log", reset: 86400},
		{algorithm: "token_bucket", reset: 86400 / 6},
		{algorithm: "leaky_bucket", reset: 86400 / 6},
		{algorithm: "token_bucket", burst: 9, reset: 86400 / 6},
		{algorithm: "leaky_bucket", burst: 2, reset: 86400 / 6},
	}
	file := "domain: shop\ndescriptors:\n"
	for i, one := range all {
		burst := ""
		if one.burst > 0 {
			burst = fmt.Sprint(", burst: ", one.burst)
		}
		file += fmt.Sprintf("  - {key: by, value: %q, rate_limit: {name: n%d, unit: day, requests_per_unit: 6, algorithm: %s%s}}\n", fmt.Sprint(i), i, one.algorithm, burst)
	}
	variables, _ := runtimeDirectory(t, map[string]string{"shop.yaml": file})
	s := asEnvoy(t, append(variables, "REDIS_URL="+redis.Addr)...)
	f := filterOf(t, envoyExamples+"envoy.yaml", s.client)
	for i, one := range all {
		t.Run(fmt.Sprint(one.algorithm, one.burst), func(t *testing.T) {
			fits := 6
			if one.burst > 0 {
				fits = one.burst
			}
			for n := 1; n <= fits+2; n++ {
				r := f.ask(t, []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "by", Value: fmt.Sprint(i)}}}})
				var limit, remaining, reset int
				_, _ = fmt.Sscan(r.headers["x-ratelimit-remaining"], &remaining)
				_, _ = fmt.Sscan(r.headers["x-ratelimit-reset"], &reset)
				if _, err := fmt.Sscanf(r.headers["x-ratelimit-limit"], fmt.Sprintf(`%%d, 6;w=86400;name="n%d"`, i), &limit); err != nil {
					t.Errorf("request %d: %s: %v", n, r, err)
				}
				if want := min(6, max(0, fits-n)); r.status == 200 != (n <= fits) || remaining != want || remaining > limit {
					t.Errorf("request %d: %s; want %d left", n, r, want)
				}
				if remaining == 0 && (reset < 1 || reset > one.reset) {
					t.Errorf("request %d: %s; want a wait of up to %d s", n, r, one.reset)
				}
			}
		})
	}
}
