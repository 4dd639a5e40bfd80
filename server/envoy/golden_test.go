package envoy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// TestGolden makes the calls of testdata/calls.txt with a client of gRPC, to a server of its rules. A
// part begins with a file of Envoy's form. There may be a rules file after a line "%% rules". Then
// lines begin with ">":
//
//	> settings: headers, metadata, shadow, quota, each
//	> wait 10s
//	> admin POST /v1/bans {"network":"192.0.2.1"}
//	> json DOMAIN ..., the same by /json
//	> DOMAIN key=value key=value; key=value hits:0 limit:10/MINUTE*15 negative ;; hits:2
//
// Words of a descriptor that have a colon are its other fields. After ";;" they are the call's. The
// clock stands still but for waiting, and begins at 2000-01-01 00:00:00 UTC.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/calls.txt", func(t *testing.T, given string) (out string) {
		synctest.Test(t, func(t *testing.T) { out = replay(t, given) })
		return out
	})
}

func replay(t *testing.T, given string) string {
	var file, out strings.Builder
	var lines []string
	settings := &config.Envoy{HeaderNames: config.EnvoyHeaders{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}}
	for line := range strings.Lines(given) {
		rest, isCall := strings.CutPrefix(strings.TrimSpace(line), "> ")
		names, isSettings := strings.CutPrefix(rest, "settings: ")
		switch {
		case !isCall:
			file.WriteString(line)
		case !isSettings:
			lines = append(lines, rest)
		default:
			for name := range strings.SplitSeq(names, ", ") {
				*map[string]*bool{
					"headers": &settings.ResponseHeaders, "metadata": &settings.DynamicMetadata,
					"shadow": &settings.Shadow, "quota": &settings.QuotaMode, "each": &settings.Each,
				}[name] = true
			}
		}
	}
	descriptors, beside, _ := strings.Cut(file.String(), "%% rules\n")
	set, err := rules.ParseFiles([]rules.File{{Name: "shop.yaml", Data: []byte(descriptors), Envoy: true}, {Name: "rules.yaml", Data: []byte(beside)}}[:1+min(1, len(beside))])
	if err != nil {
		return err.Error()
	}
	decides := server.New(server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)})
	defer decides.Close()
	service := envoy.NewService(decides, settings, nil)
	client, stop := connect(t, service)
	defer stop()
	for _, line := range lines {
		fmt.Fprintln(&out, ">", line)
		if wait, ok := strings.CutPrefix(line, "wait "); ok {
			d, err := time.ParseDuration(wait)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
			continue
		}
		if change, ok := strings.CutPrefix(line, "admin "); ok {
			administer(t, decides, change)
			continue
		}
		r := readCall(t, line)
		if strings.HasPrefix(line, "json ") {
			postJSON(t, &out, service, r)
			continue
		}
		answer, err := client.ShouldRateLimit(t.Context(), r)
		if err != nil {
			fmt.Fprintln(&out, status.Code(err), status.Convert(err).Message())
			continue
		}
		fmt.Fprintln(&out, shown(t, answer))
	}
	return out.String()
}

// administer makes a call of the admin API: a method, a path and a body.
func administer(t *testing.T, s *server.Server, line string) {
	parts := strings.SplitN(line, " ", 3)
	r := httptest.NewRequest(parts[0], "http://localhost"+parts[1], strings.NewReader(parts[2]))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if s.Admin().ServeHTTP(w, r); w.Code >= 300 {
		t.Fatalf("%s: %d %s", line, w.Code, w.Body)
	}
}

// connect serves a service in memory, where time stands still in a bubble.
func connect(t *testing.T, s *envoy.Service) (rls.RateLimitServiceClient, func()) {
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(g, s)
	go func() { _ = g.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	return rls.NewRateLimitServiceClient(conn), func() {
		conn.Close()
		g.Stop()
	}
}

// readCall reads a line of calls.txt.
func readCall(t testing.TB, line string) *rls.RateLimitRequest {
	line = strings.TrimPrefix(line, "json ")
	domain, rest, _ := strings.Cut(line, " ")
	r := &rls.RateLimitRequest{Domain: domain}
	rest, ofCall, _ := strings.Cut(rest, ";;")
	for word := range strings.FieldsSeq(ofCall) {
		r.HitsAddend = uint32(number(t, strings.TrimPrefix(word, "hits:")))
	}
	if strings.TrimSpace(rest) == "" {
		return r
	}
	for text := range strings.SplitSeq(rest, ";") {
		d := new(ratelimit.RateLimitDescriptor)
		for word := range strings.FieldsSeq(text) {
			name, value, isField := strings.Cut(word, ":")
			switch {
			case word == "negative":
				d.IsNegativeHits = true
			case isField && name == "hits":
				d.HitsAddend = wrapperspb.UInt64(number(t, value))
			case isField && name == "limit":
				amount, unit, _ := strings.Cut(value, "/")
				unit, times, multiplied := strings.Cut(unit, "*")
				d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(number(t, amount)), Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit]),
				}
				if multiplied {
					d.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(number(t, times)))
				}
			default:
				key, value, _ := strings.Cut(word, "=")
				d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func number(t testing.TB, text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func postJSON(t *testing.T, out *strings.Builder, s *envoy.Service, r *rls.RateLimitRequest) {
	body, err := protojson.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.ServeJSON(w, httptest.NewRequest("POST", "/json", bytes.NewReader(body)))
	text := strings.TrimSpace(w.Body.String())
	if w.Header().Get("Content-Type") == "application/json" {
		text = compact(t, []byte(text))
	}
	fmt.Fprintln(out, w.Code, text)
}

// shown is the JSON of m, whose library changes its spaces from build to build.
func shown(t *testing.T, m proto.Message) string {
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return compact(t, text)
}

func compact(t *testing.T, text []byte) string {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(b.String(), `,{"code"`, `,`+"\n    "+`{"code"`)
}
