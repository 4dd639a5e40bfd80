package accesslog

import (
	"errors"
	"strings"
)

// csvReader reads lines whose columns the first line of the file names. A cell has no line end within it.
type csvReader struct {
	first  string
	comma  byte
	fields []field // of the columns
}

var errColumns = errors.New("it has not as many columns as the first line")

// csvForm reads the columns that keys names, or if it is nil those with well-known names.
func csvForm(keys map[string]field) form {
	return form{name: "csv", of: func(first string) reader {
		c := &csvReader{first: first, comma: ','}
		for _, other := range []byte{';', '\t'} {
			if strings.Count(first, string(other)) > strings.Count(first, string(c.comma)) {
				c.comma = other
			}
		}
		hasTime, found := false, 0
		ok := c.cells(first, func(_ int, name string) error {
			name = strings.TrimSpace(name)
			f, known := keys[name]
			if keys == nil {
				if f, known = wellKnown[name]; !known {
					f, known = wellKnown[strings.ReplaceAll(strings.ToLower(name), " ", "_")]
				}
			}
			if known {
				found++
				hasTime = hasTime || f.role == arrived
			}
			c.fields = append(c.fields, f)
			return nil
		}) == nil
		if !ok || !hasTime || found < 2 || keys != nil && found < len(keys) {
			return nil
		}
		return c
	}}
}

func (c *csvReader) read(line string, d *draft) error {
	if line == c.first {
		return errOther
	}
	n := 0
	err := c.cells(line, func(i int, text string) error {
		if n = i + 1; n > len(c.fields) {
			return errColumns
		}
		f := &c.fields[i]
		if f.role == ignored || text == "" && f.role != attr {
			return nil
		}
		return d.put(f, text)
	})
	if err == nil && n != len(c.fields) {
		return errColumns
	}
	return err
}

// cells calls do with each cell of a line, without its quotes.
func (c *csvReader) cells(line string, do func(i int, text string) error) error {
	for i := 0; ; i++ {
		var text string
		more := false
		if strings.HasPrefix(line, `"`) {
			end, doubled := 1, false
			for ; ; end++ {
				n := strings.IndexByte(line[end:], '"')
				if n < 0 {
					return errors.New("no quote ends a cell")
				}
				if end += n; end+1 == len(line) || line[end+1] != '"' {
					break
				}
				end++
				doubled = true
			}
			if text = line[1:end]; doubled {
				text = strings.ReplaceAll(text, `""`, `"`)
			}
			if line = line[end+1:]; line != "" {
				if line[0] != c.comma {
					return errOfForm
				}
				line, more = line[1:], true
			}
		} else if end := strings.IndexByte(line, c.comma); end >= 0 {
			text, line, more = line[:end], line[end+1:], true
		} else {
			text = line
		}
		if err := do(i, text); err != nil || !more {
			return err
		}
	}
}
