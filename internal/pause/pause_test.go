package pause_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/pause"
)

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pause.Pauses[string]
		for _, step := range []struct {
			at   time.Duration // after the step before
			do   func()
			a, b time.Duration // left after it
			any  bool
		}{
			{0, func() {}, 0, 0, false},
			{0, func() { p.Add("a", 10*time.Second) }, 10 * time.Second, 0, true},
			{time.Second, func() { p.Add("a", time.Second) }, 9 * time.Second, 0, true}, // a shorter one changes nothing
			{time.Second, func() { p.Add("a", 20*time.Second) }, 20 * time.Second, 0, true},
			{time.Second, func() { p.Add("b", time.Second) }, 19 * time.Second, time.Second, true},
			{2 * time.Second, func() {}, 17 * time.Second, 0, true},
			{0, func() { p.Lift("a"); p.Lift("c") }, 0, 0, false},
			{0, func() { p.Add("b", time.Second) }, 0, time.Second, true},
			{time.Second, func() {}, 0, 0, false},
		} {
			time.Sleep(step.at)
			step.do()
			if a, b, any := p.Left("a"), p.Left("b"), p.Any(); a != step.a || b != step.b || any != step.any {
				t.Errorf("got %s, %s, %t, want %s, %s, %t", a, b, any, step.a, step.b, step.any)
			}
		}
	})
}

// There is room for so many, and what is over makes room.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pause.Pauses[int]
		for i := range pause.Most {
			if !p.Add(i, time.Duration(i+1)*time.Second) {
				t.Fatalf("no room for %d", i)
			}
		}
		if p.Add(pause.Most, time.Hour) || !p.Add(0, time.Hour) || p.Left(pause.Most) != 0 {
			t.Error("the bound does not hold")
		}
		time.Sleep(2 * time.Second)
		if !p.Add(pause.Most, time.Hour) || p.Left(pause.Most) != time.Hour {
			t.Error("what is over makes no room")
		}
	})
}

// Whoever asks after a pause has begun finds it, although others find that earlier ones are over.
func TestAtOnce(t *testing.T) {
	var p pause.Pauses[int]
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 1000 {
				key := 1000*i + n
				p.Add(key, time.Hour)
				if p.Left(key) <= 0 {
					t.Errorf("pause %d is lost", key)
				}
				p.Lift(key)
				if p.Left(key) != 0 {
					t.Errorf("pause %d is not lifted", key)
				}
				p.Add(key, time.Nanosecond)
				p.Left(key)
			}
		})
	}
	all.Wait()
}
