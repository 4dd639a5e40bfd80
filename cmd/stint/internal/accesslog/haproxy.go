package accesslog

import "strings"

// haproxy reads lines of HAProxy's option httplog and httpslog, after whatever syslog or a service manager
// puts before them. Its times have no zone.
//
//	192.0.2.7:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"
type haproxy struct{}

var haproxyFields = []field{{role: arrived}, {role: peer}, {role: status}, {role: request}}

func (haproxy) read(line string, d *draft) error {
	const length = len("[06/Feb/2009:12:14:14.655] ")
	at := 0
	for { // the time is the first thing of its shape
		i := strings.Index(line[at:], " [")
		if i < 0 || at+i+1+length > len(line) {
			return errOfForm
		}
		if at += i + 1; line[at+3] == '/' && line[at+21] == '.' && line[at+25] == ']' && line[at+26] == ' ' {
			break
		}
	}
	from, rest := strings.LastIndexByte(line[:at-1], ' ')+1, line[at+length:]
	// The frontend, the backend with its server, times, the status.
	for range 3 {
		i := strings.IndexByte(rest, ' ')
		if i < 0 || strings.IndexByte(rest[:i], '"') >= 0 {
			return errOfForm
		}
		rest = rest[i+1:]
	}
	code, rest, ok := strings.Cut(rest, " ")
	open := strings.IndexByte(rest, '"') // what is captured has its quotes escaped
	if !ok || open < 0 || from >= at-1 {
		return errOfForm
	}
	end := strings.IndexByte(rest[open+1:], '"')
	if end < 0 {
		return errOfForm
	}
	for i, text := range [...]string{line[at+1 : at+25], line[from : at-1], code, unescapeHash(rest[open+1 : open+1+end])} {
		if err := d.put(&haproxyFields[i], text); err != nil {
			return err
		}
	}
	return nil
}
