// Package runner replaces envoyproxy/ratelimit's runner in its integration tests: it starts "stint envoy",
// with the variables of the settings, and reads statistics from its page.
package runner

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	gostats "github.com/lyft/gostats"

	"github.com/envoyproxy/ratelimit/src/settings"
)

// Runner is a process of Stint.
type Runner struct {
	settings settings.Settings
	store    gostats.Store
	process  *process
}

type process struct {
	sync.Mutex
	cmd *exec.Cmd
}

// NewRunner returns a Runner that has not been started.
func NewRunner(s settings.Settings) Runner {
	page := fmt.Sprintf("http://localhost:%d/stats", s.DebugPort)
	return Runner{settings: s, store: store{inner: gostats.NewStore(gostats.NewNullSink(), false), page: page}, process: new(process)}
}

// GetStatsStore returns the statistics, as on the page at the time of each call.
func (r *Runner) GetStatsStore() gostats.Store { return r.store }

// Run runs the process until Stop.
func (r *Runner) Run() {
	cmd := exec.Command(os.Getenv("STINT"), "envoy", "--admin-listen=off", "--probe-listen=off")
	cmd.Env = append(os.Environ(), variables(&r.settings)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	r.process.Lock()
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	r.process.cmd = cmd
	r.process.Unlock()
}

// Stop ends the process.
func (r *Runner) Stop() {
	r.process.Lock()
	defer r.process.Unlock()
	if r.process.cmd != nil {
		_ = r.process.cmd.Process.Signal(syscall.SIGTERM)
		_ = r.process.cmd.Wait()
	}
}

// variables are the environment variables of settings that differ from their defaults.
func variables(s *settings.Settings) []string {
	// A busy machine is late, and their own tests have no time limit.
	set := []string{"STINT_ENVOY_EACH=" + strconv.FormatBool(!s.StopCacheKeyIncrementWhenOverlimit), "STINT_DECISION_TIMEOUT=5s"}
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name := f.Tag.Get("envconfig"); name != "" {
			if text := format(v.Field(i).Interface()); text != f.Tag.Get("default") {
				set = append(set, name+"="+text)
			}
		}
	}
	return set
}

func format(value any) string {
	switch v := value.(type) {
	case map[string]string:
		var pairs []string
		for name, value := range v {
			pairs = append(pairs, name+":"+value)
		}
		return strings.Join(pairs, ",")
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		if v == 0 {
			return "0"
		}
	}
	return fmt.Sprint(value)
}

// store reads a value from the page whenever it is asked for.
type store struct {
	inner
	page string
}

type inner = gostats.Store

// Flush does nothing: the page has the current values.
func (s store) Flush() {}

// NewCounter returns a counter that has its value on the page.
func (s store) NewCounter(name string) gostats.Counter {
	c := s.inner.NewCounter(name)
	c.Set(s.read(name))
	return c
}

// NewCounterWithTags is NewCounter: the page has no tags, which are the same for all.
func (s store) NewCounterWithTags(name string, _ map[string]string) gostats.Counter {
	return s.NewCounter(name)
}

// NewGauge returns a gauge that has its value on the page.
func (s store) NewGauge(name string) gostats.Gauge {
	g := s.inner.NewGauge(name)
	g.Set(s.read(name))
	return g
}

// read returns 0 for a name that the page does not have.
func (s store) read(name string) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.page, nil)
	if err != nil {
		panic(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+": "); ok {
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				panic(err)
			}
			return n
		}
	}
	return 0
}
