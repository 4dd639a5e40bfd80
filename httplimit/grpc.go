package httplimit

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// GRPC wraps next so that gRPC clients understand refusals. For gRPC requests over
// HTTP/2, Problem, Overloaded.Refuse and every Middleware within next answer with a gRPC status and no
// message: RESOURCE_EXHAUSTED for 429, UNAVAILABLE for 502, 503 and 504, PERMISSION_DENIED for 403,
// UNAUTHENTICATED for 401, INVALID_ARGUMENT for 400, UNIMPLEMENTED for 404, DEADLINE_EXCEEDED for 408, and
// UNKNOWN for others. The problem's detail is the message. The time to retry is in the details, as
// google.rpc.RetryInfo, and in grpc-retry-pushback-ms, which clients with automatic retries obey; for a
// 429 without such a time, it tells them not to retry. The limit that refused is in the details, too, as
// google.rpc.QuotaFailure, unless the Middleware has NoHeaders.
//
// The HTTP status of such an answer is 200. Do not wrap a handler whose HTTP status a
// proxy reads to decide whether a request may pass.
func GRPC(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && isGRPC(r.Header.Get("Content-Type")) {
			r = r.WithContext(context.WithValue(r.Context(), grpcKey{}, true))
		}
		next.ServeHTTP(w, r)
	})
}

type grpcKey struct{}

// isGRPC reports whether a body of this type is gRPC. gRPC-Web is another protocol.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// grpcCode returns the gRPC code for an HTTP status.
func grpcCode(status int) int {
	switch status {
	case http.StatusBadRequest:
		return 3
	case http.StatusRequestTimeout:
		return 4
	case http.StatusForbidden:
		return 7
	case http.StatusTooManyRequests:
		return 8
	case http.StatusNotFound:
		return 12
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 14
	case http.StatusUnauthorized:
		return 16
	}
	return 2
}

// writeGRPC sets the headers of p as a gRPC status. Without a body, net/http sends them
// with the end of the stream, where gRPC reads trailers.
func (p *problem) writeGRPC(h http.Header) {
	code := p.formattedGRPC(h)
	for _, name := range [...]string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified"} {
		delete(h, name)
	}
	h["Content-Type"] = []string{"application/grpc"}
	h["Cache-Control"] = []string{"no-store"}
	h["Grpc-Status"] = []string{strconv.Itoa(code)}
	h["Grpc-Message"] = []string{grpcText(p.Detail)}
	switch {
	case p.RetryAfter > 0:
		h["Grpc-Retry-Pushback-Ms"] = []string{strconv.FormatInt(p.RetryAfter*1000, 10)}
	case p.counted || p.Status == http.StatusTooManyRequests:
		h["Grpc-Retry-Pushback-Ms"] = []string{"-1"}
	}
	if p.RetryAfter > 0 || p.Limit != "" {
		h["Grpc-Status-Details-Bin"] = []string{base64.RawStdEncoding.EncodeToString(p.details(code))}
	}
}

// grpcText encodes text for grpc-message: % and all but printable ASCII as %XX.
func grpcText(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// details encodes p as a google.rpc.Status, in protobuf.
func (p *problem) details(code int) []byte {
	status := append([]byte{1 << 3}, varint(uint64(code))...)
	status = append(status, field(2, []byte(p.Detail))...)
	add := func(name string, message []byte) {
		detail := append(field(1, []byte("type.googleapis.com/google.rpc."+name)), field(2, message)...)
		status = append(status, field(3, detail)...)
	}
	if p.RetryAfter > 0 {
		delay := append([]byte{1 << 3}, varint(uint64(p.RetryAfter))...) // Duration.seconds
		add("RetryInfo", field(1, delay))                                // RetryInfo.retry_delay
	}
	if p.Limit != "" {
		add("QuotaFailure", field(1, p.violation()))
	}
	return status
}

// violation encodes the limit of p as a google.rpc.QuotaFailure.Violation. Package rpclimit has the
// same texts.
func (p *problem) violation() []byte {
	subject := p.LimitName
	if subject == "" {
		subject = p.Limit
	}
	v := append(field(1, []byte("limit:"+subject)), field(2, []byte("The limit is "+p.Limit+"."))...)
	if p.Unit != "" {
		v = append(v, field(4, []byte(p.Unit))...) // quota_metric
	}
	if p.LimitName != "" {
		v = append(v, field(5, []byte(p.LimitName))...) // quota_id
	}
	return append(append(v, 7<<3), varint(uint64(p.amount))...) // quota_value
}

// field encodes a protobuf field that has a length: a string or a message.
func field(number byte, value []byte) []byte {
	return append(append([]byte{number<<3 | 2}, varint(uint64(len(value)))...), value...)
}

func varint(n uint64) []byte { return binary.AppendUvarint(nil, n) }
