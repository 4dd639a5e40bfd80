package limittext_test

import (
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/limittext"
)

func TestOneOf(t *testing.T) {
	all := []stint.OnError{stint.OnErrorLocal, stint.OnErrorAllow, stint.OnErrorDeny}
	read := limittext.OneOf("on_store_error", all...)
	for _, want := range all {
		if got, err := read(want.String()); got != want || err != nil {
			t.Errorf("%s: got %s, %v", want, got, err)
		}
	}
	const want = `on_store_error "open": must be one of local, allow, deny`
	if _, err := read("open"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestDurationIsReadBack(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 61 * time.Minute: "1h1m",
		10 * time.Second: "10s", 10 * time.Minute: "10m", 1500 * time.Microsecond: "1.5ms", 168 * time.Hour: "168h",
	} {
		got := limittext.Duration(d)
		if again, err := limittext.Period(got); got != want || again != d || err != nil {
			t.Errorf("%v is %q, want %q, and is read as %v, %v", d, got, want, again, err)
		}
	}
}
