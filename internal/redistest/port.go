package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// reserved are the ports already given out, so that servers prepared together differ, with their
// locks against other processes.
var reserved sync.Map

// FreePort finds a free port whose neighbour 10000 above, a Cluster node's bus, is free, too. Both are
// below the system's ports for outgoing connections, which could take the port before the server does.
// Nobody else gets the port while this process runs.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(10_000)
		// Reserve first: otherwise checking the port could take it from a server that is starting.
		if _, taken := reserved.Load(port); !taken && reserve(port) && isFree(port) && isFree(port+10_000) {
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
