package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/container"
	"github.com/stintdev/stint/internal/redistest"
)

const (
	password = "the password of Redis"
	token    = "0123456789abcdef0123456789abcdef"
	someone  = "X-Forwarded-For: 198.51.100.7" // said by a pod, which the values trust
)

// patient is a setting of each pod here: none decides without Redis because the machine is busy.
const patient = "extraEnv[0].name=STINT_SERVER_DECISION_TIMEOUT,extraEnv[0].value=10s"

// startRedis starts a Redis with the user that docs/redis.md has, and fails at the end if this user has tried
// what it may not do.
func startRedis(t *testing.T) *redistest.Server {
	t.Helper()
	container.Need(t)
	redis := redistest.Start(t)
	page, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(page), "\nredis-cli ACL SETUSER stint ")
	command, _, ok := strings.Cut(command, "```")
	words := strings.Fields(strings.NewReplacer("\\\n", " ", "'", "").Replace(command))
	if !ok || len(words) < 10 {
		t.Fatal("docs/redis.md does not say what Redis must allow")
	}
	for i, word := range words {
		words[i] = strings.Replace(word, ">PASSWORD", ">"+password, 1)
	}
	redis.Do(t, append([]string{"ACL", "SETUSER", "stint"}, words...)...)
	t.Cleanup(func() {
		if log, err := redis.Try("ACL", "LOG"); err != nil { // the test has stopped it
		} else if refused, _ := log.ToArray(); len(refused) > 0 {
			newest, _ := refused[0].AsStrMap()
			t.Errorf("Redis refused %d times, the last %s: %s", len(refused), newest["reason"], newest["object"])
		}
	})
	return redis
}

// shop is an application that answers all requests.
func shop(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "shop: %s", r.URL.Path) }))
	t.Cleanup(s.Close)
	return s
}

// authority is the host and the port of a URL.
func authority(of string) string { return strings.TrimPrefix(of, "http://") }

// withRedis is what the values of a use need before they are installed.
func withRedis(t *testing.T, redis *redistest.Server, use string, set ...string) before {
	t.Helper()
	return before{
		values: []string{use}, set: append([]string{patient}, set...),
		secrets: map[string]string{"stint-redis/password": password, "stint-check/ingress": token, "stint-admin/deploy": token},
		outside: map[string]string{"redis:6379": redis.Addr, "shop:80": authority(shop(t).URL)},
	}
}

// turns calls f with one pod after another, a number of times, and then until f returns true.
func (n *namespace) turns(t *testing.T, times int, f func(p *pod, i int) (refused bool)) {
	t.Helper()
	i := 0
	next := func() bool { i++; return f(n.pods[i%len(n.pods)], i) }
	for range times {
		if next() {
			t.Fatalf("number %d is refused", i)
		}
	}
	for range n.pods { // each refuses
		await.Until(t, "a request is refused", next)
	}
}

func TestPodGateway(t *testing.T) {
	t.Parallel()
	n := install(t, withRedis(t, startRedis(t), "gateway"))
	n.turns(t, 10, func(p *pod, i int) bool {
		got := p.ask(t, "http", "POST", "/login", "", someone)
		if got != (answer{200, "shop: /login"}) && got.code != 429 {
			t.Fatalf("login %d: %v\n%s", i, got, p.Log())
		}
		return got.code == 429
	})
	if got := n.pods[0].ask(t, "http", "POST", "/login", "", "X-Forwarded-For: 198.51.100.8"); got.code != 200 {
		t.Errorf("another client: %v", got)
	}
}

// The other ways to say where Redis is, and with which password.
func TestPodRedisSecrets(t *testing.T) {
	t.Parallel()
	for name, set := range map[string][]string{
		"made by the chart": {"redis.secret.name=", "redis.secret.files=null", "redis.password=" + password},
		"the whole URL":     {"redis.url=", "redis.secret.files=null", "redis.secret.url=url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := startRedis(t)
			b := withRedis(t, redis, "gateway", append(set, "replicas=1")...)
			b.secrets["stint-redis/url"] = "redis://stint:" + url.PathEscape(password) + "@redis:6379"
			p := install(t, b).pods[0]
			p.says(t, p.main().ReadinessProbe, 200, "ready\n")
			if clients, _ := redis.Do(t, "CLIENT", "LIST").ToString(); !strings.Contains(clients, " user=stint ") {
				t.Errorf("it is not connected as its user:\n%s", clients)
			}
		})
	}
}

// The default of the chart: counts are in the memory of one replica.
func TestPodMemory(t *testing.T) {
	t.Parallel()
	n := install(t, before{set: []string{"gateway.upstream=http://shop:80"}, outside: map[string]string{"shop:80": authority(shop(t).URL)}})
	if len(n.pods) != 1 {
		t.Errorf("%d pods", len(n.pods))
	}
	n.turns(t, 100, func(p *pod, i int) bool {
		got := p.ask(t, "http", "GET", "/", "")
		if got.code != 200 && got.code != 429 {
			t.Fatalf("request %d: %v", i, got)
		}
		return got.code == 429
	})
}

