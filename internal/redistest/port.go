package redistest

import (
	"fmt"
	"net"
	"sync"
	"testing"
)

// given are the ports already given out, so that servers prepared together differ.
var given sync.Map

// freePort finds a free port whose neighbour 10000 above, a Cluster node's bus, is free, too.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if port+10000 > 65535 {
			port -= 20000
		}
		if !isFree(port) || !isFree(port+10000) {
			continue
		}
		if _, taken := given.LoadOrStore(port, true); !taken {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
