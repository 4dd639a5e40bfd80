package envoy_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authz "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// serverOf returns a Server with rules, which may be changed before it is used.
func serverOf(t *testing.T, text string, change ...func(*server.Config)) *server.Server {
	t.Helper()
	set, err := rules.ParseFiles([]rules.File{{Name: "rules.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	c := server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&c)
	}
	s := server.New(c)
	t.Cleanup(s.Close)
	return s
}

// asked is a client's request as a proxy asks about it.
type asked struct {
	method, target, host, source string
	headers                      map[string]string
}

func (a asked) attributes() *authz.AttributeContext {
	headers := maps.Clone(a.headers)
	if headers == nil {
		headers = map[string]string{}
	}
	headers[":method"], headers[":path"], headers[":authority"], headers[":scheme"] = a.method, a.target, a.host, "https"
	return &authz.AttributeContext{
		Source: &authz.AttributeContext_Peer{Address: socketAddress(a.source)},
		Request: &authz.AttributeContext_Request{Http: &authz.AttributeContext_HttpRequest{
			Method: a.method, Path: a.target, Host: a.host, Headers: headers, Protocol: "HTTP/2", Scheme: "https",
		}},
	}
}

func socketAddress(address string) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: address, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 4711},
	}}}
}

// fromProxy is the context of a call from the proxy at 192.0.2.1, with metadata.
func fromProxy(pairs ...string) context.Context {
	ctx := peer.NewContext(context.Background(), &peer.Peer{
		Addr:      &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234},
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081},
	})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...))
}

// byHTTP asks /v1/authorize, as Envoy does if prefixed, else as Caddy does.
func (a asked) byHTTP(h http.Handler, prefixed bool) *http.Response {
	r := httptest.NewRequest(a.method, "/v1/authorize", nil)
	r.Host = "localhost"
	for name, value := range a.headers {
		r.Header.Set(name, value)
	}
	if prefixed {
		r.RequestURI, r.Host = "/v1/authorize"+a.target, a.host
		if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
			r.URL = u
		}
	} else {
		r.Header.Set("X-Forwarded-Method", a.method)
		r.Header.Set("X-Forwarded-Uri", a.target)
		r.Header.Set("X-Forwarded-Host", a.host)
	}
	chain := a.source
	if before := r.Header.Get("X-Forwarded-For"); before != "" {
		chain = before + ", " + chain
	}
	r.Header.Set("X-Forwarded-For", chain)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// verdict is what a client sees of an answer: the status, the headers and the body.
func verdict(status int, header http.Header, body string) string {
	lines := []string{fmt.Sprint(status)}
	for name, values := range header {
		if name != "Content-Length" && !(status == http.StatusOK && name == "Cache-Control") {
			lines = append(lines, name+": "+strings.Join(values, "|"))
		}
	}
	slices.Sort(lines[1:])
	return strings.Join(append(lines, body), "\n")
}

func verdictOf(t *testing.T, r *authz.CheckResponse) string {
	t.Helper()
	options, status, body := r.GetOkResponse().GetResponseHeadersToAdd(), http.StatusOK, ""
	if d := r.GetDeniedResponse(); d != nil {
		options, status, body = d.GetHeaders(), int(d.GetStatus().GetCode()), d.GetBody()
	}
	if (codes.Code(r.GetStatus().GetCode()) == codes.OK) != (status == http.StatusOK) || r.GetHttpResponse() == nil {
		t.Errorf("the status is %v beside %d", r.GetStatus(), status)
	}
	header := http.Header{}
	for _, o := range options {
		if o.GetHeader().GetKey() != strings.ToLower(o.GetHeader().GetKey()) {
			t.Errorf("header %q", o.GetHeader().GetKey())
		}
		header.Add(o.GetHeader().GetKey(), o.GetHeader().GetValue())
	}
	return verdict(status, header, body)
}

