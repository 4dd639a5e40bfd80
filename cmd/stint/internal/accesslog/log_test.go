package accesslog

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func gzipped(t *testing.T, texts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, text := range texts { // each a member
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func zstandard(t *testing.T, text string) string {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

// pipe is standard input that has text.
func pipe(t *testing.T, text string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = r
	t.Cleanup(func() { os.Stdin = before; r.Close() })
	go func() { io.WriteString(w, text); w.Close() }()
}

// A log is the same however it is stored.
func TestStored(t *testing.T) {
	const n = 2000
	text := manyLines(n, combinedLine)
	want := readText(t, Options{}, text)
	if len(want) != n {
		t.Fatalf("%d entries", len(want))
	}
	half := strings.Index(text[len(text)/2:], "\n") + len(text)/2 + 1
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "deeper"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.log": text[:half], "deeper/b.log.gz": gzipped(t, text[half:]), "empty": "", "secrets.txt": "no log\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, paths := range map[string][]string{
		"gzip":        {write(t, "log", gzipped(t, text))},
		"two gzips":   {write(t, "log", gzipped(t, text[:half], text[half:]))},
		"zstd":        {write(t, "log", zstandard(t, text))},
		"directory":   {dir},
		"twice":       {dir, filepath.Join(dir, "a.log")},
		"pipe":        {"-"},
		"gzip'd pipe": {"-"},
		"blanks":      {write(t, "log", strings.Repeat("\n", 100_000)+text)},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "pipe" {
				pipe(t, text)
			} else if paths[0] == "-" {
				pipe(t, gzipped(t, text))
			}
			l := openLog(t, Options{}, paths...)
			shown := make(chan int64)
			go func() { // as for a person who waits
				most := int64(0)
				for range 100 {
					read, _ := l.Progress()
					most = max(most, read)
				}
				shown <- most
			}()
			got := readAll(t, l)
			if most, read := <-shown, l.read.Load(); most > read {
				t.Errorf("%d bytes were read, and then %d", most, read)
			}
			for i := range got {
				got[i].File, got[i].Line = 0, want[i].Line // which are others
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d entries, or they differ: want %d", len(got), len(want))
			}
			read, total := l.Progress()
			if isPipe := paths[0] == "-"; read == 0 || isPipe != (total == 0) || !isPipe && read != total {
				t.Errorf("%d of %d bytes are read", read, total)
			}
			if name == "directory" {
				forms := map[string]string{}
				for _, s := range l.Sources() {
					forms[filepath.Base(s.Path)] = s.Form
					if (s.Skipped != nil) != (filepath.Base(s.Path) == "secrets.txt") {
						t.Errorf("%s is skipped: %v", s.Path, s.Skipped)
					}
				}
				if want := map[string]string{"a.log": "combined", "b.log.gz": "combined", "empty": "", "secrets.txt": ""}; !reflect.DeepEqual(forms, want) {
					t.Errorf("forms are %v", forms)
				}
			}
		})
	}
}

func TestNamedPipe(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/dev/stdin is of Linux")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() { io.WriteString(w, combinedLine(1, when)+"\n"); w.Close() }()
	l := openLog(t, Options{}, filepath.Join("/proc/self/fd", itoa(r.Fd())))
	if got := readAll(t, l); len(got) != 1 {
		t.Errorf("%d entries: want 1", len(got))
	}
}

// Lines that cannot be read are counted, and the others are read.
func TestUnread(t *testing.T) {
	good := combinedLine(1, when)
	long := strings.Replace(good, "/shop/", "/"+strings.Repeat("a", longestLine-len(good)+len("shop/")), 1)
	if len(long) != longestLine {
		t.Fatal(len(long))
	}
	tooLong := "x" + long
	for name, test := range map[string]struct {
		text   string
		lines  []int64 // that are read
		unread []Unread
	}{
		"garbage":         {good + "\nwhat\n" + good + "\n", []int64{1, 3}, []Unread{{0, 2, "it is not of the form"}}},
		"no such day":     {good + "\n" + strings.Replace(good, "[01/", "[32/", 1), []int64{1}, []Unread{{0, 2, "the time cannot be read"}}},
		"bytes":           {good + "\n\xff\xfe\x00\n" + strings.Replace(good, "shop", "\xff", 1), []int64{1, 3}, []Unread{{0, 2, "it is not of the form"}}},
		"a hole":          {good + "\n" + strings.Repeat("\x00", 300_000) + good + "\n", []int64{1, 2}, nil},
		"empty lines":     {"\n\r\n" + good + "\r\n\n" + good, []int64{3, 5}, nil},
		"unfinished":      {good + "\n" + good[:100], []int64{1}, []Unread{{0, 2, "it is not of the form"}}},
		"as long as ever": {good + "\n" + long + "\n" + good + "\n" + long, []int64{1, 2, 3, 4}, nil},
		"as long, CRLF":   {good + "\r\n" + long + "\r\n" + good, []int64{1, 2, 3}, nil},
		"too long":        {good + "\n" + tooLong + "\n" + good, []int64{1, 3}, []Unread{{0, 2, "it is longer than 1 MiB"}}},
		"much too long":   {good + "\n" + strings.Repeat(tooLong, 3) + "\n" + good + "\n", []int64{1, 3}, []Unread{{0, 2, "it is longer than 1 MiB"}}},
		"too long at end": {good + "\n" + strings.Repeat(tooLong, 3), []int64{1}, []Unread{{0, 2, "it is longer than 1 MiB"}}},
		"six": {good + "\na\nb\nc\nd\ne\nf" + strings.Repeat("\n"+good, 6), []int64{1, 8, 9, 10, 11, 12, 13}, []Unread{{0, 2, "it is not of the form"},
			{0, 3, "it is not of the form"}, {0, 4, "it is not of the form"}, {0, 5, "it is not of the form"}, {0, 6, "it is not of the form"}, {0, 7, "it is not of the form"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 100, 5000, 1 << 20, 2 << 20} {
				l := openLog(t, Options{}, write(t, "access.log", test.text))
				if size > 0 {
					l.blockSize = size
				}
				var lines []int64
				for _, e := range readAll(t, l) {
					lines = append(lines, e.Line)
				}
				if !reflect.DeepEqual(lines, test.lines) {
					t.Errorf("blocks of %d: lines %v are read, want %v", size, lines, test.lines)
				}
				n, first := l.Unread()
				if n != int64(len(test.unread)) || !reflect.DeepEqual(first, test.unread[:min(len(test.unread), 5)]) && n > 0 {
					t.Errorf("blocks of %d: %d are unread, %+v: want %+v", size, n, first, test.unread)
				}
			}
		})
	}
}

// Lines about no request are no unread lines.
func TestOthers(t *testing.T) {
	text := lineOf(
		`time=2026-11-30T10:00:00.100Z level=INFO msg=serving rules=3`,
		`time=2026-11-30T10:00:00.500Z level=INFO msg=request method=GET host=a path=/ proto=HTTP/1.1 status=429 bytes=9 seconds=0 outcome=limited`,
		`time=2026-11-30T10:00:00.500Z level=INFO msg=refused outcome=limited rule=login key="a b" client=192.0.2.7 method=GET host=a path=/`,
	)
	l := openLog(t, Options{}, write(t, "log", text))
	got := readAll(t, l)
	n, _ := l.Unread()
	if form := l.Sources()[0].Form; form != "stint" || len(got) != 1 || n != 0 || l.Others() != 2 {
		t.Errorf("%s: %d entries, %d unread, %d others", form, len(got), n, l.Others())
	}
}

func TestBroken(t *testing.T) {
	text := manyLines(20_000, combinedLine)
	for name, whole := range map[string]string{"gzip": gzipped(t, text), "zstd": zstandard(t, text)} {
		path := write(t, name, whole[:len(whole)-100])
		l := openLog(t, Options{}, path)
		read := 0
		for {
			some, err := l.Next()
			if read += len(some); err == nil {
				continue
			}
			if err == io.EOF || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", name, err)
			}
			if _, again := l.Next(); again != err {
				t.Errorf("%s: then %v", name, again)
			}
			break
		}
		if read == 0 || read >= 20_000 {
			t.Errorf("%s: %d entries are read", name, read)
		}
		if _, err := Open([]string{write(t, name, whole[:12])}, Options{}); err == nil || err == io.EOF {
			t.Errorf("%s of 12 bytes: %v", name, err)
		}
	}
}

