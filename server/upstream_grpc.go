package server

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
)

// endGRPC makes a response of gRPC that breaks off end with a status, by which clients know that they
// may try again. Otherwise they get INTERNAL, as for a mistake in the protocol.
func (s *Server) endGRPC(r *http.Response) {
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		r.Body = &grpcBody{r.Body, r, s}
	}
}

type grpcBody struct {
	io.ReadCloser
	response *http.Response
	s        *Server
}

// Read is for io.Reader.
func (b *grpcBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	r := b.response.Request
	if err == nil || errors.Is(err, io.EOF) || r.Context().Err() != nil {
		return n, err
	}
	x := exchangeOf(r)
	const text = "upstream broke off a response of gRPC"
	b.s.sampled.log(slog.LevelWarn, text+" "+x.route.String(), text, "route", x.route.String(), "host", shown(r.Host), "path", shown(x.target.RawPath), "error", err)
	if b.response.Trailer == nil {
		b.response.Trailer = http.Header{}
	}
	b.response.Trailer["Grpc-Status"] = []string{strconv.Itoa(grpcUnavailable)}
	b.response.Trailer["Grpc-Message"] = []string{"The upstream broke off its response."}
	return n, io.EOF
}

// grpcUnavailable is the code UNAVAILABLE of gRPC.
const grpcUnavailable = 14
