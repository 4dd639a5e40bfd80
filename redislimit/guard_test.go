package redislimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// A program that has the Guard, and not the function, sees who is banned in another one and pardons them.
func TestGuardedFromAnotherProcess(t *testing.T) {
	server := redistest.Start(t)
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 2, BanFor: time.Hour})
	guard := stint.Guard[int, int]{Name: "load: all", Limit: stint.MustLimit("load: 1 per 1h"), Penalty: p, OnError: stint.OnErrorDeny}
	// Each process has a Limiter that waits for Redis: without a deadline of its own, the Guard gives it one of 25 ms.
	process := func() *stint.Limiter {
		patient := &fleet.Fallback{Store: open(t, server.URL()+unhurried), Deadline: time.Minute}
		t.Cleanup(patient.Close)
		return stint.NewLimiter(patient)
	}
	guard.Limiter = process()
	load := guard.For(loadUser)
	guard.Limiter = process()
	desk := guard.For(nil)

	ann := stint.WithSubject(t.Context(), "ann")
	if found, err := desk.Pardon(ann, 1); found || err != nil {
		t.Errorf("a pardon before the first call: %v, %v", found, err)
	}
	if _, err := load.Call(ann, 1); err != nil {
		t.Fatal(err)
	}
	var refused *stint.RefusedError
	for range 3 {
		if _, err := load.Call(ann, 1); !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	key, err := desk.Key(ann, 1)
	if err != nil || key != "load%3A all:subject=ann" || refused.Outcome != stint.Banned || refused.Key != key {
		t.Errorf("key %q, %v; refused %+v", key, err, refused)
	}
	d, err1 := desk.Peek(ann, 1)
	r, err2 := desk.Record(ann, 1)
	if d.Remaining != 0 || r.Key != key || r.BanLeft <= 0 || errors.Join(err1, err2) != nil {
		t.Errorf("%+v, %+v, %v, %v", d, r, err1, err2)
	}
	if found, err := desk.Pardon(stint.WithSubject(t.Context(), "bob"), 1); found || err != nil {
		t.Errorf("a pardon of another one: %v, %v", found, err)
	}
	if found, err := desk.Pardon(ann, 1); !found || err != nil {
		t.Errorf("the pardon: %v, %v", found, err)
	}
	if err := desk.Reset(ann, 1); err != nil {
		t.Error(err)
	}
	// What the other process remembers of the ban is invalidated soon after.
	await.Until(t, "the pardon is seen", func() bool { _, err := load.Call(ann, 1); return err == nil })
}
