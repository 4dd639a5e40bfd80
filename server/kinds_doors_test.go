package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authz "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/internal/rulestest"
	"github.com/stintdev/stint/server/rules"
)

// doorsOfKinds are the ways into a server, and what it tells of those who came.
type doorsOfKinds struct {
	random         *rand.Rand
	violates       bool // responses may
	short          bool // lists are
	spans          *tracetest.InMemoryExporter
	log, access    logged
	gateway        http.Handler
	wrapped        http.Handler
	api            http.Handler
	authorizations *envoy.Authorization
	service        *envoy.Service
}

// open opens the doors of s.
func (d *doorsOfKinds) open(s *server.Server) {
	d.gateway, d.wrapped, d.api = s.Gateway(), s.Wrap(http.HandlerFunc(pass)), checkAPI(s)
	d.authorizations, d.service = envoy.NewAuthorization(s), envoy.NewService(s, new(config.Envoy), nil)
}

// unreadable is a check that cannot be read.
const unreadable = `{"t_us":1}`

// asBody is what a step says about a request.
type asBody struct {
	Client  string
	Attrs   map[string]any
	Request struct{ Method, Path string }
}

// visit makes the request of a step by a door that it fits.
func (d *doorsOfKinds) visit(h *kindHistory, step *rulestest.Step, i int) (door string, s *seen) {
	body := d.strange(step.Body)
	switch step.Do {
	case rulestest.Hold:
		s, w := d.asks("/v1/check", `{"hold":"30s",`+body[1:])
		var answer struct{ Hold string }
		h.read(w, &answer)
		h.held[step.Hold] = answer.Hold
		return "hold", s
	case rulestest.Charge:
		body = `{"charge":true,` + body[1:]
		if d.random.IntN(2) == 0 {
			return d.ends("charges", "/v1/check", "["+body+","+body+"]")
		}
		return d.ends("charge", "/v1/check", body)
	case rulestest.Settle:
		return d.settle(h.held[step.Hold], step.Cost)
	}
	if in, err := server.ReadInput([]byte(body)); err == nil && in.Descriptors != nil {
		switch door = d.one("check", "list", "service", "service", "quota"); door {
		case "service":
			return door, d.rateLimit(h, in.Descriptors, body)
		case "quota":
			in.Descriptors.Ahead, in.Descriptors.List = true, in.Descriptors.List[:1]
			return door, d.decides(h, in, body)
		}
	} else {
		door = d.one("check", "list", "gateway", "gateway", "preflight", "wrap", "wrap-grpc", "authorize", "ext_authz", "ext_authz", "decide")
	}
	switch door {
	case "check":
		if d.random.IntN(12) == 0 {
			body = unreadable
		}
		s, _ := d.asks("/v1/check", body)
		if body == unreadable {
			s.unread = 1
		}
		return door, s
	case "list":
		return door, d.list(h, body, i)
	case "decide":
		in, err := server.ReadInput([]byte(body))
		if err != nil {
			return "", new(seen)
		}
		return door, d.decides(h, in, body)
	}
	var of asBody
	if err := json.Unmarshal([]byte(body), &of); err != nil {
		h.Fatal(err, body)
	}
	return door, d.web(h, door, &of)
}

// one is one of all.
func (d *doorsOfKinds) one(all ...string) string { return all[d.random.IntN(len(all))] }

// settle settles or renews a hold, if it was made, or what is none.
func (d *doorsOfKinds) settle(hold string, cost int64) (string, *seen) {
	if hold == "" {
		return "", new(seen)
	}
	hold = d.one(hold, hold, hold, "wrong")
	settles, renews := fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, cost), fmt.Sprintf(`{"hold":%q}`, hold)
	switch door := d.one("settle", "settle", "settles", "renew", "renews"); door {
	case "settle":
		return d.ends(door, "/v1/settle", settles)
	case "settles":
		return d.ends(door, "/v1/settle", "["+settles+","+settles+"]")
	case "renew":
		return d.ends(door, "/v1/renew", renews)
	default:
		return d.ends(door, "/v1/renew", "["+renews+","+renews+"]")
	}
}