const authorizationRules = `
trusted_proxies: [192.0.2.0/24]
safelist: ['request.path == "/free"']
blocklist: ['request.headers["x-bad"] == "1"']
rules:
  - {name: client, key: client.ip, limits: [9 per 1m fixed_window, 30 per 1h], penalty: {warn_after: 3, ban_after: 5, ban_for: 10s}}
  - {name: user, match: '"x-user" in request.headers', key: 'request.headers["x-user"]', limits: [4 per 10s], message: slow down}
  - {name: method, match: 'request.method == "POST"', key: '[request.host, request.path]', limits: [5 per 1m sliding_log]}
  - {name: query, match: 'request.query.q == "1"', key: request.path, cost: '"x-cost" in request.headers ? int(request.headers["x-cost"]) : 1', limits: [6 per 1m]}
`

// Whatever a proxy asks about, and by whichever protocol, the answer is one: the status, all
// headers and the body.
func TestAuthorizationAsHTTP(t *testing.T) {
	t.Run("problem details", func(t *testing.T) { authorizationAsHTTP(t, authorizationRules, 429) })
	t.Run("formats", func(t *testing.T) { authorizationAsHTTP(t, authorizationRules+authorizationFormats, 420) })
}

const authorizationFormats = `
errors: {headers: {X-Error: "{outcome}"}, bodies: {application/json: '{"code": "{outcome}", "message": "{message}"}'}}
refusal:
  status: 420
  headers: {X-Error: "{limit_name}"}
  bodies:
    application/json: {text: '{"wait": {retry_after_seconds}, "message": "{message}", "violations": {violations}}', status: 200}
    text/html: '<p title="{limit}">{message}</p>'
`

func authorizationAsHTTP(t *testing.T, text string, refused int) {
	synctest.Test(t, func(t *testing.T) {
		caddy, prefix := serverOf(t, text, open).Check(), serverOf(t, text, open).Check()
		grpc := envoy.NewAuthorization(serverOf(t, text, open))
		random := rand.New(rand.NewPCG(1, 2))
		pick := func(all ...string) string { return all[random.IntN(len(all))] }
		seen := map[int]int{}
		for i := range 5000 {
			a := asked{
				method:  pick("GET", "POST", "PUT", "HEAD"),
				target:  pick("/", "/free", "/a%20b?q=1", "/a b", "//a/../b?q=1", "/%zz", "/a;b?q=2&q=1", "/x?deny_status=403"),
				host:    pick("shop.example", "Shop.Example:443", "a..b", "[2001:db8::1]:80", "bad host"),
				source:  pick("198.51.100.1", "198.51.100.2", "192.0.2.9", "2001:db8::7", "::ffff:198.51.100.1"),
				headers: map[string]string{},
			}
			for name, value := range map[string]string{
				"x-user": pick("ann", "bob", ""), "x-bad": pick("0", "0", "0", "1"), "x-cost": pick("1", "2", "7", "-1", "x"),
				"x-forwarded-for":   pick("203.0.113.5", "203.0.113.5, 192.0.2.8", "garbage", "_hidden, 203.0.113.6"),
				"accept":            pick("text/html,*/*;q=0.8", "application/json", "application/problem+json"),
				"x-forwarded-proto": "https", "x_user": "twin", "connection": "x-user", "x-real-ip": "203.0.113.99",
			} {
				if random.IntN(3) == 0 {
					a.headers[name] = value
				}
			}
			want := a.byHTTP(caddy, false)
			body, _ := io.ReadAll(want.Body)
			r, err := grpc.Check(fromProxy(), &authz.CheckRequest{Attributes: a.attributes()})
			if err != nil {
				t.Fatal(err)
			}
			seen[want.StatusCode]++
			text := sameDecision(sameNames(verdict(want.StatusCode, want.Header, string(body))))
			if got := sameDecision(sameNames(verdictOf(t, r))); got != text && a.method != http.MethodHead {
				t.Fatalf("%d: %+v\n got %s\nwant %s", i, a, got, text)
			}
			if a.method == http.MethodHead && verdictStatus(r) != want.StatusCode {
				t.Fatalf("%d: %+v: got %d, want %d", i, a, verdictStatus(r), want.StatusCode)
			}
			p := a.byHTTP(prefix, true)
			body, _ = io.ReadAll(p.Body)
			if got := sameDecision(sameNames(verdict(p.StatusCode, p.Header, string(body)))); got != text {
				t.Fatalf("%d: %+v, with the target after the path\n got %s\nwant %s", i, a, got, text)
			}
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		}
		for _, status := range []int{200, 400, 403, refused} {
			if seen[status] < 100 {
				t.Errorf("only %d answers of %d", seen[status], status)
			}
		}
	})
}

