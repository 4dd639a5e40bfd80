package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A geoRow is nginx with a number of networks in `geo`, which each request looks up once or several times: what
// one look-up takes is small beside a request.
type geoRow struct {
	networks, looks int
	process         *nginx
	result
}

// manyLooks are few, because nginx has a tree for each, and they share the processor's caches.
const manyLooks = 8

// openGeo starts nginx for each size, twice. The caller ends all.
func openGeo(program string, sizes []int) (all []*geoRow, err error) {
	for _, n := range sizes {
		for _, looks := range []int{1, manyLooks} {
			row := &geoRow{networks: n, looks: looks, result: result{subject: &subject{name: "nginx", kind: peer}}}
			if row.process, err = startNginx(program, n, looks); err != nil {
				return all, fmt.Errorf("nginx with %d networks: %w", n, err)
			}
			all = append(all, row)
		}
	}
	return all, nil
}

// ask makes the requests in turn so many times, and adds the CPU time of nginx to s.
func (g *geoRow) ask(times int, s *sample) error {
	before, err := g.process.cpu()
	if err != nil {
		return err
	}
	for range times {
		if err := g.process.ask(); err != nil {
			return err
		}
		s.Calls += requestsInTurn
	}
	after, err := g.process.cpu()
	s.CPU += float64(after-before) / 1e9
	return err
}

// measureGeo is a round of measure for nginx. All take many short turns, because what is looked for are small
// differences between them, and the machine is not equally fast at all times.
func (r *ruleRun) measureGeo(round int) error {
	turns := 16
	if r.slice < 10*time.Millisecond {
		turns = 1
	}
	samples := make([]sample, len(r.geo))
	for turn := range turns {
		for j := range r.geo {
			i := (j + turn + round + 1) % len(r.geo)
			if err := r.geo[i].ask(4, &samples[i]); err != nil {
				return err
			}
		}
	}
	for i, row := range r.geo {
		if round >= 0 {
			row.Samples = append(row.Samples, samples[i])
		}
	}
	return nil
}

func (r *ruleRun) endGeo() {
	for _, row := range r.geo {
		row.process.end()
	}
}

// nginx is a process that answers with what its networks say of the request's address.
type nginx struct {
	dir, addr string
	process   *exec.Cmd
	conn      net.Conn
	answers   *bufio.Reader
	requests  []byte   // all in turn
	want      []string // their answers
}

const nginxConf = `daemon off;
master_process off;
error_log stderr crit;
pid nginx.pid;
events {}
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  variables_hash_max_size 4096;
  variables_hash_bucket_size 128;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  set_real_ip_from 127.0.0.0/8;
  real_ip_header X-Real-IP;
%s  server {
    listen %s;
    location / { return 200 "%s"; }
  }
}
`

func startNginx(program string, networks, looks int) (p *nginx, err error) {
	p = &nginx{}
	if p.addr, err = freeAddress(); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "stint-bench-"); err != nil {
		return nil, err
	}
	if err = p.start(program, networks, looks); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

func (p *nginx) start(program string, networks, looks int) error {
	var list, blocks, text strings.Builder
	for i := range networks {
		fmt.Fprintf(&list, "%s/32 %07d;\n", ruleAddress(i), i)
	}
	for i := range looks {
		fmt.Fprintf(&blocks, "  geo $n%d { include networks; }\n", i)
		fmt.Fprintf(&text, "${n%d}", i)
	}
	for _, i := range numbers(networks) {
		p.requests = fmt.Appendf(p.requests, "GET / HTTP/1.1\r\nHost: bench\r\nX-Real-IP: %s\r\n\r\n", ruleAddress(i))
		p.want = append(p.want, strings.Repeat(fmt.Sprintf("%07d", i), looks))
	}
	if err := errors.Join(os.WriteFile(filepath.Join(p.dir, "networks"), []byte(list.String()), 0o644),
		os.WriteFile(filepath.Join(p.dir, "nginx.conf"), fmt.Appendf(nil, nginxConf, blocks.String(), p.addr, text.String()), 0o644)); err != nil {
		return err
	}
	p.process = exec.Command(program, "-p", p.dir, "-c", "nginx.conf")
	p.process.Stderr = os.Stderr
	if err := p.process.Start(); err != nil {
		return err
	}
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // it reads its networks first
		if p.conn, err = net.Dial("tcp", p.addr); err == nil {
			p.answers = bufio.NewReader(p.conn)
			return p.ask()
		}
	}
	return err
}

// ask makes all requests at once and checks the answers.
func (p *nginx) ask() error {
	if err := p.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := p.conn.Write(p.requests); err != nil {
		return err
	}
	for _, want := range p.want {
		answer, err := http.ReadResponse(p.answers, nil)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil || string(text) != want {
			return fmt.Errorf("nginx answered %q, want %q (%v)", text, want, err)
		}
	}
	return nil
}

// cpu is the CPU time of the process, in ns.
func (p *nginx) cpu() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(int32(^p.process.Process.Pid<<3|cpuTime), &t)
	return t.Nano(), err
}

func (p *nginx) end() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	if p.process != nil && p.process.Process != nil {
		_ = p.process.Process.Kill()
		_ = p.process.Wait()
	}
	_ = os.RemoveAll(p.dir)
}

// nginxVersion is as nginx itself says it.
func nginxVersion(program string) string {
	text, err := exec.Command(program, "-v").CombinedOutput()
	if err != nil {
		return "nginx"
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(text)), "/")
	return "nginx " + version
}

// perRequest is the CPU time of a request, in ns, in each round.
func (g *geoRow) perRequest() []float64 {
	return g.each(func(s *sample) float64 { return s.CPU * 1e9 / float64(s.Calls) })
}

// perLook is the time of one look-up, in ns, in each round: what many add to a request with one.
func perLook(one, many *geoRow) []float64 {
	all, few := many.perRequest(), one.perRequest()
	for i := range all {
		all[i] = (all[i] - few[i]) / float64(many.looks-one.looks)
	}
	return all
}

// beside is the median of times in ns, and how many times as long as the others they are, round by round. A
// difference is not measurable if the middle half of the rounds has both signs, nor is a multiple if a time has.
func beside(times, others []float64) string {
	text := duration(spreadOf(times).middle)
	if slices.Equal(times, others) {
		return text
	}
	more, ratios := make([]float64, len(times)), make([]float64, len(times))
	for i := range times {
		more[i], ratios[i] = times[i]-others[i], times[i]/others[i]
	}
	if d := spreadOf(more); d.low <= 0 && d.high >= 0 {
		return fmt.Sprintf("%s, not measurable: within %s", text, duration(max(-d.low, d.high)))
	}
	if slices.Min(times) <= 0 || slices.Min(others) <= 0 {
		return text
	}
	return text + ", " + medianOf(ratios)
}
