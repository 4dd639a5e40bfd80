package gateway

import "net/http"

// finalWriter is a ResponseWriter that does not pass on interim (1xx) responses.
type finalWriter struct{ http.ResponseWriter }

// forwardsInterim returns w if it may pass an upstream's interim responses to the client of r,
// and otherwise a writer that drops them. A ReverseProxy writes them while another goroutine
// reads the body, and then clears the header map. In two cases net/http shares memory with that
// goroutine without a lock, and a concurrent use of a map would end the process:
//
//   - If a stream of HTTP/2 has ended, WriteHeader returns while its frame is still being made
//     from the map.
//   - If the client waits for 100 Continue, the first Read of the body writes that to the
//     buffer of WriteHeader.
//
// The client gets the final response in either case, and 100 Continue from net/http itself.
func forwardsInterim(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if r.ProtoMajor == 1 && r.Header["Expect"] == nil {
		return w
	}
	return &finalWriter{w}
}

// WriteHeader is for http.ResponseWriter.
func (w *finalWriter) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap is for http.ResponseController.
func (w *finalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