func TestPodCheck(t *testing.T) {
	t.Parallel()
	n := install(t, withRedis(t, startRedis(t), "check"))
	p := n.pods[0]
	const check = `{"client": "198.51.100.7"}`
	if got := p.ask(t, "http-check", "POST", "/v1/check", check, "Content-Type: application/json"); got.code != 401 {
		t.Errorf("without the token: %v", got)
	}
	original := []string{"X-Forwarded-Method: GET", "X-Forwarded-Uri: /", "X-Forwarded-Host: shop.example", someone}
	if got := p.ask(t, "http-check", "GET", "/v1/authorize", "", original...); got.code != 403 && got.code != 401 {
		t.Errorf("/v1/authorize without the token: %v", got)
	}
	original = append(original, "Stint-Token: "+token)
	n.turns(t, 100, func(p *pod, i int) bool {
		if i%3 == 0 {
			got := p.ask(t, "http-check", "GET", "/v1/authorize", "", original...)
			if got.code != 200 && got.code != 429 {
				t.Fatalf("/v1/authorize, %d: %v", i, got)
			}
			return got.code == 429
		}
		got := p.ask(t, "http-check", "POST", "/v1/check", check, "Content-Type: application/json", "Authorization: Bearer "+token)
		var said struct{ Allowed bool }
		if err := json.Unmarshal([]byte(got.body), &said); err != nil || got.code != 200 && got.code != 429 {
			t.Fatalf("/v1/check, %d: %v", i, got)
		}
		return !said.Allowed
	})
}

// envoy is a client of the pod's service for Envoy.
func (p *pod) envoy(t *testing.T) rls.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+p.address(t, "grpc-envoy"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) { return p.container.Dial(ctx, "tcp", at) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rls.NewRateLimitServiceClient(conn)
}

// shouldRateLimit asks about entries, each key=value, and returns the code and the units of the limit, if any.
func shouldRateLimit(t *testing.T, c rls.RateLimitServiceClient, entries ...string) (code rls.RateLimitResponse_Code, limit uint32) {
	t.Helper()
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	r, err := c.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{d}})
	if err != nil {
		t.Fatal(err)
	}
	return r.OverallCode, r.Statuses[0].CurrentLimit.GetRequestsPerUnit()
}

func TestPodEnvoy(t *testing.T) {
	t.Parallel()
	n := install(t, withRedis(t, startRedis(t), "envoy"))
	clients := map[*pod]rls.RateLimitServiceClient{}
	for _, p := range n.pods {
		clients[p] = p.envoy(t)
	}
	n.turns(t, 10, func(p *pod, _ int) bool {
		code, limit := shouldRateLimit(t, clients[p], "path=/login", "remote_address=198.51.100.7")
		if limit != 10 {
			t.Fatalf("it is limited by %d", limit)
		}
		return code == rls.RateLimitResponse_OVER_LIMIT
	})
	if code, limit := shouldRateLimit(t, clients[n.pods[0]], "remote_address=198.51.100.7"); code != rls.RateLimitResponse_OK || limit != 100 {
		t.Errorf("another descriptor: %s, %d", code, limit)
	}
}

// The Job pushes the rules to one of the instances, and both have them.
func TestPodFleet(t *testing.T) {
	t.Parallel()
	n := install(t, withRedis(t, startRedis(t), "fleet"))
	rules := func(p *pod) (in struct {
		Number int64
		Rules  []struct{ Limits []string }
	}) {
		got := p.ask(t, "http-admin", "GET", "/v1/rules", "", "Authorization: Bearer "+token)
		if err := json.Unmarshal([]byte(got.body), &in); err != nil || got.code != 200 {
			t.Fatalf("%v: %v", err, got)
		}
		return in
	}
	for _, p := range n.pods {
		if in := rules(p); in.Number != 0 || len(in.Rules) != 1 || len(in.Rules[0].Limits) != 1 {
			t.Errorf("%s begins with %v", p.name, in)
		}
	}
	if code, out := n.runJob(t, "stint-push"); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	for _, p := range n.pods {
		await.Until(t, p.name+" has the rules", func() bool { return rules(p).Number == 1 })
		if in := rules(p); len(in.Rules) != 1 || len(in.Rules[0].Limits) != 2 {
			t.Errorf("%s has %v", p.name, in)
		}
	}
	// An upgrade that changes no rule.
	if code, out := n.runJob(t, "stint-push"); code != 0 || !strings.Contains(out, "already") {
		t.Errorf("again: exit %d: %s", code, out)
	}
	if in := rules(n.pods[0]); in.Number != 1 {
		t.Errorf("after the second push: %v", in)
	}
}
