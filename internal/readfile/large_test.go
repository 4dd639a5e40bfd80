package readfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A large file is read if it has changed, and while it could have changed unnoticed.
func TestLarge(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "list")
	f := Large{Path: path, Most: 10}
	put := func(name, text string, age time.Duration) {
		t.Helper()
		at := time.Now().Add(-age)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	look := func(what string, always bool, text string, changed, fails bool) {
		t.Helper()
		data, is, err := f.Read(always)
		if string(data) != text || is != changed || (err != nil) != fails {
			t.Errorf("%s: %q, %t, %v", what, data, is, err)
		}
	}
	look("none", false, "", true, true)
	look("none as before", false, "", false, true)
	put(path, "one", time.Hour)
	look("one", false, "one", true, false)
	look("one as before", false, "", false, false)
	look("one, asked", true, "one", false, false)
	put(path, "two", 0)
	look("two", false, "two", true, false)
	look("two, which is young", false, "two", false, false)
	put(path, "six", time.Hour)
	look("six", false, "six", true, false)
	other := filepath.Join(dir, "other")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	put(other, "ten", 0)
	if err := os.Chtimes(other, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	look("another file with the same size and time", false, "ten", true, false)
	put(path, "12345678901", time.Hour)
	look("too large", false, "", true, true)
	look("too large as before", false, "", false, true)
	put(path, "ten", time.Hour)
	look("ten again", false, "ten", true, false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look("removed", false, "", true, true)
	f.Path = dir
	look("a directory", false, "", true, true)
}
