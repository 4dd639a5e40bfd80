package accesslog

import (
	"bytes"
	"io"
	"strings"
)

// lines splits a text into blocks of whole lines.
type lines struct {
	from    io.Reader
	buf     []byte
	kept    int   // bytes of an unfinished line at the beginning of buf
	ended   error // after which there is no more; io.EOF at the end
	tooLong bool  // within a line that is too long, whose beginning is gone

	block string // what is left of the block
	// number is that of the line that next returns, from 1.
	number int64
}

func newLines(from io.Reader, blockSize int) *lines {
	return &lines{from: from, buf: make([]byte, blockSize)}
}

// next returns the next line of the block, without its end. long means that a line was too long, and left
// out. ok is false at the end of the block.
func (l *lines) next() (line string, long, ok bool) {
	if l.block == "" {
		return "", false, false
	}
	l.number++
	if i := strings.IndexByte(l.block, '\n'); i >= 0 {
		line, l.block = l.block[:i], l.block[i+1:]
	} else {
		line, l.block = l.block, ""
	}
	if l.tooLong {
		l.tooLong = false
		return "", true, true
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) > longestLine {
		return "", true, true
	}
	if line != "" && line[0] == 0 { // the hole that is left where a log is emptied while it is written
		line = strings.TrimLeft(line, "\x00")
	}
	if l.number == 1 {
		line = strings.TrimPrefix(line, "\ufeff")
	}
	return line, false, true
}

// fill reads the next block. It returns what ended the text, once the block is empty for good.
func (l *lines) fill() error {
	for l.block == "" {
		if l.ended != nil {
			return l.ended
		}
		if l.kept == len(l.buf) { // a line as long as the block
			if len(l.buf) <= longestLine {
				l.buf = append(l.buf, make([]byte, min(len(l.buf), longestLine+2-len(l.buf)))...)
			} else {
				l.tooLong, l.kept = true, 0
			}
		}
		n := l.kept
		for n < len(l.buf) && l.ended == nil { // io.ReadFull would hide the error of a broken file
			var more int
			more, l.ended = l.from.Read(l.buf[n:])
			n += more
		}
		whole := bytes.LastIndexByte(l.buf[:n], '\n') + 1
		if l.ended == io.EOF {
			whole = n // the last line may have no end
		}
		if l.tooLong && whole == 0 {
			l.kept = 0
			if n == len(l.buf) {
				continue
			}
		}
		l.block = string(l.buf[:whole])
		l.kept = copy(l.buf, l.buf[whole:n])
		if l.tooLong && l.block == "" && l.ended != nil { // the long line was the last
			l.block = "\n"
		}
	}
	return nil
}
