package accesslog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hostile are parts of texts that clients send to mislead who reads a log.
var hostile = []string{
	"/", "a", "?", "%20", "\"", "\\", "\\x22", "\\\"", "\\u0022", "\x00", "\n", "\r\n", "\t", "\x7f", "\x1b[2J", "é", "\xff", "世界", "'", "|", ",", ";", "{", "}", "#", "#22",
	"] \"GET / HTTP/1.1\" 200 1 ", "\" \"", " - - [10/Oct/2000:13:55:36 +0000] \"", " [", "-", " ", "\"}", "\",\"status\":500", "$", "::1", "HTTP/1.1", "REDACTED", "null", "...",
}

func text(r *rand.Rand, without string) string {
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(hostile[r.IntN(len(hostile))])
	}
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(without, c) {
			return -1
		}
		return c
	}, b.String())
}

// wanted is a request as a client may send it. A server takes no blanks or control characters in a target, and
// no line ends in a header field.
func wanted(r *rand.Rand) Entry {
	e := Entry{
		At: at("2026-03-01T00:00:00Z") + r.Int64N(1e13), Method: []string{"GET", "POST", "M-SEARCH", "get"}[r.IntN(4)],
		Target: "/" + text(r, " \r\n\t\x00\x7f\x1b"), Status: 100 + r.IntN(500), User: text(r, "\r\n\x00"),
		Client: netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(256))}),
	}
	if r.IntN(2) == 0 {
		e.Client = addr("2001:db8::").Next()
	}
	if e.User == "-" || e.User == `""` { // which are as no user
		e.User = "x"
	}
	for _, name := range []string{"Referer", "User-Agent"} {
		if value := strings.TrimSpace(text(r, "\r\n\x00")); value != "" && value != "-" {
			e.Header = append(e.Header, Field{name, value})
		}
	}
	return e
}