func open(c *server.Config) { c.Settings.Check.Open = true }

func verdictStatus(r *authz.CheckResponse) int {
	if d := r.GetDeniedResponse(); d != nil {
		return int(d.GetStatus().GetCode())
	}
	return http.StatusOK
}

// sameDecision is text without the ID of the decision, which is random.
func sameDecision(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "Stint-Decision: ") {
			lines[i] = "Stint-Decision: …"
		}
	}
	return strings.Join(lines, "\n")
}

// sameNames is text with one name for what is sent in different places.
func sameNames(text string) string {
	for _, name := range []string{"X-Forwarded-Uri", "what follows /v1/authorize"} {
		text = strings.ReplaceAll(text, name, "the path")
	}
	return text
}

// dialAuthorization serves a by gRPC and returns a client.
func dialAuthorization(t *testing.T, a *envoy.Authorization) authz.AuthorizationClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	a.Register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("a_cluster"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return authz.NewAuthorizationClient(conn)
}

const trustingLoopback = `
trusted_proxies: [127.0.0.1]
blocklist: ['"x-bad" in request.headers']
rules:
  - {name: client, match: '!("tier" in attrs)', key: client.ip, limits: [2 per 1h sliding_log], message: "Slow down, é%"}
  - {name: tier, match: '"tier" in attrs', key: attrs.tier, limits: [1 per 1h]}
`

// A real client of gRPC gets the headers for its own client, the problem, and metadata for the
// access log.
func TestAuthorization(t *testing.T) {
	client := dialAuthorization(t, envoy.NewAuthorization(serverOf(t, trustingLoopback)))
	check := func(a *authz.AttributeContext) *authz.CheckResponse {
		t.Helper()
		r, err := client.Check(t.Context(), &authz.CheckRequest{Attributes: a})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a := asked{method: "GET", target: "/a?b=c", host: "shop.example", source: "198.51.100.7"}
	ok := check(a.attributes())
	first := ok.GetOkResponse().GetResponseHeadersToAdd()
	if len(ok.GetOkResponse().GetHeaders()) != 0 || len(first) == 0 || first[0].GetAppendAction() != core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
		t.Errorf("ok: %v", ok)
	}
	if got := verdictOf(t, ok); !strings.Contains(got, "\nX-Ratelimit-Remaining: 1\n") || strings.Contains(got, "Cache-Control") {
		t.Errorf("ok: %s", got)
	}
	m := ok.GetDynamicMetadata().AsMap()
	if m["rule"] != "client" || m["outcome"] != "allowed" || m["remaining"] != 1.0 || m["limit"] != "2 per 1h sliding_log" {
		t.Errorf("metadata %v", m)
	}
	check(a.attributes())
	denied := check(a.attributes())
	got := verdictOf(t, denied)
	if codes.Code(denied.GetStatus().GetCode()) != codes.ResourceExhausted || !strings.HasPrefix(got, "429\n") ||
		!strings.Contains(got, "\nRetry-After: 3600\n") || !strings.Contains(got, `"detail":"Slow down, é%"`) || !strings.Contains(got, "Content-Type: application/problem+json") {
		t.Errorf("denied: %s", got)
	}
	m = denied.GetDynamicMetadata().AsMap()
	if m["outcome"] != "limited" || m["retry_after"] != 3600.0 || len(fmt.Sprint(m["decision"])) != 16 || !strings.Contains(got, "Stint-Decision: "+fmt.Sprint(m["decision"])) {
		t.Errorf("metadata %v", m)
	}

	// The same client, of gRPC.
	a.headers = map[string]string{"content-type": "application/grpc+proto"}
	denied = check(a.attributes())
	if got := verdictOf(t, denied); !strings.Contains(got, "\nGrpc-Status: 8\n") || !strings.Contains(got, "\nGrpc-Retry-Pushback-Ms: 3600000\n") ||
		!strings.Contains(got, "\nGrpc-Message: Slow down, %C3%A9%25\n") || !strings.HasSuffix(got, "\n") || denied.GetDeniedResponse().GetStatus().GetCode() != 429 {
		t.Errorf("denied by gRPC: %s", got)
	}

	a.headers = map[string]string{"x-bad": "1"}
	denied = check(a.attributes())
	if codes.Code(denied.GetStatus().GetCode()) != codes.PermissionDenied || denied.GetDynamicMetadata().AsMap()["list"] != "blocklist" {
		t.Errorf("blocked: %v", denied)
	}

	// Extensions of the route's context, and headers as they were sent.
	a.headers = nil
	for i, want := range []int{200, 429} {
		with := a.attributes()
		with.ContextExtensions = map[string]string{"tier": "free"}
		if got := verdictStatus(check(with)); got != want {
			t.Errorf("%d: by extensions: %d, want %d", i, got, want)
		}
	}
	raw := a.attributes()
	raw.Request.Http.Headers = nil
	raw.Request.Http.HeaderMap = &core.HeaderMap{Headers: []*core.HeaderValue{{Key: ":path", RawValue: []byte("/")}, {Key: "x-bad", RawValue: []byte("1")}}}
	if got := verdictStatus(check(raw)); got != 403 {
		t.Errorf("raw headers: %d", got)
	}
	if _, err := client.Check(t.Context(), &authz.CheckRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no request: %v", err)
	}
	large := a.attributes()
	large.Request.Http.Headers["x-large"] = strings.Repeat("x", 64<<10)
	if got := verdictOf(t, check(large)); !strings.HasPrefix(got, "400\n") || !strings.Contains(got, "its headers are larger than 64 KiB") {
		t.Errorf("large headers: %.300s", got)
	}
	none := a.attributes()
	none.Source = nil
	if got := verdictOf(t, check(none)); !strings.HasPrefix(got, "400\n") || !strings.Contains(got, "the proxy must send the client's address") {
		t.Errorf("no source: %s", got)
	}
	for _, address := range []string{"", "localhost", "192.0.2.1:80", "192.0.2", "x"} {
		odd := a.attributes()
		odd.Source.Address.GetSocketAddress().Address = address
		if got := verdictOf(t, check(odd)); !strings.HasPrefix(got, "400\n") || !strings.Contains(got, "the proxy must send the client's address") {
			t.Errorf("source %q: %s", address, got)
		}
	}
}

