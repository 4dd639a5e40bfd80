package envoy_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

const fuzzFile = `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: minute, requests_per_unit: 2, name: base}}
  - {key: k, value: a*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: token_bucket}}
  - {key: zero, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: all, rate_limit: {unlimited: true}, metadata: {x: {y: 1}}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - key: deep
    descriptors:
      - {key: er, rate_limit: {unit: month, requests_per_unit: 5, replaces: [{name: base}]}}
`

func fuzzService(t testing.TB) *envoy.Service {
	set, err := rules.ParseFiles([]rules.File{{Name: "d.yaml", Data: []byte(fuzzFile), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	decides := server.New(server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(decides.Close)
	return envoy.NewService(decides, &config.Envoy{DynamicMetadata: true, ResponseHeaders: true}, nil)
}

// FuzzCall makes calls of any bytes that are a RateLimitRequest. Each has an answer in which all
// parts agree, or an error that says that it is malformed.
func FuzzCall(f *testing.F) {
	for _, line := range []string{
		"d k=1", "d k=a1 hits:0; k=2 ;; hits:7", "d zero=x; all=; quota=q; shadow=s", "d deep= er=; k=1",
		"d k=1 limit:3/MINUTE negative", "d k=1 limit:0/DAY hits:18446744073709551615; k=1 hits:18446744073709551615", "other k=1", "d",
	} {
		text, err := proto.Marshal(readCall(f, line))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	s := fuzzService(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		var r rls.RateLimitRequest
		if proto.Unmarshal(text, &r) != nil {
			return
		}
		out, err := s.ShouldRateLimit(t.Context(), &r)
		if err != nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		if _, err := proto.Marshal(out); err != nil {
			t.Fatal(err)
		}
		if len(out.Statuses) != len(r.Descriptors) {
			t.Fatalf("%d statuses of %d descriptors", len(out.Statuses), len(r.Descriptors))
		}
		over := false
		for _, one := range out.Statuses {
			switch {
			case one.Code != rls.RateLimitResponse_OK && one.Code != rls.RateLimitResponse_OVER_LIMIT:
				t.Fatalf("code %v", one.Code)
			case one.DurationUntilReset.GetSeconds() < 0 || one.DurationUntilReset.GetNanos() != 0:
				t.Fatalf("reset %v", one.DurationUntilReset)
			case one.CurrentLimit == nil && one.Code == rls.RateLimitResponse_OVER_LIMIT:
				t.Fatal("over no limit")
			}
			over = over || one.Code == rls.RateLimitResponse_OVER_LIMIT
		}
		if out.OverallCode == rls.RateLimitResponse_OVER_LIMIT && !over {
			t.Fatal("over a limit, but none of its statuses is")
		}
	})
}

// FuzzJSON posts anything to /json.
func FuzzJSON(f *testing.F) {
	f.Add(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"a"}],"hitsAddend":"3","limit":{"requestsPerUnit":1,"unit":"DAY"}}]}`)
	f.Add(`{"domain":"d","descriptors":[{}],"hits_addend":4294967295}`)
	f.Add(`[]`)
	s := fuzzService(f)
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		s.ServeJSON(w, httptest.NewRequest("POST", "/json", strings.NewReader(body)))
		isJSON := w.Header().Get("Content-Type") == "application/json"
		switch w.Code {
		case 200, 429:
			if !isJSON {
				t.Fatalf("%d with %s", w.Code, w.Header())
			}
		case 400:
			if isJSON {
				t.Fatal("an error as an answer")
			}
		default:
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}
