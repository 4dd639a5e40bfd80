package envoy_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/envoy/envoymodel"
	"github.com/stintdev/stint/server/rules"
)

// composed is the service as "stint envoy" composes it, by these variables and files.
// remembers: an instance repeats refusals without Redis.
func composed(t *testing.T, variables []string, files []rules.File, remembers bool) rls.RateLimitServiceClient {
	t.Helper()
	settings, unused, err := fromEnvironment(variables)
	if err != nil || len(unused) > 0 {
		t.Fatal(unused, err)
	}
	set, err := rules.ParseFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	of := config.Default()
	if !remembers {
		of.RememberedDenials = 0
	}
	of.DecisionTimeout = 10 * time.Second // no call is decided without Redis
	of.Store, of.Namespace = settings.Store, settings.Namespace
	store, err := redislimit.Connect(t.Context(), of.Store, redislimit.Options{Namespace: of.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	decides := server.New(server.Config{Settings: of, Rules: set, Limiter: stint.NewLimiter(store), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(decides.Close)
	decides.Follow(t.Context())
	s, _ := start(t, envoy.Config{Settings: settings.Envoy, Decider: decides, Ready: decides.Ready})
	return rls.NewRateLimitServiceClient(dial(t, s))
}

// Random configurations and calls over a real Redis have the replies of the model, field by field: all
// or nothing, each descriptor by itself, and with QUOTA_MODE and SHADOW_MODE.
func TestServiceAgreesWithModel(t *testing.T) {
	configs, calls := 20, 150
	if testing.Short() {
		configs, calls = 6, 60
	}
	await.Hour(2 * time.Minute)
	redis := redistest.Start(t)
	for i, test := range []struct {
		model     envoymodel.Service
		remembers bool
	}{
		{model: envoymodel.Service{}},
		{model: envoymodel.Service{}, remembers: true},
		{model: envoymodel.Service{Quota: true}},
		{model: envoymodel.Service{Manner: envoymodel.Each}, remembers: true},
		{model: envoymodel.Service{Manner: envoymodel.Each, Shadow: true}, remembers: true},
		{model: envoymodel.Service{Manner: envoymodel.Each, Quota: true}, remembers: true},
	} {
		test.model.Headers, test.model.Metadata = true, true
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			compareWithModel(t, &test.model, test.remembers, redis.Addr, fmt.Sprint("differential", i, "."), configs, calls)
		})
	}
	// Each count ends, because it is written and given its end in one step.
	const ends = `local all, last = redis.call('KEYS', '*differential*') local n = 0
		for _, key in ipairs(all) do if redis.call('PTTL', key) ~= -1 then n = n + 1 else last = key end end return #all .. ' ' .. n .. ' ' .. (last or '')`
	counts, err := redis.Do(t, "EVAL", ends, "0").ToString()
	if err != nil {
		t.Fatal(err)
	}
	all, rest, _ := strings.Cut(counts, " ")
	ending, other, _ := strings.Cut(rest, " ")
	if all == "0" || all != ending {
		t.Errorf("of %s keys, %s expire, and %q does not", all, ending, other)
	}
}

func compareWithModel(t *testing.T, model *envoymodel.Service, remembers bool, redis, prefix string, configs, calls int) {
	r := rand.New(rand.NewPCG(uint64(len(prefix)), 7))
	o := &envoymodel.Options{Patterns: envoymodel.AnyPatterns, Metadata: true, GiveBack: true, Multiplier: true}
	var files []rules.File
	for i := range configs {
		c := envoymodel.Random(r, "d"+strconv.Itoa(i), o)
		model.Configs = append(model.Configs, c)
		files = append(files, rules.File{Name: c.Domain + ".yaml", Data: []byte(c.YAML()), Envoy: true})
	}
	client := composed(t, []string{
		"REDIS_URL=" + redis, "REDIS_SOCKET_TYPE=tcp", "CACHE_KEY_PREFIX=" + prefix, "LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true",
		fmt.Sprint("STINT_ENVOY_EACH=", model.Manner == envoymodel.Each), fmt.Sprint("QUOTA_MODE=", model.Quota), fmt.Sprint("SHADOW_MODE=", model.Shadow),
	}, files, remembers)
	refused, limited := 0, 0
	for _, c := range model.Configs {
		for range calls {
			call := envoymodel.RandomCall(r, c.Domain, o)
			before := time.Now()
			want := model.Answer(call, before)
			got, err := client.ShouldRateLimit(t.Context(), call)
			if err != nil {
				t.Fatalf("%v\n%s", err, callText(call))
			}
			early := int64(0)
			if remembers {
				early = 1 // a refusal is repeated with its wait from when its answer came, not from when it was made
			}
			envoymodel.SameTimes(got, want, time.Now().Unix()-before.Unix(), early)
			evenSpaces(got.DynamicMetadata)
			if remembers && model.Manner == envoymodel.Together && want.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
				// It may be repeated, and then the other statuses are those of the first time.
				got, want = &rls.RateLimitResponse{OverallCode: got.OverallCode}, &rls.RateLimitResponse{OverallCode: want.OverallCode}
			}
			if !proto.Equal(got, want) {
				t.Fatalf("%sof %s\n%s", differenceOf(t, got, want, call), callText(call), c.YAML())
			}
			if got.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
				refused++
			}
			for _, one := range got.Statuses {
				if one.CurrentLimit != nil {
					limited++
				}
			}
		}
	}
	t.Logf("%d calls, %d refused, %d descriptors with a limit", configs*calls, refused, limited)
	least := configs * calls / 20
	if model.Quota { // a single descriptor that is not over lets a call pass
		least /= 4
	}
	if limited < configs*calls/4 || refused < least && !model.Shadow {
		t.Errorf("%d calls had %d limits, and %d were refused: the test shows little", configs*calls, limited, refused)
	}
}

