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

// GRPC is next with refusals that clients of gRPC understand. Where a request is one
// of gRPC over HTTP/2, what Problem, Overloaded.Refuse and any Middleware within next
// answer is a status of gRPC, with no message before it: RESOURCE_EXHAUSTED for 429,
// UNAVAILABLE for 502, 503 and 504, PERMISSION_DENIED for 403, UNAUTHENTICATED for
// 401, INVALID_ARGUMENT for 400, UNIMPLEMENTED for 404, and UNKNOWN for all else. The
// sentence of the problem is its message. When to come back is in the details, as
// google.rpc.RetryInfo, and in grpc-retry-pushback-ms, which clients that retry by
// themselves obey; where a 429 has no such instant, that says not to retry.
//
// The HTTP status of such an answer is 200. GRPC must therefore not be put before a
// handler whose status decides whether someone else lets a request pass, such as an
// endpoint that proxies ask.
func GRPC(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && isGRPC(r.Header.Get("Content-Type")) {
			r = r.WithContext(context.WithValue(r.Context(), grpcKey{}, true))
		}
		next.ServeHTTP(w, r)
	})
}

type grpcKey struct{}

// isGRPC tells whether a body of this type is gRPC's. gRPC-Web is another protocol.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// grpcCode is the code of gRPC for a status of HTTP.
func grpcCode(status int) int {
	switch status {
	case http.StatusBadRequest:
		return 3
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

// writeGRPC writes p as a status of gRPC. Without a body, net/http sends the header
// with the end of the stream, where gRPC looks for trailers.
func (p *problem) writeGRPC(h http.Header) {
	code := grpcCode(p.Status)
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
		h["Grpc-Status-Details-Bin"] = []string{base64.RawStdEncoding.EncodeToString(p.details(code))}
	case p.Status == http.StatusTooManyRequests:
		h["Grpc-Retry-Pushback-Ms"] = []string{"-1"}
	}
}

// grpcText is text as grpc-message has it: what is not printable ASCII, and %, as
// %XX.
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

// details is p as a google.rpc.Status with a google.rpc.RetryInfo, in protobuf.
func (p *problem) details(code int) []byte {
	delay := append([]byte{1 << 3}, varint(uint64(p.RetryAfter))...) // Duration.seconds
	retry := field(1, delay)                                         // RetryInfo.retry_delay
	detail := append(field(1, []byte("type.googleapis.com/google.rpc.RetryInfo")), field(2, retry)...)
	status := append([]byte{1 << 3}, varint(uint64(code))...)
	status = append(status, field(2, []byte(p.Detail))...)
	return append(status, field(3, detail)...)
}

// field is a field of protobuf that has a length: a text or a message.
func field(number byte, value []byte) []byte {
	return append(append([]byte{number<<3 | 2}, varint(uint64(len(value)))...), value...)
}

func varint(n uint64) []byte { return binary.AppendUvarint(nil, n) }
