package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/await"
)

// Watched is a master with replicas that Sentinels watch, by the name mymaster.
type Watched struct {
	Master    *Server // at the start; a failover makes another one master
	Replicas  []*Server
	Sentinels []*Server
}

// StartSentinel starts a Sentinel, its master, named mymaster, and a replica. See Start.
func StartSentinel(t testing.TB) (sentinel, master, replica *Server) {
	t.Helper()
	w := StartWatched(t, 1, 1)
	return w.Sentinels[0], w.Master, w.Replicas[0]
}

// StartWatched starts Sentinels, of which most must agree, over a master with replicas. See Start.
func StartWatched(t testing.TB, replicas, sentinels int) *Watched {
	t.Helper()
	w := &Watched{Master: Start(t, "--repl-diskless-sync-delay", "0")}
	host, port, err := net.SplitHostPort(w.Master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	for range replicas {
		w.Replicas = append(w.Replicas, Start(t, "--replicaof", host, port, "--repl-diskless-sync-delay", "0"))
	}
	for _, r := range w.Replicas {
		await.Until(t, "a replica follows its master", r.follows)
	}
	config := fmt.Sprintf("sentinel monitor mymaster %s %s %d\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n",
		host, port, sentinels/2+1)
	for range sentinels {
		s := prepare(t)
		file := filepath.Join(s.Dir, "sentinel.conf")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		s.start(t, file, "--sentinel")
		w.Sentinels = append(w.Sentinels, s)
	}
	for _, s := range w.Sentinels {
		await.Until(t, "a Sentinel sees the replicas and the others", func() bool {
			r, err := s.Do(t, "SENTINEL", "REPLICAS", "mymaster").ToArray()
			o, err2 := s.Do(t, "SENTINEL", "SENTINELS", "mymaster").ToArray()
			return err == nil && err2 == nil && len(r) == replicas && len(o) == sentinels-1
		})
	}
	return w
}

// URL is the address for redislimit.Open.
func (w *Watched) URL() string {
	var hosts []string
	for _, s := range w.Sentinels {
		hosts = append(hosts, s.Addr)
	}
	return "redis+sentinel://" + strings.Join(hosts, ",") + "/mymaster"
}

// Failover makes a Sentinel promote a replica while the master works.
func (w *Watched) Failover(t testing.TB) *Server {
	t.Helper()
	await.Until(t, "the Sentinel finds the replica good enough", func() bool {
		_, err := w.Sentinels[0].Try("SENTINEL", "FAILOVER", "mymaster")
		return err == nil
	})
	return w.AwaitMaster(t)
}

// AwaitMaster waits until a replica is master and every Sentinel says so.
func (w *Watched) AwaitMaster(t testing.TB) (now *Server) {
	t.Helper()
	await.Until(t, "all Sentinels name a new master", func() bool {
		for i, s := range w.Sentinels {
			m, err := s.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
			if err != nil {
				return false
			}
			address, _ := m.AsStrSlice()
			if len(address) != 2 {
				return false
			}
			named := net.JoinHostPort(address[0], address[1])
			if named == w.Master.Addr || i > 0 && named != now.Addr {
				return false
			}
			for _, r := range w.Replicas {
				if r.Addr == named {
					now = r
				}
			}
		}
		return now != nil && now.IsMaster()
	})
	return now
}
