package main

import (
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	var p progress
	p.requests.Store(3_000_000)
	for _, c := range []struct {
		read, total int64
		want        string
	}{
		{0, 0, "3,000,000 requests, 1,500,000 a second"},
		{100, 0, "3,000,000 requests, 1,500,000 a second"},
		{0, 400, "3,000,000 requests, 1,500,000 a second"},
		{100, 400, "3,000,000 requests, 1,500,000 a second, 25%, 6s left"},
		{400, 400, "3,000,000 requests, 1,500,000 a second, 100%, 0s left"},
		{500, 400, "3,000,000 requests, 1,500,000 a second"}, // the file has grown
	} {
		if got := p.line(c.read, c.total, 2*time.Second); got != c.want {
			t.Errorf("%d of %d: %s", c.read, c.total, got)
		}
	}
}
