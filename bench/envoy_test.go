package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server/envoy/envoymodel"
)

// twins are envoyproxy/ratelimit and "stint envoy" with STINT_ENVOY_EACH, with the same environment,
// files and Redis.
type twins struct{ theirs, ours rls.RateLimitServiceClient }

func startTwins(t *testing.T, files map[string]string, more ...string) *twins {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("STINT_REQUIRE_REDIS") != "" {
			t.Fatal("STINT_REQUIRE_REDIS is set, but there is no redis-server")
		}
		t.Skip("redis-server is not installed: scripts/get redis-server")
	}
	redis, err := startRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.stop)
	dir, err := os.MkdirTemp("", "stint-") // short, for the paths of sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "config", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	variables := append(os.Environ(),
		"RUNTIME_ROOT="+dir, "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=ERROR",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.addr, "STINT_ENVOY_EACH=true",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true",
		"HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
	)
	variables = append(variables, more...)
	serve := func(name string, which *command) rls.RateLimitServiceClient {
		c, err := which.build()
		if err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(dir, name+".sock")
		c.Env = append(slices.Clone(variables), "GRPC_UDS="+socket)
		var log strings.Builder
		c.Stdout, c.Stderr = &log, &log
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", name, log.String())
			}
		})
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return rls.NewRateLimitServiceClient(conn)
	}
	return &twins{
		theirs: serve("theirs", &peerCommand),
		ours:   serve("ours", &stintCommand),
	}
}

// ask makes a call to both. The times of our reply are those of theirs, if they are no more than the
// calls took apart.
func (w *twins) ask(t *testing.T, call *rls.RateLimitRequest) (theirs, ours *rls.RateLimitResponse) {
	t.Helper()
	before := time.Now()
	theirs, err := w.theirs.ShouldRateLimit(t.Context(), call, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("envoyproxy/ratelimit: %v", err)
	}
	ours, err = w.ours.ShouldRateLimit(t.Context(), call, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("Stint: %v", err)
	}
	envoymodel.SameTimes(ours, theirs, time.Now().Unix()-before.Unix(), 1) // 1: a remembered refusal counts from when its answer came
	return theirs, ours
}

// Random configurations and calls have the same replies from Stint and envoyproxy/ratelimit, field by
// field, but for the differences that this test names. docs/envoy-reference.md has them, and those of
// TestEnvoyDifferences, which these calls avoid: patterns end with an asterisk, no two descriptors of
// a call have one count, and descriptors with limits of their own have entries of their own.
func TestEnvoyAgrees(t *testing.T) {
	configs, calls := 30, 200
	if testing.Short() {
		configs, calls = 10, 50
	}
	r := rand.New(rand.NewPCG(16, 1))
	o := &envoymodel.Options{Patterns: envoymodel.TrailingPatterns, OwnLimits: true}
	files := map[string]string{}
	var all []*envoymodel.Config
	for i := range configs {
		c := envoymodel.Random(r, fmt.Sprint("d", i), o)
		all, files[c.Domain+".yaml"] = append(all, c), c.YAML()
	}
	both := startTwins(t, files)
	await.Hour(3 * time.Minute)
	m := &models{
		theirs: envoymodel.Service{Configs: all, Manner: envoymodel.Theirs},
		ours:   envoymodel.Service{Configs: all, Manner: envoymodel.Each, Headers: true},
	}
	compared, refused := 0, 0
	for _, c := range all {
		for range calls {
			call := envoymodel.RandomCall(r, c.Domain, o)
			m.dropSame(call)
			theirs, ours := both.ask(t, call)
			m.excuse(call, theirs, ours)
			if !proto.Equal(theirs, ours) {
				t.Fatalf("theirs %v\nours   %v\nof %v\n%s", theirs, ours, call, c.YAML())
			}
			if ours.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
				refused++
			}
			for _, one := range ours.Statuses {
				if one.CurrentLimit != nil {
					compared++
				}
			}
		}
	}
	t.Logf("%d calls, %d refused, %d descriptors with a limit; %d peeks at full limits", configs*calls, refused, compared, m.peeks)
	if compared < configs*calls/4 || refused < configs*calls/20 {
		t.Errorf("%d calls had %d limits, and %d were refused: the test shows little", configs*calls, compared, refused)
	}
}