// What protects /v1/authorize protects this, too.
func TestAuthorizationCallers(t *testing.T) {
	request := &authz.CheckRequest{Attributes: asked{method: "GET", target: "/", host: "shop.example", source: "198.51.100.7"}.attributes()}
	from := func(ip string, pairs ...string) context.Context {
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}, LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 8081}})
		return metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...))
	}
	unix := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.UnixAddr{Net: "unix"}, LocalAddr: &net.UnixAddr{Name: "/run/stint.sock", Net: "unix"}})
	t.Setenv("ENVOY_TOKEN", strings.Repeat("t", 40))
	withToken := func(c *server.Config) {
		c.Settings.Check.Tokens = []config.Token{{Name: "envoy", Env: "ENVOY_TOKEN"}}
	}
	for _, c := range []struct {
		what   string
		change func(*server.Config)
		ctx    context.Context
		want   string // of the error; empty: none
	}{
		{"a proxy on this machine", func(*server.Config) {}, from("127.0.0.1"), ""},
		{"a proxy on this machine, and no check API", func(c *server.Config) { c.Settings.CheckListen = config.Off }, from("127.0.0.1"), ""},
		{"a proxy elsewhere, and no check API", func(c *server.Config) { c.Settings.CheckListen = config.Off }, from("192.0.2.1"), "only callers on the same machine"},
		{"a proxy elsewhere", func(*server.Config) {}, from("192.0.2.1"), "only callers on the same machine"},
		{"nobody knows from where", func(*server.Config) {}, context.Background(), "only callers on the same machine"},
		{"a proxy elsewhere, open", open, from("192.0.2.1"), ""},
		{"one that is not trusted", open, from("203.0.113.1"), "This proxy is not trusted"},
		{"by a unix socket", open, unix, "This proxy is not trusted"},
		{"no token", withToken, from("192.0.2.1"), "A token is required, as Stint-Token."},
		{"a wrong token", withToken, from("192.0.2.1", "stint-token", "x"), "This token is unknown."},
		{"two tokens", withToken, from("192.0.2.1", "stint-token", strings.Repeat("t", 40), "stint-token", strings.Repeat("t", 40)), "This token is unknown."},
		{"the token", withToken, from("192.0.2.1", "stint-token", strings.Repeat("t", 40)), ""},
	} {
		s := serverOf(t, "trusted_proxies: [192.0.2.0/24, 127.0.0.1]\nrules: [{name: client, key: client.ip, limits: [1 per 1h]}]", c.change)
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		a := envoy.NewAuthorization(s)
		for i, want := range []int{200, 429} {
			r, err := a.Check(c.ctx, request)
			if c.want == "" && (err != nil || verdictStatus(r) != want) {
				t.Errorf("%s: call %d: %v, %v", c.what, i, r, err)
			}
			if c.want != "" && (status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), c.want)) {
				t.Errorf("%s: %v, %v", c.what, r, err)
			}
		}
	}
}

