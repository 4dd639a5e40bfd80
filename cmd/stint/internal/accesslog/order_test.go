package accesslog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// shuffledLog is a file whose lines are out of order by up to disorder, and some by more.
type shuffledLog struct {
	text string
	kept []Entry // what is to be read, in the order of lines
	late int64
}

func newShuffledLog(r *rand.Rand, file, lines int, disorder, most time.Duration) (s shuffledLog) {
	var b strings.Builder
	now, latest := at("2026-03-01T00:00:00Z")+r.Int64N(100*second), int64(0)
	for i := range lines {
		now += r.Int64N(3 * second)
		when := now
		if r.IntN(3) == 0 {
			when -= r.Int64N(most.Microseconds() + 1)
		}
		when -= when % 500_000 // so that many are equal
		target := fmt.Sprintf("/%d/%d", file, i)
		fmt.Fprintf(&b, `{"time":%d,"ip":"192.0.2.1","method":"GET","path":"%s","x_forwarded_for":"f%d"}`+"\n", when, target, i)
		if when < latest-disorder.Microseconds() {
			s.late++
			continue
		}
		latest = max(latest, when)
		s.kept = append(s.kept, Entry{At: when, Client: addr("192.0.2.1"), Method: "GET", Target: target, File: file, Line: int64(i + 1),
			Header: headers("X-Forwarded-For", fmt.Sprintf("f%d", i))})
	}
	s.text = b.String()
	return s
}

// Files are read as a sort of all their entries would give them, but for those that come too late.
func TestOrder(t *testing.T) {
	const disorder = 20 * time.Second
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		most := []time.Duration{0, disorder / 10, disorder, 2 * disorder}[seed%4]
		dir := t.TempDir()
		var want []Entry
		var paths []string
		late := int64(0)
		for file := range 1 + r.IntN(5) {
			s := newShuffledLog(r, file, 1+r.IntN(200), disorder, most)
			path := filepath.Join(dir, fmt.Sprint(file))
			if err := os.WriteFile(path, []byte(s.text), 0o600); err != nil {
				t.Fatal(err)
			}
			paths, want, late = append(paths, path), append(want, s.kept...), late+s.late
		}
		slices.SortFunc(want, func(a, b Entry) int {
			return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
		})
		l := openLog(t, Options{Disorder: disorder}, paths...)
		l.blockSize = 100 + r.IntN(4000)
		got := readAll(t, l)
		if !reflect.DeepEqual(got, want) {
			for i := range min(len(got), len(want)) {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Fatalf("seed %d: entry %d of %d\n got %+v\nwant %+v", seed, i, len(want), got[i], want[i])
				}
			}
			t.Fatalf("seed %d: %d entries, want %d", seed, len(got), len(want))
		}
		if l.Late() != late {
			t.Errorf("seed %d: %d are late, want %d", seed, l.Late(), late)
		}
		if most <= disorder && late > 0 {
			t.Errorf("seed %d: %d are late, and all are within the bound", seed, late)
		}
	}
}

// A log with very many entries in a minute does not need the memory for a minute.
func TestHeld(t *testing.T) {
	const n = mostHeld + mostHeld/4
	text := strings.Repeat(`192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1`+"\n", n)
	old := `192.0.2.1 - - [10/Oct/2000:13:55:35 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	l := openLog(t, Options{}, write(t, "access.log", text+old))
	some, err := l.Next()
	if err != nil {
		t.Fatal(err)
	}
	if held := l.sources[0].held; held > mostHeld {
		t.Errorf("%d entries wait", held)
	}
	got := len(some) + len(readAll(t, l))
	if late := l.Late(); got != n || late != 1 {
		t.Errorf("%d entries, %d late: want %d and the last", got, late, n)
	}
}

// Of long lines, fewer wait. When the log is over, no byte is held.
func TestHeldBytes(t *testing.T) {
	const long = 200_000
	var text strings.Builder
	for i := range 3 * mostHeldBytes / long / 2 {
		fmt.Fprintf(&text, `192.0.2.1 - - [10/Oct/2000:13:55:%02d +0000] "GET /%s HTTP/1.1" 200 1`+"\n", 30+i%3, strings.Repeat("x", long))
	}
	l := openLog(t, Options{}, write(t, "access.log", text.String()))
	s := l.sources[0]
	most := 0
	for {
		_, err := l.Next()
		most = max(most, s.heldBytes)
		if err != nil {
			break
		}
	}
	if most > mostHeldBytes+4<<20 || most < mostHeldBytes/2 || s.heldBytes != 0 || s.held != 0 {
		t.Errorf("at most %d bytes wait; after the end %d, and %d entries", most, s.heldBytes, s.held)
	}
}

// Files that do not overlap are not open at once.
func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	for day := range 9 {
		line := fmt.Sprintf(`192.0.2.1 - - [%02d/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1`+"\n", 9-day)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(day)), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := openLog(t, Options{}, dir)
	for file := 8; file >= 0; file-- {
		some, err := l.Next()
		if err != nil || len(some) != 1 || some[0].File != file {
			t.Fatalf("%+v, %v: want one of file %d", some, err, file)
		}
		open := 0
		for _, s := range l.sources {
			if s.content != nil {
				open++
			}
		}
		if open > 1 {
			t.Errorf("%d files are open", open)
		}
	}
}

// A line that is read again and again costs no memory of its own.
func TestAllocations(t *testing.T) {
	const n = 50_000
	text := manyLines(n, combinedLine)
	path := write(t, "access.log", text)
	allocs := testing.AllocsPerRun(3, func() {
		l := openLog(t, Options{}, path)
		if got := len(readAllNoCopy(t, l)); got == 0 {
			t.Error("nothing was read")
		}
		l.Close()
	})
	if perLine := allocs / n; perLine > 0.1 {
		t.Errorf("%.2f allocations for a line", perLine)
	}
}

func readAllNoCopy(t *testing.T, l *Log) (batches []int) {
	for {
		some, err := l.Next()
		if err != nil {
			return batches
		}
		batches = append(batches, len(some))
	}
}
