package conn

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Bounds of a reply. Documents, the largest replies, have 4 MiB.
const (
	longestString = 64 << 20
	longestLine   = 64 << 10
	longestArray  = 1 << 20
	deepest       = 8
)

// longestHead bounds the text of a message that frames keeps: enough for the name of a command or
// push.
const longestHead = 16

// frames finds where messages of the Redis protocol end, in whatever pieces they arrive.
type frames struct {
	message
	line  []byte       // received part of a line
	body  int          // bytes still to come of a string, with its end
	left  [deepest]int // elements still to come of each open array
	open  int          // number of open arrays
	named bool         // the rest of the string belongs to the head
}

// message is what frames keeps of a message.
type message struct {
	kind byte   // the first one
	size int    // number of elements of an array; a map has two for each key
	head []byte // the text of a short line, or of an array's first element; valid until the next message
}

// pass reads a piece, and calls end at the end of each message. It returns the first error.
func (f *frames) pass(b []byte, end func(message) error) error {
	for len(b) > 0 {
		if f.body > 0 {
			n := min(f.body, len(b))
			if text := f.body - len("\r\n"); f.named && text > 0 {
				f.head = append(f.head, b[:min(n, text)]...)
			}
			b = b[n:]
			if f.body -= n; f.body > 0 {
				return nil
			}
			f.named = false
		} else {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				if len(f.line)+len(b) > longestLine {
					return errors.New("a line of a reply is too long")
				}
				f.line = append(f.line, b...)
				return nil
			}
			line := b[:i+1]
			if len(f.line) > 0 {
				f.line = append(f.line, line...)
				line = f.line
			}
			b = b[i+1:]
			whole, err := f.begin(line)
			f.line = f.line[:0]
			if err != nil {
				return err
			}
			if !whole {
				continue
			}
		}
		for f.open > 0 {
			if f.left[f.open-1]--; f.left[f.open-1] > 0 {
				break
			}
			f.open--
		}
		if f.open > 0 {
			continue
		}
		if err := end(f.message); err != nil {
			return err
		}
		f.message = message{head: f.head[:0]}
	}
	return nil
}

func (f *frames) begin(line []byte) (whole bool, err error) {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return false, notRESP(line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	if f.kind == 0 {
		f.kind = kind
	}
	// The message itself, or the first element of an array.
	heads := f.open == 0 || f.open == 1 && f.left[0] == f.size
	switch kind {
	case '+', '-', ',', '(':
		if heads && len(rest) <= longestHead {
			f.head = append(f.head, rest...)
		}
		return true, nil
	case '_':
		if len(rest) == 0 {
			return true, nil
		}
	case '#':
		if len(rest) == 1 {
			return true, nil
		}
	case ':':
		if _, err := strconv.ParseInt(string(rest), 10, 64); err == nil {
			return true, nil
		}
	case '$', '=', '!':
		n, err := strconv.Atoi(string(rest))
		if err == nil && n == -1 {
			return true, nil
		}
		if err == nil && n >= 0 && n <= longestString {
			f.body, f.named = n+len("\r\n"), heads && n <= longestHead
			return false, nil
		}
	case '*', '~', '%', '>':
		n, err := strconv.Atoi(string(rest))
		if err != nil || n < -1 || n > longestArray || kind == '%' && n < 0 || kind == '>' && (n < 1 || f.open > 0) {
			break
		}
		if n <= 0 {
			return true, nil
		}
		if kind == '%' {
			n *= 2
		}
		if f.open == deepest {
			return false, errors.New("a reply is nested too deeply")
		}
		if f.open == 0 {
			f.size = n
		}
		f.left[f.open] = n
		f.open++
		return false, nil
	}
	return false, notRESP(line)
}

func notRESP(line []byte) error {
	return fmt.Errorf("%.40q is not a reply: is the server a Redis or a Valkey?", line)
}
