package gateway

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// endGRPC ends a gRPC response that breaks off with a status, so that clients know that they may try again.
// Otherwise they get INTERNAL, as for a protocol error.
func (g *Gateway) endGRPC(r *http.Response) {
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		r.Body = &grpcBody{r.Body, r, g}
	}
}

type grpcBody struct {
	io.ReadCloser
	response *http.Response
	g        *Gateway
}

// Read is for io.Reader.
func (b *grpcBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	r := b.response.Request
	late := exchangeOf(r).timer.isOver()
	if err == nil || errors.Is(err, io.EOF) || r.Context().Err() != nil && !late {
		return n, err
	}
	code, message := grpcUnavailable, "The upstream broke off its response."
	if late {
		code, message = grpcDeadlineExceeded, "The response took too long."
	} else {
		logUpstream(b.g.Watch.Sampled, r, "upstream broke off a response of gRPC", err)
	}
	if b.response.Trailer == nil {
		b.response.Trailer = http.Header{}
	}
	b.response.Trailer["Grpc-Status"] = []string{strconv.Itoa(code)}
	b.response.Trailer["Grpc-Message"] = []string{message}
	return n, io.EOF
}

// Codes of gRPC.
const (
	grpcDeadlineExceeded = 4
	grpcUnavailable      = 14
)
