package server_test

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// attacked is a gateway, or what stands in the place of one, before a real upstream.
type attacked struct {
	addr   string
	counts *countingBy
	up     *understanding

	// late are requests that were counted and have not been understood yet. Those whose
	// bodies break off are told of later, if at all.
	late []counted

	sent, counted, understood, unfinished int
}

func newAttacked(t *testing.T, up *understanding, file string, changes ...func(*server.Config)) *attacked {
	a := &attacked{counts: &countingBy{Store: new(stint.Memory)}, up: up}
	changes = append([]func(*server.Config){over(a.counts), routes(
		config.Route{Path: "/", Upstream: a.up.url},
		config.Route{Path: "/files", Name: "files", Upstream: a.up.url},
	)}, changes...)
	a.addr = start(t, newServer(t, file, changes...)).gateway
	return a
}

// ending ends an assault over HTTP/1.1: a body that was announced too long, and then a
// request after which the connection is closed.
const ending = "GET /end HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"

// patience is how long an assault may take to be answered. What takes longer is told with a later one: this decides
// nothing, unless it is expected that it reaches the upstream.
func (x *assault) patience() time.Duration {
	if x.target != "" {
		return 20 * time.Second
	}
	return 250 * time.Millisecond
}

// send sends x, and returns when it is answered or the connection is closed.
func (a *attacked) send(t *testing.T, x *assault) (finished bool) {
	c, err := net.Dial("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(x.patience()))
	if x.http2 {
		return sendFields(c, x.pieces)
	}
	text := x.text()
	if x.target == "" {
		text += "\r\n\r\n" + ending + ending + ending
	}
	_, _ = io.WriteString(c, text)
	_, err = io.Copy(io.Discard, c)
	return !os.IsTimeout(err)
}

// sendFields sends a request over HTTP/2, and returns when it is answered.
func sendFields(c net.Conn, pieces []string) (finished bool) {
	var fields []hpack.HeaderField
	body := ""
	for _, p := range pieces {
		if name, value, _ := strings.Cut(p, "\x00"); name == "" {
			body += value
		} else {
			fields = append(fields, hpack.HeaderField{Name: name, Value: value})
		}
	}
	_, err := askHTTP2(c, fields, body)
	return !os.IsTimeout(err)
}

// assail sends all and says what of it the upstream understands in another way than the
// gateway counted it; "": nothing.
func (a *attacked) assail(t *testing.T, all ...*assault) string {
	targets := map[string]string{} // by id
	for _, x := range all {
		if !a.send(t, x) {
			a.unfinished++
		}
		if x.target != "" {
			targets[x.id] = x.target
		}
	}
	told := a.up.take(t)
	fresh := a.counts.take()
	a.sent, a.counted, a.understood = a.sent+len(all), a.counted+len(fresh), a.understood+len(told)
	pool := append(a.late, fresh...)
	a.late = nil
	for _, u := range told {
		if raw, target := u.one("raw"), targets[u.one("id")]; target != "" && raw != target {
			return fmt.Sprintf("%q reached the upstream as %q", target, raw)
		}
		var why []string
		i := slices.IndexFunc(pool, func(c counted) bool {
			if c["id"] != u.one("id") {
				return false
			}
			what := u.faces(c)
			why = append(why, what)
			return what == ""
		})
		if i < 0 {
			return fmt.Sprintf("%s\nunderstood:%s\ncounted: %q", cmp.Or(strings.Join(why, "; or: "), "a request that was not counted"), u, pool)
		}
		pool = slices.Delete(pool, i, i+1)
	}
	a.late = pool[max(0, len(pool)-100):]
	return ""
}

// again is assail of what found something before, when all that is late has been told.
func (a *attacked) again(t *testing.T, x *assault) string {
	time.Sleep(2 * time.Millisecond)
	a.up.take(t)
	a.late = nil
	a.counts.take()
	return a.assail(t, x)
}

// minimise makes x as small as it still finds something, and says what. It is "" if x
// alone finds nothing.
func (a *attacked) minimise(t *testing.T, x *assault) (*assault, string) {
	found := a.again(t, x)
	if found == "" {
		return x, ""
	}
	left := 600 // tries
	try := func(pieces []string) bool {
		if left--; left < 0 {
			return false
		}
		smaller := &assault{http2: x.http2, pieces: pieces}
		why := a.again(t, smaller)
		if why != "" {
			x, found = smaller, why
		}
		return why != ""
	}
	for size := len(x.pieces) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(x.pieces); {
			if !try(slices.Delete(slices.Clone(x.pieces), at, at+size)) {
				at += size
			}
		}
	}
	for i := range x.pieces {
		for size := len(x.pieces[i]) / 2; size > 0; size /= 2 {
			for at := 0; at+size <= len(x.pieces[i]); {
				shorter := slices.Clone(x.pieces)
				shorter[i] = shorter[i][:at] + shorter[i][at+size:]
				if !try(shorter) {
					at += size
				}
			}
		}
	}
	return x, found
}

// explain tells of the smallest assault that finds something, from one of the last ones,
// of which the last found that.
func (a *attacked) explain(t *testing.T, last []*assault, found string) string {
	for _, x := range slices.Backward(last) {
		if smaller, now := a.minimise(t, x); now != "" {
			return fmt.Sprintf("%s\nmakes %s", smaller, now)
		}
	}
	return fmt.Sprintf("%s, which make nothing when each is sent alone, make %s", last, found)
}
