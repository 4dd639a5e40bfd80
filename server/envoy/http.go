package envoy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// smallTimeout bounds the time in which a request must arrive and its answer be read. A stop waits that long
// for a request that does not arrive.
const smallTimeout = 10 * time.Second

// httpServer bounds slow and greedy clients. timeout bounds requests and answers; 0: no bound, for profiles
// that take many seconds.
func (s *Server) httpServer(h http.Handler, timeout time.Duration) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: handshakeTimeout,
		ReadTimeout:       timeout,
		WriteTimeout:      2 * timeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
}

// HTTP answers /json, which is ShouldRateLimit for clients without gRPC, and /healthcheck. Pages of
// other origins in a browser cannot use /json.
func (s *Server) HTTP() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/json", http.NewCrossOriginProtection().Handler(s.tracedJSON()))
	mux.Handle("/healthcheck", s.health)
	return mux
}

// tracedJSON is ServeJSON with a span of each call.
func (s *Server) tracedJSON() http.Handler {
	serve := http.HandlerFunc(s.service.ServeJSON)
	if s.c.Trace == nil {
		return serve
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := s.c.Trace(r.Context(), "/json", r.Header)
		answer := &statusWriter{w, http.StatusOK}
		serve(answer, r.WithContext(ctx))
		end(codeOfHTTP(answer.status))
	})
}

// statusWriter keeps the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// codeOfHTTP is the code of gRPC that a call with this status of /json would have had.
func codeOfHTTP(status int) string {
	switch status {
	case http.StatusOK, http.StatusTooManyRequests:
		return "OK"
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	}
	return "INVALID_ARGUMENT"
}

// ServeJSON decides the call in the body, a RateLimitRequest in the JSON of protobuf. The status is 200 or,
// if the call is over a limit, 429, with a RateLimitResponse; 400 for a malformed call; 503 if it could not
// be decided.
func (s *Service) ServeJSON(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		code := http.StatusBadRequest
		if large := new(http.MaxBytesError); errors.As(err, &large) {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, err.Error(), code)
		return
	}
	var in rls.RateLimitRequest
	if err := protojson.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := s.ShouldRateLimit(r.Context(), &in)
	if err != nil {
		http.Error(w, status.Convert(err).Message(), httpStatus(status.Code(err)))
		return
	}
	text, err := protojson.Marshal(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if out.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text)
}

func httpStatus(c codes.Code) int {
	if c == codes.InvalidArgument {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// bodiesInTime gives bodies smallTimeout to arrive, if requests and answers have no bound: net/http waits for
// the rest of a body that no handler reads.
func bodiesInTime(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(smallTimeout))
		}
		h.ServeHTTP(w, r)
	})
}

// Debug answers the paths of the debug listener; "/" lists them.
func (s *Server) Debug() http.Handler {
	mux := http.NewServeMux()
	pages := []struct {
		path, help string
		handler    http.Handler
	}{
		{"/debug/pprof/", "root of various pprof endpoints. hit for help.", http.HandlerFunc(pprof.Index)},
		{"/debug/pprof/profile", "CPU profiling endpoint", http.HandlerFunc(pprof.Profile)},
		{"/debug/pprof/trace", "trace endpoint", http.HandlerFunc(pprof.Trace)},
		{"/rlconfig", "print out the currently loaded configuration for debugging", http.HandlerFunc(s.service.serveConfig)},
		{"/stats", "print out stats", s.c.Stats},
	}
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		for _, p := range pages {
			if p.handler != nil {
				fmt.Fprintf(w, "%s: %s\n", p.path, p.help)
			}
		}
	})
	for _, p := range pages {
		if p.handler != nil {
			mux.Handle(p.path, p.handler)
		}
	}
	return bodiesInTime(mux)
}
