package server_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// assault is what one client sends over a connection of its own. Of HTTP/1.1 the pieces
// are the bytes; of HTTP/2 each is a field, as "name\x00value", or, where it has no name,
// a piece of the body.
type assault struct {
	http2  bool
	pieces []string

	// Of an assault by a target alone, which reaches the upstream as it is or not at all, and of its only request.
	target, id string
}

// targeting is an assault by a target alone.
func targeting(id, target string) *assault {
	request := "GET " + target + " HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\nX-Id: " + id + "\r\n\r\n"
	return &assault{pieces: []string{request}, target: target, id: id}
}

func (a *assault) text() string { return strings.Join(a.pieces, "") }

// String shows a as a test can repeat it.
func (a *assault) String() string {
	if a.http2 {
		return fmt.Sprintf("HTTP/2 %q", a.pieces)
	}
	return fmt.Sprintf("%q", a.text())
}

// assailant makes assaults at random. Each request that it makes, those hidden in bodies
// included, has an X-Id of its own.
type assailant struct {
	*rand.Rand
	ids int
}

func (g *assailant) chance(oneIn int) bool      { return g.IntN(oneIn) == 0 }
func (g *assailant) pick(from ...string) string { return from[g.IntN(len(from))] }

// oddly is mostly usual, and one time in so many one of odd.
func (g *assailant) oddly(oneIn int, usual string, odd ...string) string {
	if g.chance(oneIn) {
		return g.pick(odd...)
	}
	return usual
}

func (g *assailant) id() string {
	g.ids++
	return fmt.Sprint(g.ids)
}

func (g *assailant) next() *assault {
	if g.chance(6) {
		return &assault{http2: true, pieces: g.fields()}
	}
	a := new(assault)
	for more := true; more; more = g.chance(3) {
		a.pieces = append(a.pieces, g.message(0)...)
	}
	if g.chance(6) {
		g.mutate(a)
	}
	return a
}

// special are bytes and texts that parsers stumble over.
var special = []string{
	"\x00", "\t", "\v", "\f", "\r", "\n", "\r\n", "\n\n", " ", "  ", "\x7f", "\x80", "\x85", "\xa0", "\xff", "\u2028", "\u017f", "\u212a", "é",
	":", ";", ",", "=", "&", "?", "#", "%", "%00", "%0d%0a", "%25", "/", "//", "\\", ".", "..", "*", "@", "_", "-", "\"", "0", "0x", "+",
}

// mutate changes bytes and pieces without regard to what they mean.
func (g *assailant) mutate(a *assault) {
	for more := true; more; more = g.chance(2) {
		i := g.IntN(len(a.pieces))
		p := a.pieces[i]
		at := g.IntN(len(p) + 1)
		switch g.IntN(6) {
		case 0, 1:
			a.pieces[i] = p[:at] + g.pick(special...) + p[at:]
		case 2:
			a.pieces[i] = p[:at] + g.pick(special...) + p[min(at+1, len(p)):]
		case 3:
			a.pieces[i] = p[:at]
		case 4:
			a.pieces = slices.Insert(a.pieces, i, a.pieces[g.IntN(len(a.pieces))])
		case 5:
			j := g.IntN(len(a.pieces))
			a.pieces[i], a.pieces[j] = a.pieces[j], a.pieces[i]
		}
	}
}

// message is a request of HTTP/1.1, hidden in so many others.
func (g *assailant) message(depth int) []string {
	end := g.oddly(80, "\r\n", "\n", "\r", "\r\r\n", "\n\r")
	p := []string{
		g.method(), g.oddly(80, " ", "\t", "  ", "\x00", "\v", ""), g.target(), g.oddly(80, " ", "\t", "  ", "", " x ", "\xa0"),
		g.oddly(30, "HTTP/1.1", "HTTP/1.0", "HTTP/1.1 ", "http/1.1", "HTTP/2.0", "HTTP/1.01", "HTTP/1.2", "HTTP/0.9", "HTTP/11", "", "HTTP/1.1\t"), end,
	}
	header := func(lines ...string) {
		for _, line := range lines {
			p = append(p, line+end)
		}
	}
	if !g.chance(40) {
		header(g.oddly(40, "Host: ", "host:", "HOST:\t", "Host : ", " Host: ", "H\u00f6st: ") + g.host())
	}
	header("X-Id: " + g.id())
	for more := g.chance(2); more; more = g.chance(2) {
		header(g.header()...)
	}
	framing, body := g.body(depth)
	header(framing...)
	if g.chance(8) {
		header(g.header()...)
	}
	p = append(p, end)
	return append(p, body...)
}