// strange makes some bodies those of listed users.
func (d *doorsOfKinds) strange(body string) string {
	switch d.random.IntN(12) {
	case 0:
		return strings.ReplaceAll(body, `"u1"`, `"blocked"`)
	case 1:
		return strings.ReplaceAll(body, `"u1"`, `"safe"`)
	case 2:
		return strings.Replace(body, `"entries":[`, `"entries":[{"key":"size","value":"x"},`, 1)
	}
	return body
}

// asks asks the check API.
func (d *doorsOfKinds) asks(path, body string) (*seen, *httptest.ResponseRecorder) {
	r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	d.api.ServeHTTP(w, r)
	s := &seen{asked: path + " " + body}
	s.answered(w.Code, w.Header(), w.Body.Bytes())
	return s, w
}

// ends charges, or ends holds.
func (d *doorsOfKinds) ends(door, path, body string) (string, *seen) {
	s, w := d.asks(path, body)
	if body[0] == '[' {
		s.readList(w)
	}
	return door, s
}

// list asks about several: the events of a span have room for all of them.
func (d *doorsOfKinds) list(h *kindHistory, body string, i int) *seen {
	all, most := []string{body}, 7
	if d.short {
		most = 2
	}
	for _, more := range h.scenario.Steps[i:] {
		if more.Do == rulestest.Check && len(all) < most && d.random.IntN(3) > 0 {
			all = append(all, d.strange(more.Body))
		}
	}
	n := 0
	if all = append(all, body); d.random.IntN(3) == 0 {
		all[len(all)-1], n = unreadable, 1
	}
	s, w := d.asks("/v1/check", "["+strings.Join(all, ",")+"]")
	s.readList(w)
	s.unread = n
	return s
}

// web sends an HTTP request through a handler, or asks about one as a proxy does.
func (d *doorsOfKinds) web(h *kindHistory, door string, of *asBody) *seen {
	method, target := of.Request.Method, of.Request.Path
	if method == "" {
		method = "GET"
	}
	target = d.one(target, target, target, target, target, target, "/blocked", "/safe")
	if target == "" {
		target = "/"
	}
	if d.violates && d.random.IntN(4) == 0 {
		target += "?status=401"
	}
	header := http.Header{}
	if d.random.IntN(10) == 0 {
		header.Set("X-Size", "x")
	}
	if door == "preflight" {
		method = "OPTIONS"
		header.Set("Origin", app)
		header.Set("Access-Control-Request-Method", "PUT")
	}
	s := &seen{asked: fmt.Sprintln(door, method, target, header, of.Client, of.Attrs)}
	client := net.JoinHostPort(of.Client, "1")
	w := httptest.NewRecorder()
	switch door {
	case "ext_authz":
		d.extAuthz(h, s, of, method, target, header)
		return s
	case "authorize":
		r := httptest.NewRequest("GET", "http://localhost/v1/authorize", nil)
		r.RemoteAddr, r.Header = "10.0.0.1:1", header
		header.Set("X-Original-Method", method)
		header.Set("X-Original-Uri", target)
		header.Set("X-Original-Host", "example.com")
		header.Set("X-Forwarded-For", of.Client)
		d.api.ServeHTTP(w, r)
	default:
		r := httptest.NewRequest(method, target, nil)
		r.RemoteAddr, r.Header = client, header
		to := d.gateway
		switch door {
		case "wrap-grpc":
			r.ProtoMajor, r.Proto = 2, "HTTP/2.0"
			r.Header.Set("Content-Type", "application/grpc")
			to = d.wrapped
		case "wrap":
			to = d.wrapped
		}
		to.ServeHTTP(final{w}, r)
	}
	s.answered(w.Code, w.Header(), w.Body.Bytes())
	if w.Header().Get("X-Passed") != "" {
		s.at["status"] = []string{"passed"}
	} else if code := w.Header().Get("Grpc-Status"); code != "" {
		s.at["status"] = []string{code}
	}
	return s
}

