// Package chaos proves by test what docs/reliability.md promises: three instances
// decide by one Redis, a Cluster or a Sentinel set, under load, while it fails in
// every way that we know how to bring about. `make chaos` runs it at length and
// writes its tables into measured.md.
package chaos

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/internal/redistest"
)

// Long is the environment variable that makes the proof take minutes rather than
// seconds. Where it names a file, the table goes there, between its markers.
const Long = "STINT_CHAOS"

func long() bool { return os.Getenv(Long) != "" }

// spell is how long each part of a run lasts: before, during and after a fault.
func spell() time.Duration {
	if long() {
		return 2 * time.Second
	}
	return 300 * time.Millisecond
}

// grossly is how late an answer may be before the test fails, beyond what the machine
// paused, which must hold on any machine. The goal, for a machine that has nothing
// else to do, is 50 ms.
const grossly = time.Second

// rows are what was measured, in order.
var rows []string

// Whatever becomes of the store, every decision is made in time, no more is
// admitted than docs/reliability.md says, the store decides again when it can, and
// nothing stays behind.
func TestChaos(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if f.long && !long() || testing.Short() && !f.brief {
				t.Skip("it takes seconds: make chaos")
			}
			f.prove(t)
		})
	}
	if !t.Failed() {
		publish(t, "chaos", append([]string{
			"| fault | decisions | without the store | slowest | 99.9 % within | the machine paused | admitted ÷ bound: spent / hot / cold / tiny | the store decides again after |",
			"| --- | --: | --: | --: | --: | --: | --: | --: |"}, rows...))
	}
}

func (f *fault) prove(t *testing.T) {
	var w world
	address := f.build(t, &w)
	warm := newInstance(t, address) // what a first connection leaves, it leaves here
	warm.close()
	time.Sleep(20 * time.Millisecond)
	before := runtime.NumGoroutine()
	paused := redistest.WatchPauses()
	if f.stays() {
		w.witness = startWitness(t, f.takes, w.addresses()...)
	}
	l := start(t, address)
	l.decides(t)
	time.Sleep(spell())
	f.trouble(t, &w)
	again := l.decides(t)
	time.Sleep(spell())
	close(l.stop)
	l.running.Wait()
	for _, i := range l.fleet {
		i.close()
	}
	if f.stays() {
		w.witness.end()
		w.witness.explain(t, f, l)
	}
	ratios, keys := l.ratios(f)
	slices.Sort(l.took)
	n := len(l.took)
	p999, pause := l.took[n*999/1000], paused()
	rows = append(rows, fmt.Sprintf("| %s | %d | %d %% | %s | %s | %s | %s | %s |", f.name, n, (100*l.local+n-1)/n,
		milliseconds(l.took[n-1]), milliseconds(p999), milliseconds(pause), shown(ratios), milliseconds(again)))
	t.Log(rows[len(rows)-1])
	if l.failed > 0 {
		t.Errorf("%d of %d were not decided: %v", l.failed, n, l.why)
	}
	for i, ratio := range ratios {
		if ratio > 1 {
			t.Errorf("of %s %d were admitted, which is %.2f of what may be", keys[i], l.admitted[keys[i]], ratio)
		}
	}
	if long() && p999 > grossly+pause { // a busy machine pauses others than the one who watches
		t.Errorf("of 1000 answers one took over %s", p999)
	}
	if f.away && l.local == 0 {
		t.Error("the fault did nothing: nobody decided without the store")
	}
	if f.briefly && l.local > n/4 {
		t.Errorf("%d of %d were decided without the store, which was briefly away", l.local, n)
	}
	gone := func() bool { return runtime.NumGoroutine() <= before }
	if !await.So(gone) {
		b := make([]byte, 1<<16)
		t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
	}
}

// ratios are, for each kind, the largest part of its bound that was admitted of a
// key, and of which. What was admitted in the stead of calls that failed comes on
// top, but for what had nothing left and was not lost.
func (l *load) ratios(f *fault) (most [len(kinds)]float64, keys [len(kinds)]string) {
	refilled := 1 + time.Since(l.began).Hours()/24
	for i := range kinds {
		k := &kinds[i]
		lost := float64(int64(f.loses) * k.limit.Capacity())
		if i == spent && f.stays() && l.opened() {
			lost *= 2 - 1./instances // it has some left then, as hot has, and a busy machine shares it
		}
		bound := (k.most + lost) * refilled
		for key, n := range l.admitted {
			of := bound
			if i != spent || f.loses > 0 {
				of += float64(l.doubtful[key])
			}
			if r := float64(n) / of; l.kindOf[key] == k && r > most[i] {
				most[i], keys[i] = r, key
			}
		}
	}
	return most, keys
}

func shown(ratios [len(kinds)]float64) string {
	var all []string
	for _, r := range ratios {
		all = append(all, fmt.Sprintf("%.2f", r))
	}
	return strings.Join(all, " / ")
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// publish writes a table where Long says, between the markers of its name.
func publish(t *testing.T, name string, lines []string) {
	t.Helper()
	t.Logf("%s\n%s", name, strings.Join(lines, "\n"))
	file := os.Getenv(Long)
	if !strings.HasSuffix(file, ".md") {
		return
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := golden.Between(t, string(b), name, strings.Join(lines, "\n")+"\n")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// world is what a fault is brought upon: some of these.
type world struct {
	server  *redistest.Server
	proxy   *redistest.Proxy
	cluster *redistest.Cluster
	watched *redistest.Watched
	witness *witness // where the store stays there
}

// addresses are where a request may go.
func (w *world) addresses() (all []string) {
	if w.cluster == nil {
		return []string{w.proxy.Addr}
	}
	for _, s := range w.cluster.Masters {
		all = append(all, s.Addr)
	}
	return all
}
