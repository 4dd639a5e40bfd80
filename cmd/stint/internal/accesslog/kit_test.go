package accesslog

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// write makes a file and returns its path.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openLog opens files, and closes them at the end of the test.
func openLog(t testing.TB, o Options, paths ...string) *Log {
	t.Helper()
	l, err := Open(paths, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// readAll returns copies of all entries.
func readAll(t testing.TB, l *Log) (all []Entry) {
	t.Helper()
	for {
		some, err := l.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			t.Fatal("no entries, and no error")
		}
		for _, e := range some {
			e.Header, e.Attrs = slices.Clone(e.Header), slices.Clone(e.Attrs)
			all = append(all, e)
		}
	}
}

// readText returns the entries of a text, of which each line must be read.
func readText(t testing.TB, o Options, text string) []Entry {
	t.Helper()
	l := openLog(t, o, write(t, "access.log", text))
	all := readAll(t, l)
	if n, first := l.Unread(); n > 0 {
		t.Errorf("%d lines are unread: %+v of\n%s", n, first, text)
	}
	return all
}

// at is the instant of a text in RFC 3339, in µs since 1970.
func at(text string) int64 {
	when, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return when.UnixMicro()
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// headers makes fields of names and values.
func headers(pairs ...string) (all []Field) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Field{pairs[i], pairs[i+1]})
	}
	return all
}

func lineOf(parts ...string) string { return strings.Join(parts, "\n") + "\n" }
