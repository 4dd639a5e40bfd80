package redislimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// write writes a version that must be taken.
func write(t testing.TB, d *redislimit.Documents, name string, number int64, text string) {
	t.Helper()
	if ok, err := d.Write(context.Background(), name, number, []byte(text)); err != nil || !ok {
		t.Fatalf("version %d of %s: %t, %v", number, name, ok, err)
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	t.Run("rueidis", func(t *testing.T) { documentStory(t, open(t, server.URL()).Documents()) })
	t.Run("another client", func(t *testing.T) { documentStory(t, overPlain(t, server, "theirs").Documents()) })
	t.Run("cluster", func(t *testing.T) { documentStory(t, cluster(t).Documents()) })
}

func documentStory(t *testing.T, d *redislimit.Documents) {
	ctx := t.Context()
	newest := func(name string, want int64) {
		t.Helper()
		if n, _, err := d.Newest(ctx, name); err != nil || n != want {
			t.Errorf("the newest of %s is %d, %v; want %d", name, n, err, want)
		}
	}
	read := func(name string, number int64, want []byte) {
		t.Helper()
		got, err := d.Read(ctx, name, number)
		if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("version %d of %s: %.40q (nil: %t), %v; want %.40q", number, name, got, got == nil, err, want)
		}
	}
	newest("rules", 0)
	read("rules", 1, nil)
	read("rules", 0, nil)
	for _, number := range []int64{2, 100, 1<<63 - 1} {
		if ok, err := d.Write(ctx, "rules", number, nil); ok || err != nil {
			t.Errorf("version %d before the first: %t, %v", number, ok, err)
		}
	}
	every := make([]byte, redislimit.MaxDocument)
	for i := range every {
		every[i] = byte(i)
	}
	texts := [][]byte{nil, every, {}, []byte("newest"), []byte("\x00\r\n$-1\r\n"), []byte("é")}
	for number := int64(1); int(number) < len(texts); number++ {
		write(t, d, "rules", number, string(texts[number]))
		newest("rules", number)
		for _, late := range []int64{1, number - 1, number, number + 2} {
			if late < 1 {
				continue
			}
			if ok, err := d.Write(ctx, "rules", late, []byte("late")); ok || err != nil {
				t.Errorf("version %d after %d: %t, %v", late, number, ok, err)
			}
		}
	}
	for number := range texts {
		read("rules", int64(number), texts[number])
	}
	newest("other-_9", 0)
	for number := int64(1); number <= 120; number++ {
		write(t, d, "other-_9", number, fmt.Sprint(number))
	}
	for number := int64(1); number <= 121; number++ {
		want := []byte(nil)
		if number > 70 && number <= 120 {
			want = fmt.Append(nil, number)
		}
		read("other-_9", number, want)
	}
	newest("rules", 5)
}

func TestInvalidDocuments(t *testing.T) {
	server := redistest.Start(t)
	d := open(t, server.URL()).Documents()
	for _, name := range []string{"", "A", "a b", "a:b", "a}", "é", "a\x00", strings.Repeat("a", 65)} {
		_, _, err1 := d.Newest(t.Context(), name)
		_, err2 := d.Read(t.Context(), name, 1)
		_, err3 := d.Write(t.Context(), name, 1, nil)
		for _, err := range []error{err1, err2, err3} {
			if !errors.Is(err, stint.ErrRequest) {
				t.Errorf("name %q: %v", name, err)
			}
		}
	}
	write(t, d, strings.Repeat("a", 64), 1, "")
	for _, number := range []int64{0, -1, -1 << 63} {
		if ok, err := d.Write(t.Context(), "a", number, nil); ok || !errors.Is(err, stint.ErrRequest) {
			t.Errorf("version %d: %t, %v", number, ok, err)
		}
	}
	if ok, err := d.Write(t.Context(), "a", 1, make([]byte, redislimit.MaxDocument+1)); ok || !errors.Is(err, stint.ErrRequest) {
		t.Errorf("a text too long: %t, %v", ok, err)
	}
	server.Do(t, "SET", "stint:{doc:a}", "x")
	server.Do(t, "HSET", "stint:{doc:b}", "newest", "x")
	_, _, err1 := d.Newest(t.Context(), "a")
	_, err2 := d.Write(t.Context(), "a", 1, nil)
	_, _, err3 := d.Newest(t.Context(), "b")
	for _, err := range []error{err1, err2, err3} {
		if err == nil || !strings.Contains(err.Error(), "the store holds something other than a count") {
			t.Errorf("a spoiled key: %v", err)
		}
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if ok, err := d.Write(t.Context(), "c", 1, []byte("x")); ok || err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("without memory: %t, %v", ok, err)
	}
	if n, _, err := d.Newest(t.Context(), "c"); n != 0 || err != nil {
		t.Errorf("a write that failed left version %d, %v", n, err)
	}
}

