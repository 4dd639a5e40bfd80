package stint_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

func TestTextsOfNothingAndUnlimited(t *testing.T) {
	for text, want := range map[string]string{
		"unlimited": "unlimited", "UNLIMITED": "unlimited", "api: unlimited": "api: unlimited",
		"0 per 1m": "0 per 1m", "off: 0 per day": "off: 0 per day", "0 in_flight": "0 in_flight",
		"0 per 1h fixed_window hold": "0 per 1h fixed_window hold", "0 per 1m lease 5%": "0 per 1m lease 5%",
	} {
		l := stint.MustLimit(text)
		if l.String() != want {
			t.Errorf("%q is written as %q, want %q", text, l, want)
		}
		var read stint.Limit
		data, err := json.Marshal(l)
		if err == nil {
			err = json.Unmarshal(data, &read)
		}
		if err != nil || read.String() != want || read.Capacity() != l.Capacity() || read.ID() != l.ID() {
			t.Errorf("%q is read back as %q, %v", data, &read, err)
		}
	}
	for _, text := range []string{"0 per 0s", "5 per 0s", "0 per 1m burst 20", "unlimited per 1m", "0", "-1 per 1m", "0 per 1m buckets 3", "9007199254740991 per 1m"} {
		if l, err := stint.ParseLimit(text); err == nil {
			t.Errorf("%q is %s, want an error", text, l)
		}
	}
	for _, s := range []stint.Spec{{Amount: stint.Unlimited}, {Amount: stint.Unlimited, Period: time.Minute, Burst: 3}} {
		if l, err := stint.NewLimit(s); err != nil || !l.IsUnlimited() || l.Capacity() != stint.Unlimited {
			t.Errorf("%+v: %v, %v", s, l, err)
		}
	}
}

// What is not counted anywhere must not need the Store.
func TestUnlimitedAloneNeedsNoStore(t *testing.T) {
	free := stint.MustLimit("unlimited")
	limiter := stint.NewLimiter(noStore{})
	d, err := limiter.Allow(t.Context(), "k", free)
	if err != nil || !d.Allowed || d.Remaining != stint.Unlimited || d.ResetAfter != 0 || d.Limit != free || d.Key != "k" {
		t.Errorf("got %+v, %v", d, err)
	}
	release, d, err := limiter.Acquire(t.Context(), "k", free)
	release()
	if err != nil || !d.Allowed {
		t.Errorf("Acquire: %+v, %v", d, err)
	}
	limiter.Instance = stint.MustLimit("1 per 1h")
	if d, _ := limiter.Allow(t.Context(), "k", free); !d.Allowed {
		t.Errorf("with an Instance: %+v", d)
	}
	if d, _ := limiter.Allow(t.Context(), "k", free); d.Allowed {
		t.Error("the limit of the instance does not count")
	}
}

// noStore must not be asked.
type noStore struct{ stint.Store }