// extAuthz asks as Envoy does.
func (d *doorsOfKinds) extAuthz(h *kindHistory, s *seen, of *asBody, method, target string, header http.Header) {
	headers, extensions := map[string]string{}, map[string]string{}
	for name := range header {
		headers[strings.ToLower(name)] = header.Get(name)
	}
	for name, value := range of.Attrs {
		extensions[name] = fmt.Sprint(value)
	}
	ctx := peer.NewContext(h.Context(), &peer.Peer{
		Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081},
	})
	ctx, end := h.s.CallTracer()(ctx, authz.Authorization_Check_FullMethodName, http.Header{})
	defer end("OK")
	source := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: of.Client, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 1}}}}
	r, err := d.authorizations.Check(ctx, &authz.CheckRequest{Attributes: &authz.AttributeContext{
		Source: &authz.AttributeContext_Peer{Address: source},
		Request: &authz.AttributeContext_Request{Http: &authz.AttributeContext_HttpRequest{
			Method: method, Path: target, Host: "example.com", Headers: headers, Protocol: "HTTP/2", Scheme: "https",
		}},
		ContextExtensions: extensions,
	}})
	if err != nil {
		h.Fatal(err)
	}
	answer := http.Header{}
	for _, o := range slices.Concat(r.GetOkResponse().GetHeaders(), r.GetDeniedResponse().GetHeaders()) {
		answer.Set(o.GetHeader().GetKey(), o.GetHeader().GetValue())
	}
	code := 200
	if denied := r.GetDeniedResponse(); denied != nil {
		code = int(denied.GetStatus().GetCode())
	}
	s.answered(code, answer, []byte(r.GetDeniedResponse().GetBody()))
	fields := r.GetDynamicMetadata().GetFields()
	s.add("metadata", fields["outcome"].GetStringValue())
	s.bare = fields == nil && code == 200
	s.raw += rawMessage(r.GetDynamicMetadata())
}

// rateLimit calls Envoy's rate limit service.
func (d *doorsOfKinds) rateLimit(h *kindHistory, call *rules.Descriptors, body string) *seen {
	r := &rls.RateLimitRequest{Domain: call.Domain}
	for _, one := range call.List {
		to := &ratelimit.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(uint64(one.Cost)), IsNegativeHits: one.GiveBack}
		for _, e := range one.Entries {
			to.Entries = append(to.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		r.Descriptors = append(r.Descriptors, to)
	}
	ctx, end := h.s.CallTracer()(h.Context(), rls.RateLimitService_ShouldRateLimit_FullMethodName, http.Header{})
	defer end("OK")
	answer, err := d.service.ShouldRateLimit(ctx, r)
	s := &seen{asked: "service " + body, raw: fmt.Sprint(rawMessage(answer), err)}
	if err != nil {
		s.add("status", status.Code(err).String())
	} else {
		s.add("status", answer.GetOverallCode().String())
	}
	return s
}

// decides calls Server.Decide, as a program does, and as Envoy's quota service does.
func (d *doorsOfKinds) decides(h *kindHistory, in *rules.Input, body string) *seen {
	ctx, end := h.s.CallTracer()(h.Context(), "quota", http.Header{})
	defer end("OK")
	v, err := h.s.Decide(ctx, in, time.Time{})
	s := &seen{asked: "decide " + body, raw: say(&v, err) + "; " + sayEach(&v)}
	overloaded := new(httplimit.Overloaded)
	switch {
	case errors.As(err, &overloaded):
		s.add("status", "overloaded")
	case errors.Is(err, stint.ErrRequest):
		s.add("status", "malformed")
	case err != nil:
		s.add("status", "undecided")
	case v.Allowed:
		s.add("status", "passed")
	default:
		s.add("status", "refused")
	}
	if err == nil {
		s.add("answer", v.Outcome.String())
		if !v.Allowed && v.List != rules.Blocked {
			s.identify("answer", v.ID, v.Outcome.String())
		}
	}
	return s
}