func TestEmpty(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "blank": "\n\r\n\n", "gzip": gzipped(t, ""), "zstd": zstandard(t, "")} {
		l := openLog(t, Options{}, write(t, name, text))
		if got := readAll(t, l); len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if !reflect.DeepEqual(l.Has(), Fields{}) {
			t.Errorf("%s has %+v", name, l.Has())
		}
	}
}

// A directory may be given by a link. What in it is no file is passed by, and so are links to directories, which may
// lead back; nothing is read twice.
func TestFilesOfADirectory(t *testing.T) {
	const line = "192.0.2.1 - - [16/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n"
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(logs, "sub"), 0o700))
	for _, name := range []string{"a.log", "sub/b.log", ".hidden"} {
		must(os.WriteFile(filepath.Join(logs, name), []byte(line), 0o600))
	}
	for from, to := range map[string]string{"logs/sub/up": "..", "logs/link": "a.log", "logs/nowhere": "gone", "logs/zero": "/dev/zero", "linked": "logs"} {
		must(os.Symlink(to, filepath.Join(dir, from)))
	}
	must(os.Link(filepath.Join(logs, "a.log"), filepath.Join(logs, "hard.log")))
	if path, err := exec.LookPath("mkfifo"); err == nil {
		must(exec.Command(path, filepath.Join(logs, "pipe")).Run())
	}
	for _, paths := range [][]string{{"logs"}, {"linked"}, {"linked", "logs/sub", "logs"}, {"logs/a.log", "linked"}} {
		for i := range paths {
			paths[i] = filepath.Join(dir, paths[i])
		}
		sources := openLog(t, Options{}, paths...).Sources()
		if n := len(sources); n != 3 {
			t.Errorf("%v has %d files, want 3: %+v", paths, n, sources)
		}
	}
}

// A file that was read keeps no memory: a load balancer writes thousands in a month.
func TestManyFilesKeepNothing(t *testing.T) {
	const files, lines = 400, 300
	dir := t.TempDir()
	for i := range files {
		var text strings.Builder
		for j := range lines {
			fmt.Fprintf(&text, "192.0.2.%d - - [%s] \"GET /%d HTTP/1.1\" 200 1 \"-\" \"-\"\n", j%250,
				time.Unix(int64(1_770_000_000+300*i+j/4), 0).UTC().Format("02/Jan/2006:15:04:05 -0700"), j)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.log", i)), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	used := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	l := openLog(t, Options{}, dir)
	before, n := used(), 0
	for {
		entries, err := l.Next()
		if n += len(entries); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != files*lines {
		t.Errorf("%d requests, want %d", n, files*lines)
	}
	if grown := used() - before; grown > files*lines*5 { // a tenth of their text
		t.Errorf("%d kB are kept of %d files", grown>>10, files)
	}
	runtime.KeepAlive(l)
}
