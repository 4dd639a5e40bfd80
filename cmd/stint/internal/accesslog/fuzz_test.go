package accesslog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzLine reads any line in any form. Nothing panics; what is read has a time; and a text is a part of its line
// unless the line has an escape.
func FuzzLine(f *testing.F) {
	for _, test := range formTests {
		f.Add(test.line)
	}
	for _, part := range hostile {
		f.Add(combinedLine(1, when) + part)
	}
	extra := []Options{{Fields: "time=$.t,path=$.p[0],cost=$.c,operation=$.a.b,attrs.x=$.x"}, {Fields: "time=time,path=path,cost=cost"}}
	for _, test := range formTests {
		if test.options.Format != "" {
			extra = append(extra, test.options)
		}
	}
	var all []form
	all = append(all, forms...)
	for _, o := range extra {
		more, err := formsOf(o)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, more...)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n") {
			return
		}
		for _, form := range all {
			first := "time,ip,method,path,query,cost,user_agent"
			if form.name == "csv" && strings.Contains(line, ";") {
				first = strings.ReplaceAll(first, ",", ";")
			}
			r := form.of(first)
			if r == nil {
				continue
			}
			var e Entry
			var d draft
			d.begin(&e, 0, 1)
			if readLine(r, line, &d) != nil {
				continue
			}
			if e.At < 0 || e.Status < 0 || e.Status > 999 || e.Client.Zone() != "" || e.Client.Is4In6() || e.Cost < 0 {
				t.Errorf("%s: %q is read as %+v", form.name, line, e)
			}
			if strings.ContainsAny(line, `\#`) || form.name == "csv" && strings.Contains(line, `""`) {
				continue
			}
			texts := []string{e.Method, strings.TrimPrefix(e.Target, "/"), e.Host, e.User, e.Operation}
			for _, h := range append(e.Header, e.Attrs...) {
				texts = append(texts, h.Value)
			}
			path, query, _ := strings.Cut(texts[1], "?")
			for _, text := range append(texts[2:], texts[0], path, query) {
				if !strings.Contains(line, text) {
					t.Errorf("%s: %q is in %+v, and not in %q", form.name, text, e, line)
				}
			}
		}
	})
}

// FuzzFormat compiles any format, and reads a line with it.
func FuzzFormat(f *testing.F) {
	for _, test := range formTests {
		f.Add(test.options.Format+test.options.Fields, test.line)
	}
	f.Fuzz(func(t *testing.T, format, line string) {
		for _, o := range []Options{{Format: format}, {Fields: format}} {
			candidates, err := formsOf(o)
			if err != nil {
				if !utf8.ValidString(err.Error()) && utf8.ValidString(format) {
					t.Errorf("%q: %q", format, err)
				}
				continue
			}
			for _, form := range candidates {
				if r := form.of(line); r != nil {
					var e Entry
					var d draft
					d.begin(&e, 0, 1)
					_ = readLine(r, line, &d)
				}
			}
		}
	})
}

// FuzzLog reads any file, in blocks of any size, and each line is read, unread, late, about something else or
// empty.
func FuzzLog(f *testing.F) {
	good := combinedLine(1, when) + "\n"
	f.Add(good+good+"\n\r\nx\n"+good, 10)
	f.Add(good+strings.Repeat("\x00", 300)+good, 100)
	f.Add("time,path\n1,a\n", 3)
	f.Add("\x1f\x8b"+good, 5)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string, size int) {
		path := filepath.Join(dir, "access.log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open([]string{path}, Options{})
		if err != nil {
			return
		}
		defer l.Close()
		l.blockSize = 1 + size&0xfff
		entries, before := int64(0), int64(0)
		for {
			some, err := l.Next()
			if err != nil {
				break
			}
			for _, e := range some {
				if e.At < before {
					t.Fatalf("%d after %d", e.At, before)
				}
				before = e.At
				entries++
			}
		}
		unread, _ := l.Unread()
		blank := int64(0)
		for line := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSuffix(text, "\n"), "\ufeff"), "\n") {
			if strings.TrimLeft(strings.TrimSuffix(line, "\r"), "\x00") == "" {
				blank++
			}
		}
		if text == "" || strings.HasPrefix(text, "\x1f\x8b") || strings.HasPrefix(text, "\x28\xb5\x2f\xfd") {
			return
		}
		if got, want := entries+unread+l.Late()+l.Others()+blank, int64(strings.Count(strings.TrimSuffix(text, "\n"), "\n")+1); got != want {
			t.Errorf("%d entries, %d unread, %d late, %d others, %d blank: of %d lines", entries, unread, l.Late(), l.Others(), blank, want)
		}
	})
}
