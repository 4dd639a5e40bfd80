//go:build !race

package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/stintdev/stint/server"
)

const tracedCheck = `{"client":"192.0.2.1","request":{"method":"GET","path":"/v1/users?page=7","host":"example.com","headers":{"user-agent":"curl"}}}`

// checking returns a function that makes one check of a server.
func checking(s *server.Server) func() {
	h := s.Check()
	return func() {
		r, _ := http.NewRequest("POST", "/v1/check", strings.NewReader(tracedCheck))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(nowhere{http.Header{}}, r)
	}
}

func tracedBy(sampler sdk.Sampler) func(*server.Config) {
	return func(c *server.Config) { c.TracerProvider = sdk.NewTracerProvider(sdk.WithSampler(sampler)) }
}

// Without traces a decision allocates what it did before there were any, and a handler is
// not wrapped. A request that is not sampled costs a span's context and no more.
func TestAllocationsWithoutTraces(t *testing.T) {
	s := newServer(t, benchRules)
	in := from("192.0.2.1")
	decide := testing.AllocsPerRun(500, func() {
		if _, err := s.Decide(t.Context(), in, time.Time{}); err != nil {
			t.Fatal(err)
		}
	})
	if decide > 3 { // as many as before there were traces
		t.Errorf("%v allocations for a decision", decide)
	}
	off := testing.AllocsPerRun(500, checking(s))
	unsampled := testing.AllocsPerRun(500, checking(newServer(t, benchRules, tracedBy(sdk.NeverSample()))))
	if unsampled > off+6 {
		t.Errorf("%v allocations for a check without traces, %v for one that is not sampled", off, unsampled)
	}
}

// BenchmarkTraces is a check without a connection: with no traces, with traces of which this
// is none, and with its spans.
func BenchmarkTraces(b *testing.B) {
	for _, of := range []struct {
		name string
		with func(*server.Config)
	}{
		{"off", func(*server.Config) {}},
		{"unsampled", tracedBy(sdk.NeverSample())},
		{"sampled", tracedBy(sdk.AlwaysSample())},
	} {
		b.Run(of.name, func(b *testing.B) {
			check := checking(newServer(b, benchRules, of.with))
			b.ReportAllocs()
			for b.Loop() {
				check()
			}
		})
	}
}
