package watch

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

// lockedBuffer is a buffer that goroutines share.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// However many goroutines refuse at once while lines are counted, each refusal is in a line or
// in a count, once.
func TestRefusalCountsConcurrently(t *testing.T) {
	var log lockedBuffer
	l := &Refusals{to: slog.New(slog.NewTextHandler(&log, nil)), shown: func(key string) string { return key }, most: 3}
	rule := &rules.Rule{Name: "one"}
	counters := ruleCounters{rules: map[*rules.Rule]*ruleCounter{rule: {lines: ruleLines{rule: "one"}}}}
	set := &Served{counters: counters}
	const goroutines, each = 8, 20_000
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range each {
				e := decide.Request{In: new(rules.Input)}
				e.Kind, e.Rule = kind.Limited, rule
				e.Decision = stint.Decision{Outcome: stint.Limited, Key: "k"}
				l.decided(context.Background(), event{decide.Event{Request: &e, Start: time.Duration(i/1000) * time.Second}, set})
				if i%500 == 0 {
					l.flush(&counters.of(rule).lines)
				}
			}
		})
	}
	all.Wait()
	l.FlushAll(set)
	sum := strings.Count(log.String(), "msg=refused")
	for _, m := range regexp.MustCompile(`limited=(\d+)`).FindAllStringSubmatch(log.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		sum += n
	}
	if sum != goroutines*each {
		t.Errorf("%d of %d refusals are in the log", sum, goroutines*each)
	}
}

// Of lines in one part of time, so many are taken.
func TestLineCount(t *testing.T) {
	var c lineCount
	got := ""
	for _, part := range []uint32{0, 0, 0, 1, 1, 1, 1, 7, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1} {
		got += map[bool]string{true: "y", false: "n"}[c.take(part, 2)]
	}
	if want := "yynyynnyyyn"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if c.take(5, 0) {
		t.Error("none may be taken")
	}
}

// Whatever the text, it is short and can be printed.
func FuzzLoggable(f *testing.F) {
	for _, text := range []string{"", "a b", "ü 用户", "a\nb", "\x1b[2J", "\u202e", "\xff", strings.Repeat("ä", 300)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Loggable(text)
		if len(got) > 6*longestShown+3 || !utf8.ValidString(got) || strings.IndexFunc(got, func(c rune) bool { return !unicode.IsPrint(c) }) >= 0 {
			t.Errorf("%q becomes %q", text, got)
		}
		if len(text) <= longestShown && got != text && !strings.Contains(got, `\`) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

func TestLoggedWait(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Microsecond: "1µs", 999*time.Millisecond + 1500: "999.0015ms", 1234567891: "1.235s", 30 * time.Minute: "30m0s", stint.Never: "never",
	} {
		if got := loggedWait(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}
