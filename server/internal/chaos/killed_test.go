package chaos

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

const (
	killed = 1000 // holds
	// holderAddress is the environment variable that makes TestHolder hold them at an address.
	holderAddress = "STINT_CHAOS_HOLDER"
)

func killedLimit() *stint.Limit {
	if long() {
		return stint.MustLimit(fmt.Sprint(killed, " in_flight hold 30s"))
	}
	return stint.MustLimit(fmt.Sprint(killed, " in_flight hold 3s"))
}

// TestHolder is an instance that TestChaosInstanceKilled starts and kills.
func TestHolder(t *testing.T) {
	address := os.Getenv(holderAddress)
	if address == "" {
		t.Skip("TestChaosInstanceKilled runs it in a process of its own")
	}
	s, err := redislimit.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	l := stint.NewLimiter(s)
	var all []*stint.Reservation
	for range killed {
		r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: killedLimit()}}, Deadline: patient})
		if err != nil || r == nil || d.By != stint.ByStore {
			t.Fatal(d, err)
		}
		all = append(all, r)
	}
	fmt.Println("holding", len(all))
	time.Sleep(10 * time.Minute)
	for _, r := range all { // so that they are not dropped before
		_ = r.Cancel(t.Context())
	}
}

// What an instance held when it was killed is free after T, and none of it before 2T/3, because it
// renews every T/3.
func TestChaosInstanceKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	limit := killedLimit()
	last := limit.Spec().Hold
	server := redistest.Start(t)
	s, err := redislimit.Connect(t.Context(), server.URL(), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	held := func() (n int, least, most time.Duration) {
		all, err := s.Held(t.Context(), "k", []*stint.Limit{limit})
		if err != nil {
			t.Fatal(err)
		}
		least = last
		for _, h := range all {
			if h.Left > 0 {
				n, least, most = n+1, min(least, h.Left), max(most, h.Left)
			}
		}
		return n, least, most
	}
	paused := redistest.WatchPauses()
	holder := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	holder.Env = append(os.Environ(), holderAddress+"="+server.URL())
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	holder.Stderr = os.Stderr
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "holding") {
		t.Fatalf("the instance says %q", lines.Text())
	}
	time.Sleep(last + rand.N(last)) // longer than they last without renewal
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	at := time.Now()
	n, least, most := held()
	late := last/20 + time.Since(at) + paused()
	if n != killed || least < last*2/3-late || most > last {
		t.Errorf("when it was killed, %d were held for another %s to %s, want %d for %s to %s", n, least, most, killed, last*2/3, last)
	}
	first := time.Duration(0)
	for n > 0 {
		time.Sleep(5 * time.Millisecond)
		asked := time.Since(at)
		n, _, _ = held()
		if n < killed && first == 0 {
			first = asked
		}
		if n > 0 && asked > last+late {
			t.Fatalf("%d are still held after %s", n, asked)
		}
	}
	all := time.Since(at)
	if d, err := stint.NewLimiter(s).Take(context.Background(), &stint.Request{Hold: stint.NewHoldID(), Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: killed}}}, nil); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	publish(t, "killed", []string{
		"| holds | T | the first is free after | all are after |",
		"| --: | --: | --: | --: |",
		fmt.Sprintf("| %d | %s | %.2f T | %.2f T |", killed, last, first.Seconds()/last.Seconds(), all.Seconds()/last.Seconds()),
	})
}
