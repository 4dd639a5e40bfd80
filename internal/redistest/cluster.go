package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint/internal/await"
)

const slots = 16384

// nodeTimeout is how long a silent node counts as alive.
const nodeTimeout = 1 * time.Second

// Cluster is a Cluster of a test's own.
type Cluster struct {
	Masters  []*Server // at the start; a failover makes others masters
	Replicas []*Server // of the master at the same place, then again from the first
}

// StartCluster starts a Cluster of n masters without replicas and returns its servers. See Start.
func StartCluster(t testing.TB, n int) []*Server {
	t.Helper()
	return StartReplicated(t, n, 0).Masters
}

// StartReplicated starts a Cluster of masters with this number of replicas each, from the
// configuration that redis-cli --cluster create would make.
func StartReplicated(t testing.TB, masters, replicas int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range masters {
		c.Masters = append(c.Masters, prepare(t))
	}
	for range masters * replicas {
		c.Replicas = append(c.Replicas, prepare(t))
	}
	shards := knowsShards(t)
	for i, s := range c.All() {
		if err := os.WriteFile(filepath.Join(s.Dir, "nodes.conf"), []byte(c.config(i, shards)), 0o600); err != nil {
			t.Fatal(err)
		}
		s.start(t, "--save", "", "--appendonly", "no", "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10), "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
	}
	for _, s := range c.Masters {
		await.Until(t, "the Cluster is up", s.clusterIsUp)
	}
	for _, s := range c.Replicas {
		await.Until(t, "a replica follows its master", s.follows)
	}
	for _, s := range c.All() {
		await.Until(t, "a node sees who belongs to which shard", func() bool { return s.sees(masters, replicas) })
	}
	return c
}

// All are the servers, masters first.
func (c *Cluster) All() []*Server {
	return append(append([]*Server{}, c.Masters...), c.Replicas...)
}

// URL is the Cluster's address for redislimit.Open.
func (c *Cluster) URL() string {
	var hosts []string
	for _, s := range c.All() {
		hosts = append(hosts, s.Addr)
	}
	return "redis+cluster://" + strings.Join(hosts, ",")
}

func id(place int) string { return fmt.Sprintf("%040x", place+1) }

// config is the initial Cluster configuration of the node at a place.
func (c *Cluster) config(self int, shards bool) string {
	var b strings.Builder
	n := len(c.Masters)
	for i, s := range c.All() {
		flags, master, epoch, owns, more := "master", "-", i%n+1, "", ""
		if shards {
			more = ",,tls-port=0,shard-id=" + id(i%n)
		}
		if i < n {
			owns = fmt.Sprintf(" %d-%d", i*slots/n, (i+1)*slots/n-1)
		} else {
			flags, master = "slave", id(i%n)
		}
		if i == self {
			flags = "myself," + flags
		}
		port, _ := strconv.Atoi(s.port())
		fmt.Fprintf(&b, "%s %s@%d%s %s %s 0 0 %d connected%s\n", id(i), s.Addr, port+10000, more, flags, master, epoch, owns)
	}
	fmt.Fprintf(&b, "vars currentEpoch %d lastVoteEpoch 0\n", n)
	return b.String()
}

// knowsShards reports whether nodes name shards, as from Redis 7.2 on. Older nodes refuse names;
// newer ones never agree without.
func knowsShards(t testing.TB) bool {
	t.Helper()
	out, err := exec.Command(program(t), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(out), "v=")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("%q has no version", out)
	}
	return major > 7 || major == 7 && minor >= 2
}

func (s *Server) clusterIsUp() bool {
	m, err := s.Try("CLUSTER", "INFO")
	if err != nil {
		return false
	}
	text, _ := m.ToString()
	return fieldOf(text, "cluster_state") == "ok"
}

// sees reports whether CLUSTER SHARDS has every node in its place. Servers before 7.0 lack it.
func (s *Server) sees(masters, replicas int) bool {
	m, err := s.Try("CLUSTER", "SHARDS")
	if err != nil {
		return strings.Contains(strings.ToLower(err.Error()), "unknown subcommand")
	}
	shards, _ := m.ToArray()
	for i := range shards {
		shard, _ := shards[i].AsMap()
		nodes, slots := shard["nodes"], shard["slots"]
		all, _ := nodes.ToArray()
		owned, _ := slots.ToArray()
		if len(all) != 1+replicas || len(owned) != 2 {
			return false
		}
	}
	return len(shards) == masters
}

func (s *Server) follows() bool { return s.Info("replication", "master_link_status") == "up" }

// IsMaster reports whether the server is a master, as far as it knows.
func (s *Server) IsMaster() bool { return s.Info("replication", "role") == "master" }

// Promote makes a replica the master, with the master's help, and waits until it is.
func (c *Cluster) Promote(t testing.TB, replica *Server) {
	t.Helper()
	replica.Do(t, "CLUSTER", "FAILOVER")
	c.AwaitMaster(t, replica)
}

// AwaitMaster waits until a replica has become a master and its Cluster is up.
func (c *Cluster) AwaitMaster(t testing.TB, replica *Server) {
	t.Helper()
	await.Until(t, "the replica is a master", func() bool { return replica.IsMaster() && replica.clusterIsUp() })
}

// Remove takes a server out of the Cluster; a master only after its replica was promoted. The server
// continues alone with its connections.
func (c *Cluster) Remove(t testing.TB, out *Server) {
	t.Helper()
	place := slices.Index(c.All(), out)
	if place < len(c.Masters) {
		c.Promote(t, c.Replicas[place])
		await.Until(t, "the one to be removed is a replica", func() bool { return !out.IsMaster() })
	}
	for _, s := range c.All() {
		if s != out {
			s.Do(t, "CLUSTER", "FORGET", id(place))
		}
	}
	out.Do(t, "CLUSTER", "RESET", "HARD")
}

// Slot is the slot of a key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	n, err := c.Masters[0].Do(t, "CLUSTER", "KEYSLOT", key).AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// Owner is the index of the master that has a slot at the start.
func (c *Cluster) Owner(slot int) int {
	n := len(c.Masters)
	for i := range n {
		if slot < (i+1)*slots/n {
			return i
		}
	}
	return n - 1
}

// MoveSlot moves a slot and its keys between Masters as redis-cli --cluster reshard does, with
// pauses between its steps.
func (c *Cluster) MoveSlot(t testing.TB, slot, from, to int, rest time.Duration) {
	t.Helper()
	ctx, s := context.Background(), strconv.Itoa(slot)
	dial := func(s *Server) rueidis.Client {
		t.Helper()
		r, err := s.dial()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	source := dial(c.Masters[from])
	defer source.Close()
	target := dial(c.Masters[to])
	defer target.Close()
	do := func(r rueidis.Client, args ...string) rueidis.RedisResult {
		t.Helper()
		result := r.Do(ctx, r.B().Arbitrary(args...).Build())
		if err := result.Error(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		time.Sleep(rest)
		return result
	}
	do(target, "CLUSTER", "SETSLOT", s, "IMPORTING", id(from))
	do(source, "CLUSTER", "SETSLOT", s, "MIGRATING", id(to))
	for {
		keys, err := do(source, "CLUSTER", "GETKEYSINSLOT", s, "10").AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		do(source, append([]string{"MIGRATE", "127.0.0.1", c.Masters[to].port(), "", "0", "5000", "KEYS"}, keys...)...)
	}
	do(target, "CLUSTER", "SETSLOT", s, "NODE", id(to))
	do(source, "CLUSTER", "SETSLOT", s, "NODE", id(to))
}