func (e Entry) header(name string) string {
	for _, f := range e.Header {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// escapeNginx is ngx_http_log_escape: quotes, backslashes, control characters and all beyond ASCII as \xHH.
func escapeNginx(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			fmt.Fprintf(&b, `\x%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escapeApache is ap_escape_logitem.
func escapeApache(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case strings.IndexByte("\b\n\r\t\v", c) >= 0:
			b.WriteString(`\` + string("btnvfr"[c-'\b']))
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escapeJSONOfNginx is ngx_escape_json, which leaves all beyond ASCII as it is.
func escapeJSONOfNginx(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ':
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func escapeHAProxy(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '#' || c > '~' {
			fmt.Fprintf(&b, "#%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func combinedOf(e Entry, escape func(string) string) string {
	return fmt.Sprintf(`%s - %s [%s] "%s %s HTTP/1.1" %d 77 "%s" "%s"`, e.Client, escape(orDash(e.User)), time.UnixMicro(e.At).UTC().Format("02/Jan/2006:15:04:05 -0700"),
		e.Method, escape(e.Target), e.Status, escape(orDash(e.header("Referer"))), escape(orDash(e.header("User-Agent"))))
}

// A request is read as it was, whatever it has, in each form by which its server escapes it.
func TestRoundTrip(t *testing.T) {
	seconds := func(e Entry) Entry { e.At -= e.At % second; return e }
	for _, form := range []struct {
		name  string
		o     Options
		line  func(e Entry) string
		loses func(e Entry) Entry
	}{
		{"nginx", Options{Format: "combined"}, func(e Entry) string { return combinedOf(e, escapeNginx) }, seconds},
		{"Apache", Options{Format: `LogFormat "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\"" combined`},
			func(e Entry) string { return combinedOf(e, escapeApache) }, seconds},
		{"nginx in JSON", Options{Format: `log_format x escape=json '{"at":$msec,"ip":"$remote_addr","user":"$remote_user","r":"$request","s":$status,"ref":"$http_referer","ua":"$http_user_agent"}';`},
			func(e Entry) string {
				return fmt.Sprintf(`{"at":%d.%03d,"ip":"%s","user":"%s","r":"%s","s":%d,"ref":"%s","ua":"%s"}`, e.At/second, e.At%second/1000, e.Client, escapeJSONOfNginx(e.User),
					escapeJSONOfNginx(e.Method+" "+e.Target+" HTTP/2.0"), e.Status, escapeJSONOfNginx(e.header("Referer")), escapeJSONOfNginx(e.header("User-Agent")))
			}, func(e Entry) Entry { e.At -= e.At % 1000; return e }},
		{"JSON", Options{}, func(e Entry) string {
			line := map[string]any{"time": time.UnixMicro(e.At).UTC(), "ip": e.Client, "method": e.Method, "request_uri": e.Target, "status": e.Status, "user": e.User,
				"other": map[string]any{"deep": []any{text(rand.New(rand.NewPCG(uint64(e.At), 0)), ""), 1.5e-7, nil, true, map[string]any{}}}}
			for name, key := range map[string]string{"Referer": "referer", "User-Agent": "user_agent"} {
				if value := e.header(name); value != "" {
					line[key] = value
				}
			}
			b, err := json.Marshal(line)
			if err != nil {
				panic(err)
			}
			return string(b)
		}, func(e Entry) Entry { return valid(e) }},
		{"HAProxy", Options{Format: "haproxy"}, func(e Entry) string {
			return fmt.Sprintf(`%s:1234 [%s] f b/s 1/0/0/0/9 %d 5 - - ---- 1/1/1/1/0 0/0 {%s} "%s"`, e.Client, time.UnixMicro(e.At).UTC().Format("02/Jan/2006:15:04:05.000"), e.Status,
				escapeHAProxy(e.User), escapeHAProxy(e.Method+" "+e.Target+" HTTP/1.1"))
		}, func(e Entry) Entry { e.At -= e.At % 1000; e.User, e.Header = "", nil; return e }},
		{"stint", Options{}, func(e Entry) string {
			return slogged(e, func(b *strings.Builder) slog.Handler { return slog.NewTextHandler(b, nil) })
		}, plainPath},
		{"stint in JSON", Options{}, func(e Entry) string {
			return slogged(e, func(b *strings.Builder) slog.Handler { return slog.NewJSONHandler(b, nil) })
		}, plainPath},
		{"CSV", Options{}, func(e Entry) string {
			quote := func(s string) string {
				return `"` + strings.ReplaceAll(strings.NewReplacer("\r", "", "\n", "").Replace(s), `"`, `""`) + `"`
			}
			return fmt.Sprintf(`%s,%s,%s,%s,%d,%s,%s,%s`, time.UnixMicro(e.At).UTC().Format(time.RFC3339Nano), e.Client, e.Method, quote(e.Target), e.Status, quote(e.User), quote(e.header("Referer")), quote(e.header("User-Agent")))
		}, func(e Entry) Entry { return e }},
	} {
		t.Run(form.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, 7))
			for range 1000 {
				e := wanted(r)
				first := ""
				if e.Line = 1; form.name == "CSV" {
					first, e.Line = "time,ip,method,request_uri,status,user,referer,user_agent\n", 2
				}
				line := form.line(e)
				want := form.loses(e)
				s := newSample(&lines{block: first + line + "\n"})
				candidates, err := formsOf(form.o)
				if err != nil {
					t.Fatal(err)
				}
				name, reader, _, err := recognise(s, candidates, clock{})
				if err != nil {
					t.Fatalf("%v: %q", err, line)
				}
				got := Entry{}
				var d draft
				d.begin(&got, 0, e.Line)
				if err := readLine(reader, line, &d); err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: %v, of %q\n got %+v\nwant %+v", name, err, line, got, want)
				}
			}
		})
	}
}

