package conn

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// The limits of a reply. Documents, the largest replies, have 4 MiB.
const (
	longestString = 64 << 20
	longestLine   = 64 << 10
	longestArray  = 1 << 20
	deepest       = 8
)

// frames finds where messages of the Redis protocol end, in whatever pieces they come.
type frames struct {
	line []byte       // the part that has come of a line
	body int          // bytes that are still to come of a string, with its end
	left [deepest]int // what is still to come of each array that is open
	open int          // how many are
	push bool         // the message is no reply
}

// pass takes a piece and counts the messages that end in it: replies, and pushes.
func (f *frames) pass(b []byte) (messages, pushes int, err error) {
	for len(b) > 0 {
		if f.body > 0 {
			n := min(f.body, len(b))
			b = b[n:]
			if f.body -= n; f.body > 0 {
				return messages, pushes, nil
			}
		} else {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				if len(f.line)+len(b) > longestLine {
					return 0, 0, errors.New("a line of a reply is too long")
				}
				f.line = append(f.line, b...)
				return messages, pushes, nil
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
				return 0, 0, err
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
		switch {
		case f.open > 0:
		case f.push:
			pushes++
			f.push = false
		default:
			messages++
		}
	}
	return messages, pushes, nil
}

func (f *frames) begin(line []byte) (whole bool, err error) {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return false, notRESP(line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+', '-', ',', '(':
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
			f.body = n + 2
			return false, nil
		}
	case '*', '~', '%', '>':
		n, err := strconv.Atoi(string(rest))
		if err != nil || n < -1 || n > longestArray || kind == '>' && f.open > 0 {
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
		f.push = f.push || kind == '>'
		f.left[f.open] = n
		f.open++
		return false, nil
	}
	return false, notRESP(line)
}

func notRESP(line []byte) error {
	return fmt.Errorf("%.40q is not a reply: is the server a Redis or a Valkey?", line)
}