func (g *assailant) method() string {
	return g.oddly(4, "GET", "POST", "POST", "POST", "POST", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "PATCH", "post", "Post", "pOST", "get", "CONNECT",
		"TRACE", "PRI", "M-SEARCH", "PROPFIND", "QUERY", "P\u00d6ST", "PO\u017fT", "POST\x00", "POST,GET", "")
}

func (g *assailant) host() string {
	return g.oddly(8, "example.com", "EXAMPLE.com", "example.com.", "example.com:80", "example.com:8080", "example.com:", "other.example", "[::1]",
		"[::1]:80", "[::FFFF:127.0.0.1]", "", "a@example.com", "example.com/x", "example.com,other.example", "example.com other.example",
		"ex%61mple.com", "xn--bcher-kva.example", "b\u00fccher.example", "example_com", "127.1", "example.com..", "example.com\\x", "example.com#x", "*", "%")
}

// target is one in any form.
func (g *assailant) target() string {
	origin := g.path() + g.query()
	switch g.IntN(24) {
	case 0:
		return g.pick("http://", "HTTP://", "https://", "h2c://", "ws://", "://", "//", "http:/", "http:///", "file://") + g.host() + origin
	case 1:
		return g.pick("*", "", "?", "?user=me", "example.com:443", "example.com", "http:login", "http:/login", "/http://example.com/login", "mailto:x",
			"http://example.com?user=me", "http://example.com#/login", "login", "./login", "..", ";/login", "\\login", "/*", "/login /x", "%2Flogin")
	}
	return origin
}

// guarded are the paths that rules, the blocklist and routes are about.
var guarded = []string{"/login", "/login", "/login", "/admin/x", "/admin/", "/item/a", "/item/a/b", "/item/a/b", "/area", "/area/x", "/blocked", "/files/x", "/files", "/free/x", "/"}

// path is a guarded one in another form, mostly.
func (g *assailant) path() string {
	p := g.pick(guarded...)
	for more := g.chance(2); more; more = g.chance(3) {
		at := 1 + g.IntN(len(p))
		insert := func(text string) { p = p[:at] + text + p[at:] }
		slash := max(0, strings.LastIndexByte(p[:at], '/'))
		switch g.IntN(14) {
		case 0:
			p = p[:at] + strings.ToUpper(p[at:])
		case 1, 2: // an escape, of one byte or again of what is one
			if at--; at > 0 || g.chance(4) {
				p = p[:at] + fmt.Sprintf(g.pick("%%%02x", "%%%02X"), p[at]) + p[at+1:]
			}
		case 3, 11, 12:
			p = p[:slash+1] + g.pick("/", "./", "x/../", "../", "%2e/", "x/%2e%2e/", "x/.%2E/", "..;/", "x/..;a/", ";/", ".//", "x//../", "%252e%252e/", "..%2f", "x%2f..%2f", "..\\", "x/..%5c", "%c0%ae/", "\uff0e\uff0e/") + p[slash+1:]
		case 4:
			p += g.pick("/", "//", ".", "/.", "/x/..", "%20", "%20/", ";", ";a=b", ";/", "%3b", "%2f", "\\", "%5c", "#", "#x", "%23", ".json", ".html", "%00", "%00.html", "\x00", "%0a", "%09", "~", "::$DATA", "%", "%zz", "/*", ",x", "!", "%ff")
		case 5, 13:
			p = p[:slash] + g.pick("%2f", "%2F", "%2f", "%2F", "\\", "%5c", "%5C", "%c0%af", "%e0%80%af", "%252f", "%25%32%66", "//", "/%2f", "\u2215", "\uff0f", "%ef%bc%8f", "%u002f") + p[slash+1:]
		case 6:
			p = g.pick("/", "//x", "//", "/\\", "//example.com", "///", "/x/..", "/.", "/x/../..", "//user@x:80", "/%2f", "/http:/", "/;a") + p
		case 7:
			insert(g.pick(";a=b", ";", "%3b", "%3Ba"))
		case 8:
			insert(g.pick(special...))
		case 9:
			insert(g.pick("%6c", "%6C", "%256c", "%25%36%63", "%c5%bf", "%e2%84%aa", "\u017f", "\u212a", "%80", "\x80", "%c3%a9", "e%cc%81", "%u006c"))
		case 10:
			p += g.pick(guarded...)
		}
	}
	return p
}

