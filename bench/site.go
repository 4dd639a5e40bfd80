package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
)

// siteVariable tells a process which server it is; siteUpstream, where to pass requests on.
const (
	siteVariable = "STINT_BENCH_SITE"
	siteUpstream = "STINT_BENCH_UPSTREAM"
)

type usage struct {
	CPU     float64 // seconds, including system time
	Mallocs uint64
	Profile []byte `json:",omitempty"` // of pprof, if one was asked for
}

// serveSite prints its address and, after each line of standard input, its usage; it ends with standard
// input. After "profile" it takes a profile until the next line.
func serveSite(name string) error {
	serve, err := sites[name].open(os.Getenv(siteUpstream))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = serve(l) }()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(l.Addr().String()); err != nil {
		return err
	}
	var profile bytes.Buffer
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var u usage
		pprof.StopCPUProfile() // it does nothing if none runs
		u.Profile = bytes.Clone(profile.Bytes())
		profile.Reset()
		u.take()
		if in.Text() == "profile" {
			if err := pprof.StartCPUProfile(&profile); err != nil {
				return err
			}
		}
		if err := out.Encode(&u); err != nil {
			return err
		}
	}
	return nil
}

func (u *usage) take() {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err == nil {
		u.CPU = float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Mallocs = m.Mallocs
}

// used is the process's usage; profile: it takes a profile until the next call.
func (p *child) used(profile bool) (u usage, err error) {
	line := "\n"
	if profile {
		line = "profile\n"
	}
	if _, err = io.WriteString(p.in, line); err == nil {
		err = p.out.Decode(&u)
	}
	return u, err
}
