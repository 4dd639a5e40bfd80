package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/stintdev/stint/cmd/stint/internal/accesslog"
	"github.com/stintdev/stint/internal/spelling"
)

// progress shows on a terminal how much of a log is read.
type progress struct {
	requests atomic.Int64
	screen   *os.File // nil: no terminal
	log      *accesslog.Log
	start    time.Time
	ended    chan struct{}
	shown    sync.WaitGroup
}

// startProgress shows the progress until stop, if standard error is a terminal.
func startProgress(log *accesslog.Log) *progress {
	p := &progress{log: log, start: time.Now(), ended: make(chan struct{})}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.screen = os.Stderr
		p.shown.Go(p.show)
	}
	return p
}

func (p *progress) show() {
	often := time.NewTicker(time.Second / 2)
	defer often.Stop()
	for {
		select {
		case <-often.C:
			read, total := p.log.Progress()
			fmt.Fprint(p.screen, "\r", p.line(read, total, time.Since(p.start)), "\x1b[K")
		case <-p.ended:
			fmt.Fprint(p.screen, "\r\x1b[K")
			return
		}
	}
}

func (p *progress) stop() {
	close(p.ended)
	p.shown.Wait()
}

// line is what is known when read of total bytes are; total is 0 if nobody knows.
func (p *progress) line(read, total int64, took time.Duration) string {
	n := p.requests.Load()
	rate := float64(n) / took.Seconds()
	text := spelling.SeveralGrouped(n, "request") + ", " + spelling.Grouped(int64(rate)) + " a second"
	if total > 0 && read > 0 && read <= total {
		left := time.Duration(float64(took) * float64(total-read) / float64(read))
		text += fmt.Sprintf(", %d%%, %s left", 100*read/total, left.Round(time.Second))
	}
	return text
}
