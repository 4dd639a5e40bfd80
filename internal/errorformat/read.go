package errorformat

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
)

// CheckStatus returns why refusals cannot have a status; nil: they can.
func CheckStatus(status int) error {
	if status < LeastStatus || status > MostStatus {
		return fmt.Errorf("status %d: must be %d to %d", status, LeastStatus, MostStatus)
	}
	return nil
}

// CheckBodyStatus returns why a body cannot have its own status; nil: it can.
func CheckBodyStatus(status int) error {
	if status != http.StatusOK && CheckStatus(status) != nil {
		return fmt.Errorf("status %d: must be %d, or %d to %d", status, http.StatusOK, LeastStatus, MostStatus)
	}
	return nil
}

// ReadBody returns the body that a text stands for, whose status is 0 or as for a Body. If it cannot be
// filled so that it is always well-formed, ReadBody returns an error. offset is its place in the text, in
// characters; if the type is wrong, the Body has none.
func ReadBody(mediaType, text string, status int) (b Body, offset int, err error) {
	if err := checkType(mediaType); err != nil {
		return Body{}, 0, err
	}
	if status != 0 {
		if err := CheckBodyStatus(status); err != nil {
			return Body{Type: mediaType}, 0, err
		}
	}
	b = Body{Type: mediaType, Status: status}
	b.text, offset, err = readBody(familyOf(mediaType), text)
	return b, characters(text, offset), err
}

func readBody(f family, text string) (Text, int, error) {
	switch {
	case text == "" || len(text) > MaxBody:
		return Text{}, 0, fmt.Errorf("must have 1 to %d bytes", MaxBody)
	case !utf8.ValidString(text):
		return Text{}, 0, errors.New("must be UTF-8")
	}
	all, offset, err := spans(text)
	if err != nil {
		return Text{}, offset, err
	}
	var writers []writer
	switch f {
	case jsonFamily:
		writers, offset, err = jsonWriters(text, all)
	case htmlFamily, xmlFamily:
		writers = same(inMarkup, all)
		offset, err = checkMarkup(text, all, f == xmlFamily)
	case plainFamily:
		writers = same(asIs, all)
	case otherFamily:
		if len(all) > 0 {
			return Text{}, all[0].from, errors.New("a body of this type cannot have placeholders: only JSON (application/json, …+json), XML (application/xml, …+xml), text/html and text/plain can")
		}
	}
	if err != nil {
		return Text{}, offset, err
	}
	t := newText(text, all, writers)
	switch f {
	case jsonFamily:
		offset, err = checkFilled(&t, checkJSON)
	case xmlFamily:
		offset, err = checkFilled(&t, checkXML)
	}
	return t, offset, err
}

// ReadHeader returns the header that a name and a text stand for. offset is the place of an error in the
// text, in characters; if the name is wrong, the Header has none.
func ReadHeader(name, text string) (h Header, offset int, err error) {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return Header{}, 0, fmt.Errorf("%q is not the name of a header", limittext.Clip(name))
	case strings.HasSuffix(canonical, "-Bin"):
		return Header{}, 0, fmt.Errorf("the header %s cannot be set here: clients of gRPC read it as base64", canonical)
	case isReserved(canonical):
		return Header{}, 0, fmt.Errorf("the header %s cannot be set here: the server writes it itself, or it is about the connection", canonical)
	case text == "" || len(text) > MaxText:
		return Header{Name: canonical}, 0, fmt.Errorf("must have 1 to %d bytes", MaxText)
	}
	if i := strings.IndexFunc(text, func(c rune) bool { return c < ' ' || c > '~' }); i >= 0 {
		return Header{Name: canonical}, characters(text, i), errors.New("the value of a header must be one line of printable ASCII")
	}
	all, offset, err := spans(text)
	if err != nil {
		return Header{Name: canonical}, characters(text, offset), err
	}
	return Header{canonical, newText(text, all, same(inHeader, all))}, 0, nil
}

// isReserved reports whether formats must not set a header, by its canonical name: because it is
// about the content, caching, limits or the connection.
func isReserved(name string) bool {
	for _, prefix := range [...]string{"Content-", "X-Ratelimit", "Ratelimit", "Stint-", "X-Stint-", "Grpc-", "Anthropic-Ratelimit", "Proxy-", "Sec-Websocket-"} {
		if strings.HasPrefix(name, prefix) && name != "Content-Language" && name != "Content-Security-Policy" {
			return true
		}
	}
	switch name {
	case "Cache-Control", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Vary", "Date", "Age", "Etag", "Last-Modified", "Expires",
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings", "Status":
		return true
	}
	return false
}

// ReadMessage returns the message of a gRPC status that a text stands for. offset is the place of an
// error in the text, in characters.
func ReadMessage(text string) (t *Text, offset int, err error) {
	if text == "" || len(text) > MaxText || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }) || !utf8.ValidString(text) {
		return nil, 0, fmt.Errorf("must be one line of 1 to %d bytes", MaxText)
	}
	all, offset, err := spans(text)
	if err != nil {
		return nil, characters(text, offset), err
	}
	cut := newText(text, all, same(asIs, all))
	return &cut, 0, nil
}

// codes are the names of the gRPC codes, except ok.
var codes = [...]string{1: "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied", "resource_exhausted",
	"failed_precondition", "aborted", "out_of_range", "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated"}

// Codes returns the names of the codes that ReadCode reads.
func Codes() []string { return slices.Clone(codes[1:]) }

// ReadCode returns the gRPC code with a name such as unavailable. It refuses ok.
func ReadCode(name string) (int, error) {
	if i := slices.Index(codes[1:], name); i >= 0 {
		return i + 1, nil
	}
	return 0, fmt.Errorf("code %q: not an error code of gRPC%s (codes: %s)", limittext.Clip(name), spelling.Hint(name, codes[1:]), strings.Join(codes[1:], ", "))
}

// family says how values are written into a body.
type family uint8

const (
	otherFamily family = iota
	jsonFamily
	xmlFamily
	htmlFamily
	plainFamily
)

func familyOf(mediaType string) family {
	switch {
	case mediaType == "application/json", strings.HasSuffix(mediaType, "+json"), mediaType == "text/json":
		return jsonFamily
	case mediaType == "application/xml", mediaType == "text/xml", strings.HasSuffix(mediaType, "+xml"):
		return xmlFamily
	case mediaType == "text/html":
		return htmlFamily
	case mediaType == "text/plain":
		return plainFamily
	}
	return otherFamily
}

func checkType(mediaType string) error {
	parsed, parameters, err := mime.ParseMediaType(mediaType)
	main, sub, both := strings.Cut(parsed, "/")
	switch {
	case err != nil || !both || main == "" || sub == "":
		return fmt.Errorf("%q is no media type: want one such as application/json or text/html", limittext.Clip(mediaType))
	case strings.Contains(parsed, "*"):
		return fmt.Errorf("%q is not one media type: the first body is for clients that accept any", limittext.Clip(mediaType))
	case len(parameters) > 0 || parsed != mediaType:
		return fmt.Errorf("%q: write a media type in lower case and without parameters: %s", limittext.Clip(mediaType), limittext.Clip(parsed))
	case strings.HasPrefix(parsed, "application/grpc"):
		return errors.New("clients of gRPC get a status: see grpc")
	case main == "multipart" || main == "message":
		return fmt.Errorf("%q: a body has one part", limittext.Clip(mediaType))
	}
	return nil
}

// characters is how many characters are in the first bytes of a text.
func characters(text string, bytes int) int {
	return utf8.RuneCountInString(text[:max(0, min(bytes, len(text)))])
}