// With STINT_ENVOY_KEYS, both count together, whichever of them decides a call.
func TestEnvoyCountsTogether(t *testing.T) {
	configs, calls := 20, 200
	if testing.Short() {
		configs, calls = 5, 60
	}
	r := rand.New(rand.NewPCG(16, 2))
	o := &envoymodel.Options{Patterns: envoymodel.TrailingPatterns, OwnLimits: true}
	files := map[string]string{}
	m := &models{}
	for i := range configs {
		c := envoymodel.Random(r, fmt.Sprint("d", i), o)
		m.ours.Configs, files[c.Domain+".yaml"] = append(m.ours.Configs, c), c.YAML()
	}
	both := startTwins(t, files, "STINT_ENVOY_KEYS=true", "CACHE_KEY_PREFIX=both:")
	await.Hour(3 * time.Minute)
	compared := 0
	for _, c := range m.ours.Configs {
		for range calls {
			call := envoymodel.RandomCall(r, c.Domain, o)
			m.dropSame(call)
			name, client := "ours", both.ours
			if m.ours.Manner = envoymodel.Each; r.IntN(2) == 0 {
				name, client, m.ours.Manner = "theirs", both.theirs, envoymodel.Theirs
			}
			got, err := client.ShouldRateLimit(t.Context(), call, grpc.WaitForReady(true))
			if err != nil {
				t.Fatal(err)
			}
			want, quotas := m.ours.Answer(call, time.Now()), m.ours.Quotas(call)
			for i, one := range want.Statuses {
				// Of quotas, this version of theirs has another code.
				same := got.Statuses[i].Code == one.Code || quotas[i] && name == "theirs"
				if one.CurrentLimit != nil && one.CurrentLimit.RequestsPerUnit == 0 {
					same = true // whether a peek at what allows nothing is over has no meaning
				}
				if !same || got.Statuses[i].LimitRemaining != one.LimitRemaining {
					t.Fatalf("%s: %v, want %v, of %v\n%s", name, got.Statuses[i], one, call, c.YAML())
				}
				if one.CurrentLimit != nil {
					compared++
				}
			}
		}
	}
	t.Logf("%d calls, %d descriptors with a limit", configs*calls, compared)
}

// models know how both services count, where replies do not show it.
type models struct {
	theirs, ours envoymodel.Service
	peeks        int
}

// dropSame drops descriptors with the count of another of the call.
func (m *models) dropSame(call *rls.RateLimitRequest) {
	counts := m.ours.Counts(call)
	var kept []*ratelimit.RateLimitDescriptor
	for i, d := range call.Descriptors {
		if counts[i] == "" || !slices.Contains(counts[:i], counts[i]) {
			kept = append(kept, d)
		}
	}
	call.Descriptors = kept
}

// excuse makes the documented differences of the replies to call equal:
//
//   - A descriptor with hits_addend 0 is refused by Stint when the limit is used up, unless that is 0,
//     and by theirs if there was a refusal since, which Stint does not count.
//   - This version of theirs never refuses by quota_mode, and shows its refusals as OK without a time.
//     Later ones refuse if all quotas are over.
//   - This version of theirs has the quotas in the metadata.
func (m *models) excuse(call *rls.RateLimitRequest, theirs, ours *rls.RateLimitResponse) {
	m.theirs.Answer(call, time.Now())
	model := m.ours.Answer(call, time.Now())
	counts, quotas := m.ours.Counts(call), m.ours.Quotas(call)
	for i, one := range theirs.Statuses {
		d, our := call.Descriptors[i], ours.Statuses[i]
		if quotas[i] {
			theirs.OverallCode = model.OverallCode
			if one.DurationUntilReset == nil {
				one.Code, one.DurationUntilReset = rls.RateLimitResponse_OVER_LIMIT, our.DurationUntilReset
			}
		}
		full := uint64(m.ours.Taken(counts[i])) == uint64(one.GetCurrentLimit().GetRequestsPerUnit())
		if d.HitsAddend != nil && d.HitsAddend.Value == 0 && full && one.Code != our.Code {
			m.peeks++
			one.Code, theirs.OverallCode = our.Code, model.OverallCode
			theirs.ResponseHeadersToAdd = append(model.ResponseHeadersToAdd[:2:2], ours.ResponseHeadersToAdd[2:]...) // the last is a time
		}
	}
	for _, s := range []*structpb.Struct{theirs.DynamicMetadata, ours.DynamicMetadata} {
		delete(s.Fields, "quotaModeEnabled")
		delete(s.Fields, "quotaModeViolations")
		for _, d := range s.Fields["descriptors"].GetListValue().GetValues() {
			if fields := d.GetStructValue().Fields; fields["limit"] != nil { // its spaces change from build to build
				fields["limit"] = structpb.NewStringValue(strings.Join(strings.Fields(fields["limit"].GetStringValue()), " "))
			}
		}
	}
}

