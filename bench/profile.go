package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

type shares struct {
	byRoom map[string]float64 // in parts of 1
	below  map[string]float64 // by function, including its calls
}

// rooms sort functions: the first matching pattern counts, else the last room.
var rooms = []struct {
	name string
	of   *regexp.Regexp
}{
	{"Stint", regexp.MustCompile(`^github\.com/stintdev/stint`)},
	{"expressions (CEL)", regexp.MustCompile(`^cel\.dev/`)},
	{"metrics (Prometheus)", regexp.MustCompile(`^github\.com/prometheus/`)},
	{"rueidis", regexp.MustCompile(`^github\.com/redis/rueidis`)},
	{"encoding/json", regexp.MustCompile(`^encoding/json\.`)},
	{"grpc-go, with HTTP/2 and protobuf", regexp.MustCompile(`^(google\.golang\.org/(grpc|protobuf)|golang\.org/x/net/http2)\b`)},
	{"net/http, with bufio and net/textproto", regexp.MustCompile(`^(net/http|net/textproto|net/url|bufio|mime)\b`)},
	{"system calls, net and the poller", regexp.MustCompile(`^(internal/runtime/syscall|internal/poll|internal/syscall|syscall|net)\b|^runtime\.(netpoll|epoll|entersyscall|exitsyscall|reentersyscall)`)},
	{"runtime: memory and its collector", regexp.MustCompile(`(?i)^(internal/runtime/gc|runtime)\b.*(malloc|gc|scan|sweep|mark|span|heap|memclr|memmove|growslice|newobject|makeslice|barrier|grey|typed|mcache|mcentral|pagealloc|bitmap|slicebyte|rawstring|concat)`)},
	{"runtime: scheduler, maps and the rest", regexp.MustCompile(`^(internal/runtime|runtime|sync|internal/sync)\b`)},
	{"everything else", regexp.MustCompile(``)},
}

var topLine = regexp.MustCompile(`^\s*([\d.]+)(?:ms)?\s+[\d.]+%\s+[\d.]+%\s+([\d.]+)(?:ms)?\s+[\d.]+%\s+(\S+)`)

func sharesOf(profile []byte) (*shares, error) {
	f, err := os.CreateTemp("", "stint-bench-*.pprof")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(profile)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	text, err := exec.Command("go", "tool", "pprof", "-top", "-unit=ms", "-nodecount=1000000", "-nodefraction=0", "-edgefraction=0", f.Name()).Output()
	if err != nil {
		return nil, fmt.Errorf("go tool pprof: %w", err)
	}
	s := &shares{map[string]float64{}, map[string]float64{}}
	var all float64
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		part := topLine.FindStringSubmatch(lines.Text())
		if part == nil {
			continue
		}
		var flat, below float64
		if _, err := fmt.Sscan(part[1]+" "+part[2], &flat, &below); err != nil {
			return nil, err
		}
		all += flat
		s.below[part[3]] += below
		for _, r := range rooms {
			if r.of.MatchString(part[3]) {
				s.byRoom[r.name] += flat
				break
			}
		}
	}
	for _, m := range []map[string]float64{s.byRoom, s.below} {
		for name := range m {
			m[name] /= all
		}
	}
	return s, nil
}

// profiledRows are rows with the function below which all work is Stint's.
var profiledRows = []struct{ name, ours string }{
	{emptyHandler, ""},
	{emptyService, ""},
	{checkRow, "github.com/stintdev/stint/server.(*Server).check"},
	{pooledProxy, ""},
	{gatewayRow, "github.com/stintdev/stint/server.(*Server).decideHTTP"},
	{emptyEnvoy, ""},
	{stintEnvoy, "github.com/stintdev/stint/server/envoy.(*Service).ShouldRateLimit"},
}

func (m *measured) where(w io.Writer) {
	if !m.table.profile || !slices.ContainsFunc(m.results, func(r result) bool { return r.shares != nil }) { // raw figures have none
		return
	}
	fmt.Fprint(w, "\n#### Where the time goes\n\nThis table shows where the CPU time of one exchange is spent, from a profile of each process. A function counts without the functions that it calls.\n\n|")
	var all []*result
	var below []string // for each, the function below which all work is Stint's
	for _, p := range profiledRows {
		r := m.find(p.name)
		if r == nil {
			continue
		}
		if r.shares == nil || len(r.shares.byRoom) == 0 { // a turn too short for any sample
			r = nil
		}
		all, below = append(all, r), append(below, p.ours)
		fmt.Fprintf(w, " | %s", p.name)
	}
	fmt.Fprint(w, " |\n|---"+strings.Repeat("|---:", len(all))+"|\n")
	cell := func(r *result, share float64) {
		us := math.NaN()
		if r != nil {
			us = share * r.cpu() * 1000
		}
		fmt.Fprintf(w, " %s |", duration(us))
	}
	for _, room := range rooms {
		fmt.Fprintf(w, "| %s |", room.name)
		for _, r := range all {
			if r == nil {
				cell(nil, 0)
				continue
			}
			cell(r, r.shares.byRoom[room.name])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "| **all** |")
	for _, r := range all {
		cell(r, 1)
	}
	fmt.Fprint(w, "\n| *of this, deciding and answering, with all functions called* |")
	for i, r := range all {
		if r == nil || below[i] == "" {
			fmt.Fprint(w, " |")
		} else {
			cell(r, r.shares.below[below[i]])
		}
	}
	fmt.Fprintln(w)
}