// Documents of one namespace are no keys of another, nor its subjects', and Clear
// takes its own.
func TestDocumentsAreApart(t *testing.T) {
	server := redistest.Start(t)
	names := []string{"a", "a:", "a:doc", "a:doc:", "doc"}
	limit := stint.MustLimit("1 per 1h")
	for _, n := range names {
		s := open(t, server.URL()+"?namespace="+n)
		write(t, s.Documents(), "rules", 1, n)
		for _, key := range []string{"doc", "doc:rules", "rules", "{doc:rules}"} {
			if d, err := stint.NewLimiter(s).Allow(t.Context(), key, limit); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", key, d, err)
			}
		}
	}
	for i, n := range names {
		if err := open(t, server.URL()+"?namespace="+n).Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		for j, other := range names {
			text, err := open(t, server.URL()+"?namespace="+other).Documents().Read(t.Context(), "rules", 1)
			if want := other; err != nil || j > i && string(text) != want || j <= i && text != nil {
				t.Errorf("%s cleared: that of %s is %q, %v", n, other, text, err)
			}
		}
	}
	if size, err := server.Do(t, "DBSIZE").AsInt64(); err != nil || size != 0 {
		t.Errorf("%d keys left, %v", size, err)
	}
}

// Of many who write the same number one is told so, and of all that is written
// nothing is lost.
func TestDocumentWriters(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	fleet := []*redislimit.Documents{open(t, server.URL()).Documents(), open(t, server.URL()).Documents()}
	for number := int64(1); number <= 200; number++ {
		var wins atomic.Int64
		var wg sync.WaitGroup
		for i := range fleet {
			wg.Go(func() {
				ok, err := fleet[i].Write(t.Context(), "two", number, fmt.Append(nil, i))
				if err != nil {
					t.Error(err)
				}
				if ok {
					wins.Add(int64(1 + i*1000))
				}
			})
		}
		wg.Wait()
		text, err := fleet[0].Read(t.Context(), "two", number)
		if want := map[int64]string{1: "0", 1001: "1"}[wins.Load()]; want == "" || string(text) != want || err != nil {
			t.Fatalf("version %d: sum of wins %d, text %q, %v", number, wins.Load(), text, err)
		}
	}
	const writers = 100
	wrote := make([]int64, writers)
	kept := make([]bool, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for wrote[i] == 0 {
				n, _, err := fleet[i%2].Newest(t.Context(), "many")
				ok, err2 := fleet[i%2].Write(t.Context(), "many", n+1, fmt.Append(nil, i))
				if err != nil || err2 != nil {
					t.Error(err, err2)
					return
				}
				if ok {
					wrote[i] = n + 1
					text, err := fleet[i%2].Read(t.Context(), "many", n+1)
					kept[i] = err == nil && (string(text) == fmt.Sprint(i) || text == nil) // nil: 50 came since
				}
			}
		})
	}
	wg.Wait()
	seen := map[int64]bool{}
	for i, n := range wrote {
		if seen[n] || n < 1 || n > writers || !kept[i] {
			t.Errorf("writer %d: version %d, which another has, or cannot be, or is lost", i, n)
		}
		seen[n] = true
	}
	for n := int64(writers - 49); n <= writers; n++ {
		text, err := fleet[0].Read(t.Context(), "many", n)
		var i int
		if _, err2 := fmt.Sscan(string(text), &i); err != nil || err2 != nil || wrote[i] != n {
			t.Errorf("version %d holds %q, %v, %v", n, text, err, err2)
		}
	}
}

func TestFrozenDocuments(t *testing.T) {
	server := redistest.Start(t)
	d := open(t, server.URL()).Documents()
	write(t, d, "a", 1, "")
	watching, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() { d.Watch(watching, func() {}); close(watched) }()
	server.Freeze(t)
	for name, call := range map[string]func(ctx context.Context) error{
		"newest": func(ctx context.Context) error { _, _, err := d.Newest(ctx, "a"); return err },
		"read":   func(ctx context.Context) error { _, err := d.Read(ctx, "a", 1); return err },
		"write":  func(ctx context.Context) error { _, err := d.Write(ctx, "a", 2, nil); return err },
		"watch": func(ctx context.Context) error {
			d.Watch(ctx, func() { t.Error("a frozen server was heard") })
			return ctx.Err()
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := call(ctx)
		deadline, _ := ctx.Deadline()
		if late := time.Since(deadline); !errors.Is(err, context.DeadlineExceeded) || late > time.Second {
			t.Errorf("%s: %v, %s late", name, err, late)
		}
		cancel()
	}
	stop()
	select {
	case <-watched:
	case <-time.After(time.Second):
		t.Error("Watch goes on after its context")
	}
}