// differences is a file with which both services answer differently.
const differences = `
domain: shop
descriptors:
  - {key: one, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: two, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: five, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: user_agent, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: user, value: agent*, rate_limit: {unit: day, requests_per_unit: 3}}
  - key: k
    descriptors:
      - {key: l, rate_limit: {unit: day, requests_per_unit: 5}}
`

// Each difference of docs/envoy-reference.md that replies show is there. A status is its code and what remains.
func TestEnvoyDifferences(t *testing.T) {
	both := startTwins(t, map[string]string{"shop.yaml": differences})
	await.Hour(time.Minute)
	limit := func(amount uint32, multiplier uint32) func(*ratelimit.RateLimitDescriptor) {
		return func(d *ratelimit.RateLimitDescriptor) {
			d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: amount, Unit: typev3.RateLimitUnit_DAY}
			if multiplier > 0 {
				d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
			}
		}
	}
	peek := func(d *ratelimit.RateLimitDescriptor) { d.HitsAddend = wrapperspb.UInt64(0) }
	negative := func(d *ratelimit.RateLimitDescriptor) { d.IsNegativeHits = true }
	for _, step := range []struct {
		about        string
		descriptors  []*ratelimit.RateLimitDescriptor
		theirs, ours string
	}{
		{"two descriptors with one count: one after the other", pair("two=a", "two=a"), "OK 1, OK 0", "OK 0, OK 0"},
		{"and if they do not fit", pair("one=a", "one=a"), "OK 0, OVER_LIMIT 0", "OVER_LIMIT 1, OVER_LIMIT 1"},
		{"hits_addend 0 asks for a unit that is left", one("one=b"), "OK 0", "OK 0"},
		{"", one("one=b", peek), "OK 0", "OVER_LIMIT 0"},
		{"", one("one=b"), "OVER_LIMIT 0", "OVER_LIMIT 0"},
		{"", one("one=b", peek), "OVER_LIMIT 0", "OVER_LIMIT 0"},
		{"is_negative_hits", one("five=a"), "OK 4", "OK 4"},
		{"", one("five=a", negative), "OK 3", "OK 5"},
		{"entries are joined: key and value find the key of both", one("user=agent"), "OK 4", "OK 2"},
		{"", one("user=agent_x"), "OK 2", "OK 2"},
		{"entries are joined in counts", one("k=a l=b_l_c"), "OK 4", "OK 4"},
		{"", one("k=a_l_b l=c"), "OK 3", "OK 4"},
		{"a limit of a caller and one of the file share a count", one("five=c"), "OK 4", "OK 4"},
		{"", one("five=c", limit(5, 0)), "OK 3", "OK 4"},
		{"unit_multiplier", one("many=a", limit(5, 1)), "OK 4", "OK 4"},
		{"", one("many=a", limit(5, 30)), "OK 3", "OK 4"},
	} {
		theirs, ours := both.ask(t, &rls.RateLimitRequest{Domain: "shop", Descriptors: step.descriptors})
		if got := statusesText(theirs); got != step.theirs {
			t.Errorf("%s: theirs: %s, not %s", step.about, got, step.theirs)
		}
		if got := statusesText(ours); got != step.ours {
			t.Errorf("%s: ours: %s, not %s", step.about, got, step.ours)
		}
	}
	// The last, because it ends their process.
	unknown := &rls.RateLimitRequest{Domain: "shop", Descriptors: one("five=d", limit(5, 0))}
	unknown.Descriptors[0].Limit.Unit = typev3.RateLimitUnit_UNKNOWN
	if _, err := both.ours.ShouldRateLimit(t.Context(), unknown); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a limit without a unit: ours: %v", err)
	}
	if _, err := both.theirs.ShouldRateLimit(t.Context(), unknown); status.Code(err) != codes.Unavailable {
		t.Errorf("a limit without a unit: theirs: %v", err)
	}
}

// one is a descriptor of entries such as "k=a l=b".
func one(entries string, more ...func(*ratelimit.RateLimitDescriptor)) []*ratelimit.RateLimitDescriptor {
	d := new(ratelimit.RateLimitDescriptor)
	for pair := range strings.FieldsSeq(entries) {
		key, value, _ := strings.Cut(pair, "=")
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	for _, change := range more {
		change(d)
	}
	return []*ratelimit.RateLimitDescriptor{d}
}

func pair(a, b string) []*ratelimit.RateLimitDescriptor { return slices.Concat(one(a), one(b)) }

func statusesText(r *rls.RateLimitResponse) string {
	var all []string
	for _, s := range r.Statuses {
		all = append(all, fmt.Sprint(s.Code, " ", s.LimitRemaining))
	}
	return strings.Join(all, ", ")
}