func (g *assailant) query() string {
	if !g.chance(4) {
		return ""
	}
	q := "?"
	for more := true; more; more = g.chance(3) {
		q += g.oddly(5, "user", "USER", "us%65r", "%75ser", "us%2565r", "user[]", "user[a]", "user%5b%5d", "user%5B", "user[", "%20user", "+user", "user%20", "user%00", "user%00x", "user.", "us\u00e9r", "a", "", "user=", "u\u017fer", "user;x", "\xffuser", "_user", "amp;user")
		q += g.oddly(12, "=", "", "%3d", "==", "=;", "=&")
		q += g.oddly(3, "me", "you", "%6de", "m%65", "m+e", "m%20e", "me%00", "m%00e", "%zz", "m%", "me%0a", "%e9", "%c3%a9", "é", "me#", "me;user=you", "m\\e", "ME", "[me]", "me,you", "%256de", "+me", "m%u0065", "%80", "?")
		q += g.oddly(16, "&", ";", "&amp;", "%26", "#", "?", "&&", ",", "\t", "%00&", "|")
	}
	return q
}

// header is a line, or some that belong together.
func (g *assailant) header() []string {
	key := func() string {
		return g.oddly(3, "X-Api-Key", "x-api-key", "X_Api_Key", "X-Api_Key", "X.Api.Key", "X Api Key", "X-Api-Key ", "X-Api-Key\t", "\tX-Api-Key", "X-Api-Key\x00", "X-Api-Key\v", "X-Api-Kex", "X-API-KEY", "X~Api~Key", "X-Api-\u212aey", "X-Api-Key:") +
			g.oddly(20, ": ", ":", ":\t", " : ", ":\r ", "\r\n : ", "=") +
			g.oddly(3, "k", "other", "k, other", "k,", "", " k ", `"k"`, "k\x00", "k\xa0", "\xa0k", "k\x85", "k\x1c", "k\x0bx", "é", "\xe9", "k;x", "k\r\n other", "k\r\n\tother", "\r\n k", "k\r\n\r\n", "k\ry", "k\nX-Id: 0", "k\x7f", "K", "=?utf-8?q?k?=")
	}
	switch g.IntN(16) {
	case 0, 1, 2, 3:
		return []string{key()}
	case 4:
		return []string{key(), key()}
	case 5:
		return []string{g.pick("X-Client", "x-client", "X_Client", "X-Client ") + ": " + g.oddly(3, "bad", "good", "bad, good", "good\r\n bad", " bad\t", "BAD", "bad\xa0", "b\x00ad")}
	case 6:
		return []string{g.oddly(6, "Connection", "connection", "Proxy-Connection", "Keep-Alive") + ": " + g.pick("close", "keep-alive", "X-Api-Key", "close, X-Api-Key", "x-client", "X-Id", "Host", "Content-Length", "Transfer-Encoding", "Upgrade", "keep-alive\r\n , x-api-key", ",x-api-key,", "\"x-api-key\"", "te", "Cookie")}
	case 7:
		return []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: " + g.pick("h2c", "websocket", "H2C", "h2c, websocket", "HTTP/2.0", "TLS/1.0", "foo"), "HTTP2-Settings: AAMAAABkAAQAAP__"}
	case 8:
		return []string{g.pick("X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method") + ": " + g.pick("POST", "DELETE", "post")}
	case 9:
		return []string{g.pick("X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Uri", "X-Original-Uri", "X-Forwarded-Prefix") + ": " + g.path()}
	case 10:
		return []string{g.pick("X-Forwarded-For", "X_Forwarded_For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "Via", "Client-Ip") + ": " + g.pick("192.0.2.7", "for=192.0.2.7", "192.0.2.7, 127.0.0.1", "other.example", "https")}
	case 11:
		return []string{"Host: " + g.host()}
	case 12:
		return []string{g.pick("Expect: 100-continue", "Expect: x", "TE: trailers", "Trailer: X-Api-Key", "Range: bytes=0-0", "Accept-Encoding: gzip", "Date: x", "Max-Forwards: 0", "Content-Type: application/x-www-form-urlencoded", "Content-Encoding: gzip", "Accept: */*")}
	case 13:
		return []string{"Cookie: " + g.pick("sid=1", "sid=1; sid=2", "sid=1, sid=2", "$Version=1; sid=1", "sid=\"1\\073 a\"")}
	case 14:
		return []string{g.pick(" folded", "\tX-Api-Key: k", "no colon", ": k", "X-A: b\r\n X-Api-Key: k", "From x", ">From x", "X-A\rX-Api-Key: k", "X-A: \nX-Api-Key: k", "(comment)X-Api-Key: k", strings.Repeat("A", 300)+": k", "X-Big: "+strings.Repeat("v", 5000))}
	}
	return []string{g.pick("Authorization: Bearer a", "Authorization: Basic YTpi", "User-Agent: x", "X-Id: "+g.id(), "Accept: x\r\n ,y")}
}

// body is one with the headers that frame it, rightly or not. It may hide a request.
func (g *assailant) body(depth int) (headers, pieces []string) {
	if !g.chance(3) {
		return nil, nil
	}
	content := []string{g.pick("", "x", "user=me", "a=b&user=me")}
	if depth == 0 && g.chance(2) {
		content = g.message(1)
	}
	n := len(strings.Join(content, ""))
	length := func(n int) string {
		return g.oddly(60, "Content-Length", "content-length", "Content_Length", "Content-Length ", " Content-Length", "Content-Length\x00", "Content-Length:") + ": " +
			g.oddly(20, fmt.Sprint(n), fmt.Sprint("+", n), fmt.Sprint("0", n), fmt.Sprint(n, ", ", n), fmt.Sprintf("%#x", n), fmt.Sprint(n, ".0"), fmt.Sprint(n, " 1"), "-1", "", "0", fmt.Sprint(n+3), fmt.Sprint(max(0, n-3)), "99999999999999999999", fmt.Sprint(n, "\x00"), fmt.Sprint("\v", n), fmt.Sprint(n, ";x"), fmt.Sprint(n, "\r\n 0"))
	}
	encoding := func() string {
		return g.oddly(20, "Transfer-Encoding", "transfer-encoding", "Transfer_Encoding", "Transfer-Encoding ", " Transfer-Encoding", "Transfer-Encoding\x00", "Transfer-Encodin\u0261") + ": " +
			g.oddly(5, "chunked", "Chunked", "chunked, chunked", "gzip, chunked", "chunked, gzip", "identity", "identity, chunked", " chunked ", "\tchunked", "chunked\x00", "\"chunked\"", "xchunked", "chunked;q=1", "\vchunked", "chunked\r\n , x", "", "chun\r\n ked")
	}
	switch g.IntN(8) {
	case 0, 1:
		return []string{length(n)}, content
	case 2, 3, 4:
		return []string{encoding()}, g.chunks(content)
	case 5:
		both := []string{length(g.pickInt(n, 0, 4, 5, n+5)), encoding()}
		if g.chance(2) {
			slices.Reverse(both)
		}
		return both, g.chunks(content)
	case 6:
		return []string{length(n), length(g.pickInt(n, 0, n+5))}, content
	}
	return []string{encoding(), encoding()}, g.chunks(content)
}

func (g *assailant) pickInt(from ...int) int { return from[g.IntN(len(from))] }

// chunks is content in chunks, of which some may be malformed.
func (g *assailant) chunks(content []string) (pieces []string) {
	end := func() string { return g.oddly(30, "\r\n", "\n", "\r", "", "\r\n\r\n", "\n\r") }
	for _, c := range content {
		if c == "" {
			continue
		}
		size := fmt.Sprintf(g.oddly(20, "%x", "%X", "0%x", "0x%x", "+%x", " %x", "%x ", "%x\t", "-%x", "%x\x00", "%d", "000000000000000000000%x"), len(c))
		pieces = append(pieces, size+g.oddly(15, "", ";a=b", ";a=\"\r\n\"", "; a", ";\n", ";a\rb", ";"+strings.Repeat("x", 100), " ;a")+end(), c, end())
	}
	trailer := g.oddly(8, "", "X-Api-Key: k\r\n", "X-Id: 0\r\n", "Content-Length: 5\r\n", "Host: other.example\r\n", "x\r\n", " x: y\r\n", "A: b\n")
	return append(pieces, g.oddly(30, "0", "00", "0x0", "", "-0", "0;a")+end(), trailer, end())
}

// fields are those of a request over HTTP/2, and its body.
func (g *assailant) fields() (pieces []string) {
	add := func(name, value string) { pieces = append(pieces, name+"\x00"+value) }
	method, path := g.method(), g.target()
	odd := func(value string) string {
		return g.oddly(40, value, value+" HTTP/1.1\r\nX-Api-Key: k\r\nX: y", value+"\r\n", " "+value, value+"\x00", value+" ", "")
	}
	if !g.chance(60) {
		add(":method", odd(method))
	}
	add(":scheme", g.oddly(20, "http", "https", "HTTP", "", "http://other.example/x?", "file", "http\x00"))
	if !g.chance(10) {
		add(":authority", odd(g.host()))
	}
	if !g.chance(60) {
		add(":path", odd(path))
	}
	add("x-id", g.id())
	for more := g.chance(2); more; more = g.chance(2) {
		for _, line := range g.header() {
			name, value, _ := strings.Cut(line, ":")
			if !g.chance(20) { // else in capitals, which HTTP/2 does not allow
				name = strings.ToLower(name)
			}
			if !g.chance(10) {
				value = strings.TrimSpace(value)
			}
			add(name, value)
		}
	}
	switch g.IntN(24) {
	case 0:
		add(g.pick(":path", ":method", ":authority", ":scheme", ":protocol", ":status", ":x", ""), g.pick("/login", "POST", "other.example", "websocket", "200"))
	case 1:
		add("host", g.host())
	case 2:
		add("transfer-encoding", g.pick("chunked", "trailers", "identity"))
	case 3:
		add("content-length", g.pick("0", "3", "1000", "+3", "x", "-1", "3, 3"))
	case 4:
		add(g.pick("x-a\r\nx-api-key", "x-a: b\r\nx-api-key", "x a", "x-api-key:", "\x00"), g.pick("k", "k\r\nx-id: 0", "k\nx: y"))
	case 5:
		i := g.IntN(len(pieces))
		j := g.IntN(len(pieces))
		pieces[i], pieces[j] = pieces[j], pieces[i]
	case 6:
		pieces = append(pieces, pieces[g.IntN(len(pieces))])
	}
	if g.chance(4) {
		body := g.pick("x", "user=me", "0\r\n\r\n")
		if g.chance(2) {
			body = strings.Join(g.message(1), "")
		}
		add("", body)
	}
	return pieces
}
