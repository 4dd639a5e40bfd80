package server

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/stintdev/stint/server/config"
)

// LogWriter writes lines to a writer that may block, such as a pipe that nobody reads, and
// never makes its callers wait. Lines wait in memory, and a goroutine writes them. Lines
// that do not fit are dropped; when the writer accepts lines again, a line says how many
// were dropped.
//
// NewLogWriter makes it. It may be used from many goroutines at once.
type LogWriter struct {
	to   io.Writer
	more chan struct{} // signals that something waits
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	waiting []byte // whole lines
	lines   int64  // in waiting
	untold  int64  // dropped, and not yet reported in the log
	json    bool   // the lines are JSON
	dropped int64  // in total
	closed  bool
}

// maxLogWaiting bounds the bytes that wait for a writer: some thousands of lines. Up to as many more may be
// in a Write.
const maxLogWaiting = 1 << 20

// errLogFull is what Write returns for a line that is dropped.
var errLogFull = errors.New("the log buffer is full")

// NewLogWriter returns a LogWriter that writes to to. Close stops it.
func NewLogWriter(to io.Writer) *LogWriter {
	w := &LogWriter{to: to, more: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Loggers returns Loggers that write lines to w as c says: one for Config.Log, and one for Config.AccessLog,
// whose lines may fill only half of the memory for waiting lines. So clients that send many requests do not
// push out other lines, such as those about changes by the admin API.
func (w *LogWriter) Loggers(c config.Log) (log, access *slog.Logger) {
	w.mu.Lock()
	w.json = c.JSON
	w.mu.Unlock()
	return slog.New(c.Handler(w)), slog.New(c.Handler(accessLines{w}))
}

// accessLines writes the lines of an access log.
type accessLines struct{ to *LogWriter }

// Write implements io.Writer.
func (a accessLines) Write(line []byte) (int, error) { return a.to.write(line, maxLogWaiting/2) }

// Write takes one line or several, each with its line end. It never blocks. An error means
// that the line was dropped.
func (w *LogWriter) Write(line []byte) (int, error) { return w.write(line, maxLogWaiting) }

// write is Write, if no more than most bytes wait afterwards.
func (w *LogWriter) write(line []byte, most int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.waiting)+len(line) > most {
		w.untold++
		w.dropped++
		return 0, errLogFull
	}
	w.waiting = append(w.waiting, line...)
	w.lines++
	w.wake()
	return len(line), nil
}

func (w *LogWriter) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Dropped returns the number of lines dropped so far.
func (w *LogWriter) Dropped() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Close writes the lines that wait, for at most patience, and stops the LogWriter; later
// lines are dropped. If the writer blocks for longer, the lines that wait are lost, and one
// goroutine stays behind.
func (w *LogWriter) Close(patience time.Duration) {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wake()
	select {
	case <-w.done:
	case <-time.After(patience):
	}
}

// run writes the waiting lines until the LogWriter is closed.
func (w *LogWriter) run() {
	defer close(w.done)
	var batch []byte
	for range w.more {
		w.mu.Lock()
		batch, w.waiting = w.waiting, batch[:0]
		lines, untold, closed, json := w.lines, w.untold, w.closed, w.json
		w.lines, w.untold = 0, 0
		w.mu.Unlock()
		var err error
		if len(batch) > 0 {
			_, err = w.to.Write(batch)
		}
		if err == nil && untold > 0 {
			lines = 0
			_, err = w.to.Write(droppedLine(untold, json))
		}
		if err != nil {
			w.mu.Lock()
			w.dropped += lines
			w.untold += lines + untold
			w.mu.Unlock()
		}
		if closed {
			return
		}
	}
}

// droppedLine is the line of the log that reports dropped lines.
func droppedLine(n int64, json bool) []byte {
	var b bytes.Buffer
	slog.New(config.Log{JSON: json}.Handler(&b)).Warn("log lines are missing here, because the log's reader was too slow", "lines", n)
	return b.Bytes()
}
