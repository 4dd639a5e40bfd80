package httplimit_test

import (
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/stintdev/stint/httplimit"
)

var proxySocket = netip.MustParseAddr("10.0.0.1")

func trusted(a netip.Addr) bool {
	return behindTen[0].Contains(a) || behindTen[1].Contains(a)
}

// walked is what must hold of every address found, whatever was sent.
func walked(t *testing.T, header string, lines []string) netip.Addr {
	r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{header: lines}}
	before := strings.Join(lines, "\n")
	addr := httplimit.Clients{Trusted: behindTen, Header: header}.Addr(r)
	if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" {
		t.Fatalf("not a plain address: %q", addr)
	}
	if strings.Join(lines, "\n") != before {
		t.Fatal("the request was changed")
	}
	return addr
}

// junkChangesNothing adds junk on the left, on a line of its own and within the
// first line. Where even the leftmost was trusted, an address there would be
// believed, as it should; then junk is what cannot be one.
func junkChangesNothing(t *testing.T, header string, lines []string, junk string, addr netip.Addr) {
	if trusted(addr) {
		junk = "!"
	}
	if got := walked(t, header, append([]string{junk}, lines...)); got != addr {
		t.Fatalf("the line %q on the left made %s of %s", junk, got, addr)
	}
	if len(lines) > 0 {
		glued := append([]string{junk + "," + lines[0]}, lines[1:]...)
		if got := walked(t, header, glued); got != addr {
			t.Fatalf("the element %q on the left made %s of %s", junk, got, addr)
		}
	}
}

// obviousXFF walks the whole list, split the obvious way.
func obviousXFF(lines []string) netip.Addr {
	addr := proxySocket
	elements := strings.Split(strings.Join(lines, ","), ",")
	for hop := 0; hop < 32 && len(elements) > 0; hop++ {
		raw := elements[len(elements)-1]
		elements = elements[:len(elements)-1]
		e := strings.Trim(raw, " \t")
		if len(raw) > 128 {
			break
		}
		if e == "" {
			continue
		}
		named := obviousNode(e)
		if !named.IsValid() {
			break
		}
		if addr = named; !trusted(addr) {
			break
		}
	}
	return addr
}

var (
	portText = regexp.MustCompile(`:([0-9]{1,5}|_[-._0-9A-Za-z]+)$`)
	forText  = regexp.MustCompile(`(?i)for[ \t]*=([^;,\n]*)`)
)

// obviousNode tries each way to write an address.
func obviousNode(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone("")
	}
	host := portText.ReplaceAllString(s, "")
	if strings.HasPrefix(host, "[") && strings.IndexByte(host, ']') == len(host)-1 {
		if a, err := netip.ParseAddr(host[1 : len(host)-1]); err == nil && a.Is6() {
			return a.Unmap().WithZone("")
		}
	} else if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		return a
	}
	return netip.Addr{}
}

func FuzzXForwardedFor(f *testing.F) {
	for _, s := range []string{
		"", "198.51.100.1", "1.1.1.1, 198.51.100.1\n10.0.0.2", "garbage, 10.0.0.2", "[2001:db8::1]:80,::ffff:10.0.0.2",
		"fe80::1%eth0", "[fe80::1%eth0]:_x", ",,\n , 10.0.0.3:80", "unknown", "10.0.0.2,\"", "[::ffff:1.2.3.4]", "::ffff:1.2.3.4%x",
	} {
		f.Add(s, "9.9.9.9")
		f.Add(s, `for="`)
	}
	f.Fuzz(func(t *testing.T, list, junk string) {
		lines := strings.Split(list, "\n")
		addr := walked(t, "X-Forwarded-For", lines)
		if want := obviousXFF(lines); addr != want {
			t.Fatalf("got %s, want %s", addr, want)
		}
		junkChangesNothing(t, "X-Forwarded-For", lines, junk, addr)
	})
}

func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		"", "for=198.51.100.1", `for="[2001:db8::1]:4711";proto=https, for=10.0.0.2`, `for=1.1.1.1, for="a\",b"` + "\nfor=10.0.0.2",
		`for=", for=198.51.100.1`, "for=unknown, for=10.0.0.2", `by="x;y";for=1.1.1.1`, `for="1.1.1.\1"`, `";for=9.9.9.9, for=10.0.0.2`,
		`for=1.1.1.1;host="\\", for=10.0.0.3`, "by=10.0.0.1",
	} {
		f.Add(s, "for=9.9.9.9")
		f.Add(s, `by="`)
	}
	f.Fuzz(func(t *testing.T, list, junk string) {
		lines := strings.Split(list, "\n")
		addr := walked(t, "Forwarded", lines)
		if addr != proxySocket && !stands(addr, list) {
			t.Fatalf("%s stands nowhere in it", addr)
		}
		junkChangesNothing(t, "Forwarded", lines, junk, addr)
	})
}

// stands tells whether some "for" in the text, quoted or not, names addr.
func stands(addr netip.Addr, text string) bool {
	for _, m := range forText.FindAllStringSubmatch(strings.ReplaceAll(text, `\`, ""), -1) {
		if obviousNode(strings.Trim(m[1], " \t\"")) == addr {
			return true
		}
	}
	return false
}
