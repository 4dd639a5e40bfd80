package accesslog

import (
	"errors"
	"fmt"
	"strings"
)

// nginxVariables are those that say something about a request. Others are skipped, as is $server_name: it is
// the name of a block of the configuration, and not the host.
var nginxVariables = map[string]variable{
	"remote_addr": {field: field{role: client, rank: 1}, kind: word}, "realip_remote_addr": {field: field{role: client}, kind: word},
	"remote_user": {field: field{role: user}},
	"time_local":  {field: field{role: ended}, kind: common}, "time_iso8601": {field: field{role: ended}, kind: word}, "msec": {field: field{role: ended, rank: 1}, kind: digits},
	"request_time": {field: field{role: took}, kind: digits},
	"request":      {field: field{role: request}}, "request_method": {field: field{role: method}, kind: word},
	"request_uri": {field: field{role: target}}, "uri": {field: field{role: path}}, "document_uri": {field: field{role: path}},
	"args": {field: field{role: query}}, "query_string": {field: field{role: query}}, "is_args": {field: field{role: query}},
	"host": {field: field{role: host}, kind: word}, "status": {field: field{role: status}, kind: digits},
	"body_bytes_sent": {kind: digits}, "bytes_sent": {kind: digits}, "request_length": {kind: digits}, "pid": {kind: digits},
	"connection": {kind: digits}, "connection_requests": {kind: digits}, "server_port": {kind: digits}, "remote_port": {kind: digits},
	"scheme": {kind: word}, "server_protocol": {kind: word}, "server_name": {kind: word}, "server_addr": {kind: word}, "request_id": {kind: word},
}

// compileNginx reads a directive log_format, or what is quoted in it, or the plain format.
func compileNginx(format string) (*template, error) {
	raw, plain := false, format
	if words, ok := nginxWords(format); ok {
		if words[0] == "log_format" {
			if words = words[1:]; len(words) < 2 {
				return nil, errors.New("log_format needs a name and a format")
			}
			words = words[1:]
		}
		if escape, ok := strings.CutPrefix(words[0], "escape="); ok {
			if escape != "default" && escape != "json" && escape != "none" {
				return nil, fmt.Errorf("escape=%.60s: want default, json or none", escape)
			}
			raw, words = escape == "none", words[1:]
		}
		plain = strings.Join(words, "")
	}
	t, err := dollarTemplate(plain, raw, nginxVariable)
	if err != nil && plain != format && !strings.HasPrefix(format, "log_format") {
		if asIs, errAsIs := dollarTemplate(format, raw, nginxVariable); errAsIs == nil { // a format that begins with a quote
			return asIs, nil
		}
	}
	return t, err
}

// nginxWords splits a directive that begins with log_format or a quote into its words, without quotes.
// Anything else is no directive.
func nginxWords(text string) (words []string, ok bool) {
	if text == "" || !strings.HasPrefix(text, "log_format") && !strings.ContainsRune(`'"`, rune(text[0])) && !strings.HasPrefix(text, "escape=") {
		return nil, false
	}
	for text = strings.TrimSpace(text); text != "" && text != ";"; text = strings.TrimSpace(text) {
		if q := text[0]; q == '\'' || q == '"' {
			word, n := nginxQuoted(text)
			if n == 0 || n < len(text) && !strings.ContainsRune(" \t\r\n;", rune(text[n])) {
				return nil, false
			}
			words, text = append(words, word), text[n:]
			continue
		}
		n := strings.IndexAny(text, " \t\r\n;")
		if n < 0 {
			n = len(text)
		}
		if n == 0 { // a semicolon, and more after it
			return nil, false
		}
		words, text = append(words, text[:n]), text[n:]
	}
	return words, len(words) > 0
}

// nginxQuoted reads a quoted word of a configuration and returns the length of what it read; 0: no quote ends it.
func nginxQuoted(text string) (string, int) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == text[0]:
			return b.String(), i + 1
		case c == '\\' && i+1 < len(text) && strings.IndexByte(`"'\trn`, text[i+1]) >= 0:
			i++
			b.WriteByte(map[byte]byte{'t': '\t', 'r': '\r', 'n': '\n', '"': '"', '\'': '\'', '\\': '\\'}[text[i]])
		default:
			b.WriteByte(c)
		}
	}
	return "", 0
}

// dollarTemplate reads a format with variables such as $status and ${status}.
func dollarTemplate(format string, raw bool, variableOf func(name string) variable) (*template, error) {
	var vars []variable
	texts := []string{""}
	for format != "" {
		i := strings.IndexByte(format, '$')
		if i < 0 {
			texts[len(texts)-1] += format
			break
		}
		texts[len(texts)-1] += format[:i]
		format = format[i+1:]
		var name string
		if strings.HasPrefix(format, "{") {
			var ok bool
			if name, format, ok = strings.Cut(format[1:], "}"); !ok {
				return nil, fmt.Errorf("the format has no } after ${%.60s", name)
			}
		} else {
			n := 0
			for n < len(format) && (format[n] == '_' || isDigit(format[n]) || 'a' <= format[n]|0x20 && format[n]|0x20 <= 'z') {
				n++
			}
			name, format = format[:n], format[n:]
		}
		v := variableOf(name)
		v.name = "$" + name
		if n := len(vars); n > 0 && v.role == query && texts[n] == "" && (vars[n-1].role == path || vars[n-1].role == target) {
			vars[n-1].role, vars[n-1].kind = target, free // $uri$is_args$args is the target
			continue
		}
		vars, texts = append(vars, v), append(texts, "")
	}
	return newTemplate(vars, texts, raw)
}

func nginxVariable(name string) variable {
	v := nginxVariables[name]
	if h, ok := strings.CutPrefix(name, "http_"); ok && h != "" {
		v = variable{field: headerField(h)}
	}
	return v
}
