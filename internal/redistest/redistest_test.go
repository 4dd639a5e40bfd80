package redistest_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
)

// resident is the memory of a server's process in KiB, 0 where it cannot be told.
func resident(s *redistest.Server) int {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(s.Pid()) + "/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

func account(t *testing.T, what string, began time.Time, all []*redistest.Server) {
	t.Helper()
	kib := 0
	for _, s := range all {
		kib += resident(s)
	}
	t.Logf("%s: %s to start, %d MiB resident, Redis says it is %s", what, time.Since(began).Round(time.Millisecond), kib>>10, all[0].Info("server", "redis_version"))
}

// A Cluster moves slots, makes masters of replicas, asked and unasked, and leaves
// no process.
func TestCluster(t *testing.T) {
	var all []*redistest.Server
	t.Run("life", func(t *testing.T) {
		began := time.Now()
		c := redistest.StartReplicated(t, 3, 1)
		all = c.All()
		account(t, "a Cluster of 6", began, all)
		slot := c.Slot(t, "key")
		from := c.Owner(slot)
		c.Masters[from].Do(t, "SET", "key", "value")
		c.MoveSlot(t, slot, from, (from+1)%3, 0)
		if got, err := c.Masters[(from+1)%3].Do(t, "GET", "key").ToString(); got != "value" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		began = time.Now()
		c.Promote(t, c.Replicas[0])
		t.Logf("promoted in %s", time.Since(began).Round(time.Millisecond))
		if testing.Short() {
			return
		}
		began = time.Now()
		c.Masters[1].Kill()
		c.AwaitMaster(t, c.Replicas[1])
		t.Logf("a killed master had a successor in %s", time.Since(began).Round(time.Millisecond))
		c.Masters[1].Begin(t)
	})
	gone(t, all)
}

func TestSentinels(t *testing.T) {
	var all []*redistest.Server
	t.Run("life", func(t *testing.T) {
		began := time.Now()
		w := redistest.StartWatched(t, 2, 3)
		all = append(append([]*redistest.Server{w.Master}, w.Replicas...), w.Sentinels...)
		account(t, "a master, 2 replicas, 3 Sentinels", began, all)
		if testing.Short() {
			return
		}
		began = time.Now()
		w.Master.Pause(t)
		w.AwaitMaster(t)
		t.Logf("a frozen master had a successor in %s", time.Since(began).Round(time.Millisecond))
	})
	gone(t, all)
}

// gone wants the processes ended that a test started.
func gone(t *testing.T, all []*redistest.Server) {
	t.Helper()
	for _, s := range all {
		if err := syscall.Kill(s.Pid(), 0); err == nil {
			t.Errorf("process %d lives on", s.Pid())
		}
		if _, err := os.Stat(s.Dir); err == nil {
			t.Errorf("%s is left", s.Dir)
		}
	}
}

// echo is a server that sends back what it is sent.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

// Each toxic does what its name says. Times are held to their lower bounds only.
func TestProxy(t *testing.T) {
	p := redistest.StartProxy(t, echo(t))
	sent := bytes.Repeat([]byte("x"), 100)
	// through is what comes back of what was sent, until the connection ends or
	// nothing has come for long, and how long that took. Only what stalls is not waited for.
	through := func(x redistest.Toxic, during func()) (string, time.Duration, error) {
		t.Helper()
		p.Set(redistest.Toxic{})
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		back := make([]byte, len(sent))
		_, _ = c.Write(sent[:1]) // the connection is made
		if _, err := io.ReadFull(c, back[:1]); err != nil {
			t.Fatal(err)
		}
		p.Set(x)
		began := time.Now()
		_, _ = c.Write(sent)
		if during != nil {
			during()
		}
		patience := 30 * time.Second
		if x.Stall && during == nil {
			patience = 500 * time.Millisecond
		}
		_ = c.SetReadDeadline(began.Add(patience))
		n, err := io.ReadFull(c, back)
		return string(back[:n]), time.Since(began), err
	}
	if got, _, err := through(redistest.Toxic{}, nil); got != string(sent) || err != nil {
		t.Errorf("none: %q, %v", got, err)
	}
	if _, took, err := through(redistest.Toxic{Latency: 50 * time.Millisecond, Jitter: 10 * time.Millisecond}, nil); took < 40*time.Millisecond || err != nil {
		t.Errorf("latency: %s, %v", took, err)
	}
	if _, took, err := through(redistest.Toxic{Bandwidth: 1000}, nil); took < 70*time.Millisecond || err != nil {
		t.Errorf("bandwidth: %s, %v", took, err)
	}
	if got, _, err := through(redistest.Toxic{Cut: 11}, nil); len(got) != 10 || err == nil {
		t.Errorf("cut: %d bytes, %v", len(got), err)
	}
	if got, took, err := through(redistest.Toxic{Stall: true}, nil); got != "" || took < 500*time.Millisecond || err == nil {
		t.Errorf("stall: %q, %s, %v", got, took, err)
	}
	if _, _, err := through(redistest.Toxic{Stall: true}, p.Reset); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("reset: %v", err)
	}
	if got, _, _ := through(redistest.Toxic{Lie: bytes.ToUpper}, nil); got != strings.ToUpper(string(sent)) {
		t.Errorf("lie: %q", got)
	}
	p.Set(redistest.Toxic{Refuse: true})
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("refuse: something was read")
	}
}
