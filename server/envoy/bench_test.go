package envoy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

const benchFile = `
domain: bench
descriptors:
  - key: client
    rate_limit: {unit: minute, requests_per_unit: 1000000000}
  - key: hot
    rate_limit: {unit: day, requests_per_unit: 1}
`

// emptyService is what grpc-go costs.
type emptyService struct {
	rls.UnimplementedRateLimitServiceServer
}

func (emptyService) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

// BenchmarkService compares the CPU time that the server takes for a decision with that of services
// of grpc-go that do nothing: empty, as grpc.NewServer makes it, and tuned, which has the goroutines
// that Stint has. Each is a process of its own, and they take turns.
func BenchmarkService(b *testing.B) {
	redis := redistest.Start(b)
	for _, in := range []struct{ name, store string }{{"memory", "memory"}, {"redis", redis.URL()}} {
		for _, key := range []string{"client", "hot"} {
			b.Run(in.name+"/"+key, func(b *testing.B) {
				empty, tuned, ours := startProcess(b, "empty"), startProcess(b, "tuned"), startProcess(b, in.store)
				all := []*process{empty, tuned, ours}
				call := request("bench", key, "192.0.2.1")
				const batch = 2000
				for _, p := range all {
					p.load(b, call, batch)
					p.took = 0
				}
				n := 0
				for b.Loop() {
					for _, p := range all {
						p.load(b, call, batch)
					}
					n += batch
				}
				each := func(p *process) float64 { return float64(p.took.Nanoseconds()) / float64(n) / 1000 }
				b.ReportMetric(each(empty), "empty-cpu-µs")
				b.ReportMetric(each(tuned), "tuned-cpu-µs")
				b.ReportMetric(each(ours), "cpu-µs")
				b.ReportMetric(each(ours)/each(empty), "of-empty")
				b.ReportMetric(each(ours)/each(tuned), "of-tuned")
			})
		}
	}
}

// process is a server in another process.
type process struct {
	client rls.RateLimitServiceClient
	ask    io.WriteCloser
	answer *bufio.Scanner
	took   time.Duration // of CPU, under load
}

// startProcess runs TestBenchmarkProcess in another process, for one store, or as a service that does nothing.
func startProcess(b *testing.B, store string) *process {
	c := exec.Command(os.Args[0], "-test.run=^TestBenchmarkProcess$")
	c.Env = append(os.Environ(), "STINT_BENCHMARK_STORE="+store)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = c.Wait()
	})
	p := &process{ask: in, answer: bufio.NewScanner(out)}
	p.answer.Scan()
	conn, err := grpc.NewClient("passthrough:///"+p.answer.Text(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	p.client = rls.NewRateLimitServiceClient(conn)
	return p
}

// cpu is the CPU time that the process has taken.
func (p *process) cpu(b *testing.B) time.Duration {
	if _, err := io.WriteString(p.ask, "cpu\n"); err != nil {
		b.Fatal(err)
	}
	p.answer.Scan()
	n, err := strconv.ParseInt(p.answer.Text(), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(n)
}

// load makes n calls, 64 at a time.
func (p *process) load(b *testing.B, call *rls.RateLimitRequest, n int) {
	before := p.cpu(b)
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := p.client.ShouldRateLimit(b.Context(), call); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	p.took += p.cpu(b) - before
}

// TestBenchmarkProcess is a server of BenchmarkService.
func TestBenchmarkProcess(t *testing.T) {
	store := os.Getenv("STINT_BENCHMARK_STORE")
	if store == "" {
		t.Skip("only for BenchmarkService")
	}
	var options []grpc.ServerOption
	if store != "empty" {
		options = append(options, grpc.NumStreamWorkers(128))
	}
	if store == "empty" || store == "tuned" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer(options...)
		rls.RegisterRateLimitServiceServer(g, emptyService{})
		go func() { _ = g.Serve(l) }()
		answerCPU(l.Addr())
		return
	}
	set, err := rules.ParseFiles([]rules.File{{Name: "bench.yaml", Data: []byte(benchFile), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	c := server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)}
	if strings.Contains(store, ":") {
		shared, err := redislimit.Connect(t.Context(), store, redislimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.Limiter = stint.NewLimiter(shared)
	}
	decides := server.New(c)
	if err := decides.Open(); err != nil {
		t.Fatal(err)
	}
	decides.Follow(t.Context())
	s, _ := start(t, envoy.Config{Decider: decides, Log: c.Log})
	answerCPU(s.Addr("gRPC"))
}

// answerCPU prints where the server listens, and after each line of input the CPU time of the
// process, until the input ends.
func answerCPU(a net.Addr) {
	fmt.Println(a)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		runtime.Gosched()
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err)
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
}