// differenceOf shows what of got is not that of want.
func differenceOf(t *testing.T, got, want *rls.RateLimitResponse, call *rls.RateLimitRequest) string {
	got, want = proto.CloneOf(got), proto.CloneOf(want)
	var b strings.Builder
	if len(got.Statuses) == len(want.Statuses) {
		for i, one := range got.Statuses {
			if !proto.Equal(one, want.Statuses[i]) {
				fmt.Fprintf(&b, "%s\n got  %s\n want %s\n", descriptorText(call.GetDescriptors()[i]), shown(t, one), shown(t, want.Statuses[i]))
			}
		}
		got.Statuses, want.Statuses = nil, nil
	}
	if !proto.Equal(got, want) {
		fmt.Fprintf(&b, "got  %s\nwant %s\n", shown(t, got), shown(t, want))
	}
	return b.String()
}

// evenSpaces makes one space of those in the texts of limits, which change from build to build.
func evenSpaces(s *structpb.Struct) {
	for _, d := range s.GetFields()["descriptors"].GetListValue().GetValues() {
		if fields := d.GetStructValue().GetFields(); fields["limit"] != nil {
			fields["limit"] = structpb.NewStringValue(strings.Join(strings.Fields(fields["limit"].GetStringValue()), " "))
		}
	}
}

// callText is r in the form of calls.txt.
func callText(r *rls.RateLimitRequest) string {
	var all []string
	for _, d := range r.GetDescriptors() {
		all = append(all, descriptorText(d))
	}
	return fmt.Sprintf("%s %s ;; hits:%d", r.GetDomain(), strings.Join(all, "; "), r.GetHitsAddend())
}

func descriptorText(d *ratelimit.RateLimitDescriptor) string {
	var words []string
	for _, e := range d.GetEntries() {
		words = append(words, e.GetKey()+"="+e.GetValue())
	}
	if d.GetHitsAddend() != nil {
		words = append(words, fmt.Sprint("hits:", d.GetHitsAddend().GetValue()))
	}
	if l := d.GetLimit(); l != nil {
		words = append(words, fmt.Sprintf("limit:%d/%s*%d", l.GetRequestsPerUnit(), l.GetUnit(), l.GetUnitMultiplier().GetValue()))
	}
	if d.GetIsNegativeHits() {
		words = append(words, "negative")
	}
	return strings.Join(words, " ")
}
