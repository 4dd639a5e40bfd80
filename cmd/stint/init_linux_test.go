package main

import (
	"bytes"
	"io"
	"testing"
	"time"
)

// On a terminal, init without a use asks.
func TestInitOnTerminal(t *testing.T) {
	t.Chdir(t.TempDir())
	person, program := openTerminal(t)
	on := new(screen)
	go func() { _, _ = io.Copy(on, person) }()
	done := make(chan int, 1)
	var errs bytes.Buffer
	go func() { done <- run(t.Context(), []string{"init", "--store", "redis://h"}, program, program, &errs) }()
	for _, s := range []struct{ asked, answer string }{
		{"Number or name: ", "crawlers\n"},
		{"the URL [http://localhost:9000]: ", "\n"},
	} {
		on.await(t, s.asked)
		if _, err := person.Write([]byte(s.answer)); err != nil {
			t.Fatal(err)
		}
	}
	on.await(t, "stint serve --config stint.yaml")
	select {
	case code := <-done:
		if code != 0 || errs.Len() > 0 {
			t.Errorf("exit %d: %s", code, errs.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	settings, _, err := readConfig("stint.yaml")
	if err != nil || settings.Store != "redis://h" {
		t.Errorf("store %q, %v", settings.Store, err)
	}
}
