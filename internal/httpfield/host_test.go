package httpfield_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/httpfield"
)

func TestReadHost(t *testing.T) {
	for host, want := range map[string]string{
		"": "", "Example.COM": "example.com", "example.com.": "example.com", "example.com:8080": "example.com", "example.com.:80": "example.com",
		"a_b~c-d.example": "a_b~c-d.example", "192.0.2.1:1": "192.0.2.1", "[2001:DB8::1]": "2001:db8::1", "[::1]:443": "::1", "example.com:": "example.com",
	} {
		if got, err := httpfield.ReadHost(host); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", host, got, err, want)
		}
	}
	for _, host := range strings.Fields("a:80:80 a:x a@b a%41 a,b a/b :80 [::1 [::1]x [a] [::1%25eth0] [192.0.2.1] ::1 \u00fc") {
		if got, err := httpfield.ReadHost(host); err == nil {
			t.Errorf("%q is read as %q", host, got)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "0.0.0.0": false, "::": false, "192.0.2.1": false, "localhost.example": false,
	} {
		if got := httpfield.IsLoopback(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
	for address, want := range map[string]bool{"localhost:1": true, "[::1]:1": true, ":1": false, "127.0.0.1": false} {
		if got := httpfield.IsLoopbackAddress(address); got != want {
			t.Errorf("%q: %t", address, got)
		}
	}
}
