package redistest

import (
	"fmt"
	"net"
	"sync"
	"testing"
)

// given are the ports that this process has given out, so that servers that are
// prepared before they are started do not get the same.
var given sync.Map

// freePort finds a port that is free and whose neighbour 10000 above is, too: that
// is where a Cluster node's bus listens.
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
