package envoy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authz "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/stintdev/stint/server"
)

// Authorization answers Envoy's external authorization, envoy.service.auth.v3: whether an HTTP
// request may pass by the rules of a server. Callers, bounds and answers are those of
// /v1/authorize. It may be used from many goroutines at once.
//
// The client is the source in the attributes or, if that is one of trusted_proxies, the address that it
// reports. Rules see the request's own headers, and the context extensions of the route as attrs. They do not
// see the body.
//
// A request that passes is answered with the headers about limits, which Envoy adds to the
// response, and a refused one with the status, headers and body of the gateway, or for gRPC with a
// gRPC status. A rule that denies while the store is down refuses with 503; Envoy's failure_mode_allow is
// only about failed calls. A caller that may not ask gets PERMISSION_DENIED.
type Authorization struct {
	authz.UnimplementedAuthorizationServer
	decide func(http.ResponseWriter, *server.Asked) error
}

// NewAuthorization returns an Authorization that decides by s.
func NewAuthorization(s *server.Server) *Authorization {
	return &Authorization{decide: s.Authorizer()}
}

// Check decides about a request. A refusal is an answer; an error is PERMISSION_DENIED if the caller may
// not ask, and INVALID_ARGUMENT if r has no HTTP request.
func (a *Authorization) Check(ctx context.Context, r *authz.CheckRequest) (*authz.CheckResponse, error) {
	if r.GetAttributes().GetRequest().GetHttp() == nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, "the attributes have no HTTP request: connections are not limited, so use the HTTP filter")
	}
	asked := server.Asked{Call: callOf(ctx), Original: originalOf(r.GetAttributes()), Attrs: attrsOf(r.GetAttributes())}
	answer := answer{header: http.Header{}}
	if err := a.decide(&answer, &asked); err != nil {
		return nil, grpcstatus.Error(codes.PermissionDenied, err.Error())
	}
	if asked.Passes {
		return &authz.CheckResponse{
			Status:          &status.Status{},
			HttpResponse:    &authz.CheckResponse_OkResponse{OkResponse: &authz.OkHttpResponse{ResponseHeadersToAdd: answer.options()}},
			DynamicMetadata: decisionMetadata(&asked.Verdict),
		}, nil
	}
	httpStatus, code := answer.refusal()
	return &authz.CheckResponse{
		Status: &status.Status{Code: int32(code)},
		HttpResponse: &authz.CheckResponse_DeniedResponse{DeniedResponse: &authz.DeniedHttpResponse{
			Status:  &envoytype.HttpStatus{Code: envoytype.StatusCode(httpStatus)},
			Headers: answer.options(),
			Body:    string(answer.body),
		}},
		DynamicMetadata: decisionMetadata(&asked.Verdict),
	}, nil
}

// unknownAddress is a RemoteAddr that is not an IP address, such as a unix socket's.
const unknownAddress = "@"

// callOf describes the call to server.Asked.
func callOf(ctx context.Context) *http.Request {
	call := &http.Request{
		Method: http.MethodPost, RequestURI: authz.Authorization_Check_FullMethodName, Proto: "HTTP/2.0",
		Header: http.Header{}, RemoteAddr: unknownAddress,
	}
	var local net.Addr = &net.UnixAddr{} // it may be reachable from other machines
	if p, ok := peer.FromContext(ctx); ok {
		if _, ok := p.Addr.(*net.TCPAddr); ok {
			call.RemoteAddr = p.Addr.String()
		}
		if p.LocalAddr != nil {
			local = p.LocalAddr
		}
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			call.TLS = &tls.ConnectionState{}
			*call.TLS = t.State
		}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, name := range [...]string{"Stint-Token", "Traceparent", "Tracestate"} {
		if values := md.Get(name); len(values) > 0 {
			call.Header[name] = values
		}
	}
	return call.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, local))
}

// originalOf returns the client's request that attributes describe.
func originalOf(a *authz.AttributeContext) *http.Request {
	r := a.GetRequest().GetHttp()
	o := &http.Request{Method: r.GetMethod(), RequestURI: r.GetPath(), Host: r.GetHost(), Header: make(http.Header, len(r.GetHeaders()))}
	for name, value := range r.GetHeaders() {
		addHeader(o.Header, name, value)
	}
	for _, h := range r.GetHeaderMap().GetHeaders() {
		value := h.GetValue()
		if raw := h.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		addHeader(o.Header, h.GetKey(), value)
	}
	switch source := a.GetSource().GetAddress(); {
	case source.GetSocketAddress() != nil:
		s := source.GetSocketAddress()
		if _, err := netip.ParseAddr(s.GetAddress()); err == nil { // else there is none
			o.RemoteAddr = net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
		}
	case source != nil:
		o.RemoteAddr = unknownAddress
	}
	return o
}

// addHeader adds a header of the original request, unless it is a pseudo-header of HTTP/2.
func addHeader(h http.Header, name, value string) {
	if !strings.HasPrefix(name, ":") {
		h.Add(name, value)
	}
}

func attrsOf(a *authz.AttributeContext) map[string]any {
	extensions := a.GetContextExtensions()
	if len(extensions) == 0 {
		return nil
	}
	attrs := make(map[string]any, len(extensions))
	for name, value := range extensions {
		attrs[name] = value
	}
	return attrs
}

// answer records a response.
type answer struct {
	header http.Header
	status int
	body   []byte
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	return len(b), nil
}

// refusal returns the status of an answer in HTTP and in gRPC. If the client speaks gRPC, the gRPC status is
// in the headers, and Envoy does not send the HTTP status.
func (a *answer) refusal() (int, codes.Code) {
	if text := a.header.Get("Grpc-Status"); text != "" {
		code, _ := strconv.Atoi(text)
		for _, r := range refusals {
			if r.code == codes.Code(code) {
				return r.status, r.code
			}
		}
		return http.StatusInternalServerError, codes.Unknown
	}
	for _, r := range refusals {
		if r.status == a.status {
			return r.status, r.code
		}
	}
	return a.status, codes.Unknown
}

var refusals = [...]struct {
	status int
	code   codes.Code
}{
	{http.StatusTooManyRequests, codes.ResourceExhausted},
	{http.StatusForbidden, codes.PermissionDenied},
	{http.StatusBadRequest, codes.InvalidArgument},
	{http.StatusServiceUnavailable, codes.Unavailable},
}

// options returns the headers of an answer, in order. They replace the upstream's of the same
// names. Envoy counts the body itself.
func (a *answer) options() []*core.HeaderValueOption {
	names := make([]string, 0, len(a.header))
	for name := range a.header {
		if name != "Content-Length" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	options := make([]*core.HeaderValueOption, 0, len(names))
	for _, name := range names {
		action := core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		for _, value := range a.header[name] {
			options = append(options, &core.HeaderValueOption{
				Header:       &core.HeaderValue{Key: strings.ToLower(name), Value: value},
				AppendAction: action,
			})
			action = core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
	}
	return options
}

// Register adds a to the services of a gRPC server.
func (a *Authorization) Register(s *grpc.Server) { authz.RegisterAuthorizationServer(s, a) }
