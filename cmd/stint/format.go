package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// plain escapes in prose what a terminal would obey or could not show.
func plain(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// shown quotes a name or key where it could be taken for something else.
func shown(text string) string {
	if text == "-" || text != strings.TrimSpace(text) || strings.HasPrefix(text, "[") || strings.HasPrefix(text, `"`) || plain(text) != text {
		return strconv.Quote(text)
	}
	return text
}

// plainJSON is equal JSON without anything in its texts that a terminal would obey.
func plainJSON(data []byte) []byte {
	var b bytes.Buffer
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\ufffd`) // no Unicode, and so no JSON
		case r < ' ', strconv.IsPrint(r):
			b.Write(data[:size])
		case r > 0xffff:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		data = data[size:]
	}
	return b.Bytes()
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// micros is a duration of the API as one reads it, such as 29m or 3d 4h.
func micros(us int64) string {
	const most = int64(1<<63-1) / 1000
	if us < 0 {
		return "never"
	}
	d := time.Duration(min(us, most)) * time.Microsecond
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Minute:
		d = d.Round(time.Second)
	case d < 24*time.Hour:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Hour)
	}
	var parts []string
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / unit.length; n > 0 {
			parts = append(parts, fmt.Sprintf("%d%s", n, unit.name))
		}
		d %= unit.length
	}
	return strings.Join(parts[:min(2, len(parts))], " ")
}

// table is rows of cells under heads. A column in which nothing stands is left out.
type table struct {
	heads []string
	rows  [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	var columns []int
	for i := range t.heads {
		for _, row := range t.rows {
			if row[i] != "" {
				columns = append(columns, i)
				break
			}
		}
	}
	to := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.heads}, t.rows...) {
		var cells []string
		for _, i := range columns {
			if row[i] == "" {
				row[i] = "-"
			}
			cells = append(cells, row[i])
		}
		fmt.Fprintln(to, strings.Join(cells, "\t"))
	}
	_ = to.Flush() // to a buffer
}

// facts are lines of a name and what stands for it.
type facts [][2]string

func (f *facts) add(name, text string) {
	for line := range strings.Lines(text) {
		*f = append(*f, [2]string{name, plain(strings.TrimSuffix(line, "\n"))})
		name = ""
	}
}

func (f *facts) print(w io.Writer) {
	width := 0
	for _, fact := range *f {
		width = max(width, len(fact[0]))
	}
	for _, fact := range *f {
		fmt.Fprintf(w, "%-*s  %s\n", width, fact[0], fact[1])
	}
}

func list(texts ...string) string {
	var all []string
	for _, t := range texts {
		if t != "" {
			all = append(all, t)
		}
	}
	return strings.Join(all, ", ")
}

func named(name, text string) string {
	if text == "" {
		return ""
	}
	return name + " " + text
}
