// Package errorformat has the formats in which refusals and other errors are answered: a status, headers,
// a body for each media type, and a status of gRPC. It reads and checks them, chooses the body that a
// client accepts, and fills in the values of the answer.
//
// It does not know files, requests or limits. No part of a request can be filled in.
package errorformat

import (
	"net/http"
	"slices"
	"strings"
)

// The bounds of a Format.
const (
	MaxBody    = 64 << 10 // bytes of a body's text
	MaxText    = 1024     // bytes of a header's text and of a message of gRPC
	MaxBodies  = 16
	MaxHeaders = 16
	// MaxPlaceholders bounds the placeholders of one text, because each may stand for a long
	// message.
	MaxPlaceholders = 64
	// LeastStatus and MostStatus bound the status of refusals.
	LeastStatus, MostStatus = 400, 599
)

// Parts are the parts of a Format. Each may be zero: then it is as usual.
type Parts struct {
	Status  int // of refusals by limits and bans
	Headers []Header
	Bodies  []Body // the first is for clients that accept any or none
	Code    int    // of gRPC
	Message *Text  // of gRPC
}

// Format is the format of an answer. New makes it, and it never changes. nil: as usual.
type Format struct {
	parts      Parts
	forProxies *Format // see ForProxies
}

// New returns a Format of parts that Read functions have returned.
func New(p Parts) *Format {
	f := &Format{parts: p}
	p.Status, p.Bodies = forProxies(p.Status), slices.Clone(p.Bodies)
	for i := range p.Bodies {
		p.Bodies[i].Status = forProxies(p.Bodies[i].Status)
	}
	f.forProxies = &Format{parts: p}
	f.forProxies.forProxies = f.forProxies
	return f
}

// ForProxies returns f for the answer to a proxy that asks whether a request may pass. It has only
// statuses from 400 to 499: the proxy would take 200 for permission, and 500 and above for a failure,
// after which some let requests pass.
func (f *Format) ForProxies() *Format {
	if f == nil {
		return nil
	}
	return f.forProxies
}

func forProxies(status int) int {
	if status < 400 || status > 499 {
		return 0
	}
	return status
}

// Over returns a Format with the parts of f, and those of under that f lacks. Either may be nil.
func (f *Format) Over(under *Format) *Format {
	switch {
	case f == nil || f == under:
		return under
	case under == nil:
		return f
	}
	p := f.parts
	if p.Status == 0 {
		p.Status = under.parts.Status
	}
	if p.Headers == nil {
		p.Headers = under.parts.Headers
	}
	if p.Bodies == nil {
		p.Bodies = under.parts.Bodies
	}
	if p.Code == 0 {
		p.Code = under.parts.Code
	}
	if p.Message == nil {
		p.Message = under.parts.Message
	}
	return New(p)
}

// Negotiates reports whether the body depends on what the client accepts.
func (f *Format) Negotiates() bool { return f != nil && len(f.parts.Bodies) > 0 }

// StatusOf returns the status of a refusal by a limit or a ban with the body b, which may be nil.
func (f *Format) StatusOf(b *Body, usual int) int {
	switch {
	case b != nil && b.Status != 0:
		return b.Status
	case f != nil && f.parts.Status != 0:
		return f.parts.Status
	}
	return usual
}

// SetHeaders sets the headers of f in h. It leaves out a header that would be empty because its
// values are not known.
func (f *Format) SetHeaders(h http.Header, v *Values) {
	if f == nil {
		return
	}
	for i := range f.parts.Headers {
		header := &f.parts.Headers[i]
		if text := strings.Trim(header.text.Fill(v), " "); text != "" {
			h[header.Name] = []string{text}
		}
	}
}

// HasHeader reports whether f has a header, by its canonical name.
func (f *Format) HasHeader(name string) bool {
	return f != nil && slices.ContainsFunc(f.parts.Headers, func(h Header) bool { return h.Name == name })
}

// CodeOf returns the code of gRPC of a refusal by a limit or a ban.
func (f *Format) CodeOf(usual int) int {
	if f == nil || f.parts.Code == 0 {
		return usual
	}
	return f.parts.Code
}

// MessageOf returns the message of a gRPC status; v has the usual one.
func (f *Format) MessageOf(v *Values) string {
	if f == nil || f.parts.Message == nil {
		return v.Message
	}
	return f.parts.Message.Fill(v)
}

// Body is the body of an answer in one media type.
type Body struct {
	Type   string // such as text/html, in lower case
	Status int    // status with this body; 0: the Format's
	text   Text
}

// ContentType returns the value of the header.
func (b *Body) ContentType() string {
	if f := familyOf(b.Type); f == jsonFamily || f == otherFamily {
		return b.Type
	}
	return b.Type + "; charset=utf-8"
}

// Fill returns the body.
func (b *Body) Fill(v *Values) []byte { return []byte(b.text.Fill(v)) }

// Header is a header of an answer.
type Header struct {
	Name string // canonical
	text Text
}