// Where a server escapes nothing, a line is read as the request was, or not at all.
func TestUnescaped(t *testing.T) {
	for _, form := range []struct {
		name string
		o    Options
		line func(e Entry) string
	}{
		{"envoy", Options{Format: "envoy"}, func(e Entry) string {
			return fmt.Sprintf(`[%s] "%s %s HTTP/2" %d - 154 0 226 100 "%s" "%s" "id" "%s" "tcp://198.51.100.1:80"`, time.UnixMicro(e.At).UTC().Format(time.RFC3339Nano),
				e.Method, e.Target, e.Status, orDash(e.header("Referer")), orDash(e.header("User-Agent")), e.Host)
		}},
		{"traefik", Options{Format: "traefik"}, func(e Entry) string {
			return combinedOf(e, func(text string) string { return text }) + ` 5 "web@docker" "http://198.51.100.2:80" 57ms`
		}},
		{"nginx", Options{Format: `log_format raw escape=none '$msec|$remote_addr|"$request_method $request_uri $server_protocol" $status "$http_referer" "$http_user_agent" "$http_host"'`}, func(e Entry) string {
			return fmt.Sprintf(`%d.%03d|%s|"%s %s HTTP/1.1" %d "%s" "%s" "%s"`, e.At/second, e.At%second/1000, e.Client, e.Method, e.Target, e.Status, e.header("Referer"), e.header("User-Agent"), e.Host)
		}},
	} {
		t.Run(form.name, func(t *testing.T) {
			candidates, err := formsOf(form.o)
			if err != nil {
				t.Fatal(err)
			}
			r, reader, read, unread := rand.New(rand.NewPCG(8, 8)), candidates[0].of(""), 0, 0
			for range 4000 {
				e := wanted(r)
				e.Host, e.User = "shop.example", ""
				line := form.line(e)
				var got Entry
				var d draft
				d.begin(&got, 0, 0)
				if err := readLine(reader, line, &d); err != nil {
					unread++
					continue
				}
				read++
				if got.Method != e.Method || got.Target != e.Target || got.Status != e.Status || form.name != "traefik" && got.Host != e.Host || got.header("User-Agent") != e.header("User-Agent") {
					t.Fatalf("%q\n got %+v\nwant %+v", line, got, e)
				}
			}
			if read < unread {
				t.Errorf("%d are read, %d are not", read, unread)
			}
		})
	}
}

// valid is e with texts as encoding/json writes them.
func valid(e Entry) Entry {
	e.Target, e.User = strings.ToValidUTF8(e.Target, "\ufffd"), strings.ToValidUTF8(e.User, "\ufffd")
	for i := range e.Header {
		e.Header[i].Value = strings.ToValidUTF8(e.Header[i].Value, "\ufffd")
	}
	return e
}

// plainPath is what the access log of Stint has of a request, without a query.
func plainPath(e Entry) Entry {
	path, _, _ := strings.Cut(e.Target, "?")
	e.At -= e.At % 1000
	e.Target, e.User, e.Header = path, "", nil
	return e
}

// slogged is the line of a request in the access log of Stint, whose path is shown as by its gateway.
func slogged(e Entry, handler func(*strings.Builder) slog.Handler) string {
	var b strings.Builder
	record := slog.NewRecord(time.UnixMicro(e.At-e.At%1000).UTC().Add(250*time.Millisecond), slog.LevelInfo, "request", 0)
	path := plainPath(e).Target
	if !isPrintable(path) {
		path = strconv.QuoteToASCII(path)
		path = path[1 : len(path)-1]
	}
	record.AddAttrs(slog.String("method", e.Method), slog.String("host", ""), slog.String("path", path), slog.String("proto", "HTTP/1.1"), slog.Int("status", e.Status),
		slog.Int64("bytes", 5), slog.Float64("seconds", 0.25), slog.String("client", e.Client.String()), slog.String("limit", "100 per 1m"))
	if err := handler(&b).Handle(context.Background(), record); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