// A rule that denies if the store is away refuses by itself: failure_mode_allow does not let the
// request pass.
func TestAuthorizationUndecided(t *testing.T) {
	faulty := &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Err: io.ErrUnexpectedEOF} }}
	away := func(c *server.Config) { open(c); c.Limiter = stint.NewLimiter(faulty) }
	for onError, want := range map[string]string{"deny": "503", "allow": "200"} {
		s := serverOf(t, "trusted_proxies: [192.0.2.0/24]\nrules: [{name: client, key: client.ip, limits: [1 per 1h], on_store_error: "+onError+"}]", away)
		r, err := envoy.NewAuthorization(s).Check(fromProxy(), &authz.CheckRequest{Attributes: asked{method: "GET", target: "/", host: "a", source: "198.51.100.7"}.attributes()})
		if err != nil {
			t.Fatal(err)
		}
		if got := verdictOf(t, r); !strings.HasPrefix(got, want+"\n") || want == "503" && (!strings.Contains(got, "Retry-After: 1") || codes.Code(r.GetStatus().GetCode()) != codes.Unavailable) {
			t.Errorf("%s: %s", onError, got)
		}
	}
}

// Whatever a caller sends is decided or refused.
func FuzzAuthorization(f *testing.F) {
	add := func(a *authz.AttributeContext) {
		data, err := proto.Marshal(&authz.CheckRequest{Attributes: a})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	a := asked{method: "POST", target: "/a%20b?q=1", host: "shop.example", source: "198.51.100.7", headers: map[string]string{"content-type": "application/grpc", "x-user": "ann"}}.attributes()
	add(a)
	a.ContextExtensions = map[string]string{"tier": "free"}
	a.Request.Http.HeaderMap = &core.HeaderMap{Headers: []*core.HeaderValue{{Key: "x-user", RawValue: []byte{0xff}}, {Key: "bad name"}}}
	a.Source = &authz.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "/a"}}}}
	add(a)
	add(&authz.AttributeContext{Request: &authz.AttributeContext_Request{Http: &authz.AttributeContext_HttpRequest{}}})
	set, err := rules.ParseFiles([]rules.File{{Name: "rules.yaml", Data: []byte(authorizationRules)}})
	if err != nil {
		f.Fatal(err)
	}
	c := server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)}
	open(&c)
	s := server.New(c)
	f.Cleanup(s.Close)
	service := envoy.NewAuthorization(s)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(authz.CheckRequest)
		if proto.Unmarshal(data, r) != nil {
			return
		}
		got, err := service.Check(fromProxy(), r)
		if err != nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Error(err)
			}
			return
		}
		if _, err := proto.Marshal(got); err != nil {
			t.Errorf("the answer cannot be sent: %v", err)
		}
		denied := got.GetDeniedResponse()
		if (denied != nil) == (got.GetStatus().GetCode() == 0) || denied != nil && denied.GetStatus().GetCode() < 400 {
			t.Errorf("%v", got)
		}
	})
}
