package config

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ParseHeaders reads the text of a headers_file: a line "Name: value" for each header. Empty
// lines and lines that begin with # do not count. Headers that belong to the protocol are
// errors. Values may be secrets, so no error contains one.
func ParseHeaders(text []byte) (http.Header, error) {
	h, n := http.Header{}, 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("line %d: want Name: value, such as Authorization: Bearer TOKEN", n)
		}
		switch name = http.CanonicalHeaderKey(name); name {
		case "Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Connection", "Upgrade", "Trailer", "Te":
			return nil, fmt.Errorf("line %d: the header %s belongs to the protocol and cannot be set", n, name)
		}
		h.Add(name, value)
	}
	return h, nil
}

func headersInTheClear(to, file string) bool { return file != "" && isInTheClear(to) }
