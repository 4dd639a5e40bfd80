package stint

import (
	"fmt"
	"log/slog"

	"github.com/stintdev/stint/internal/limittext"
)

// The texts of values are those of String, so that JSON and YAML are readable.

// MarshalText is String.
func (l *Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText is ParseLimit. l must be new, and still is after an error.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err == nil {
		l.spec, l.id, l.terms, l.lease = parsed.spec, parsed.id, parsed.terms, parsed.lease
		l.counted.Plan, l.counted.Salt = parsed.counted.Plan, parsed.counted.Salt
	}
	return err
}

// MarshalText is String.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is the inverse of String. Any other text is an error.
func (a *Algorithm) UnmarshalText(text []byte) (err error) {
	*a, err = fromText("algorithm", text, TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindow, InFlight)
	return err
}

// MarshalText is String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is the inverse of String. Any other text is an error.
func (o *Outcome) UnmarshalText(text []byte) (err error) {
	*o, err = fromText("outcome", text, 0, Allowed, Limited, Warned, Banned)
	return err
}

// MarshalText is String.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of String. Any other text is an error.
func (s *Source) UnmarshalText(text []byte) (err error) {
	*s, err = fromText("source", text, ByStore, ByLocal, ByPolicy, ByLease, ByInstance)
	return err
}

// MarshalText is String. The zero HoldID is an empty text.
func (id HoldID) MarshalText() ([]byte, error) {
	if id == (HoldID{}) {
		return []byte{}, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText is the inverse of MarshalText.
func (id *HoldID) UnmarshalText(text []byte) (err error) {
	*id = HoldID{}
	if len(text) > 0 {
		*id, err = ParseHoldID(string(text))
	}
	return err
}

// fromText is the one of values whose String is text.
func fromText[T fmt.Stringer](what string, text []byte, values ...T) (none T, err error) {
	for _, v := range values {
		if v.String() == string(text) {
			return v, nil
		}
	}
	return none, fmt.Errorf("stint: unknown %s %q", what, limittext.Clip(string(text)))
}

// LogValue returns the outcome, and the limit, key and numbers that are not zero.
func (d Decision) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("outcome", d.Outcome.String())}
	if d.Limit != nil {
		attrs = append(attrs, slog.String("limit", d.Limit.String()), slog.String("key", d.Key), slog.Int64("remaining", d.Remaining))
	} else if d.Key != "" {
		attrs = append(attrs, slog.String("key", d.Key))
	}
	if d.Held > 0 {
		attrs = append(attrs, slog.Int64("held", d.Held))
	}
	if d.RetryAfter == Never {
		attrs = append(attrs, slog.String("retry_after", "never"))
	} else if d.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retry_after", d.RetryAfter))
	}
	if d.ResetAfter > 0 {
		attrs = append(attrs, slog.Duration("reset_after", d.ResetAfter))
	}
	if d.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", d.Delay))
	}
	if d.Penalty != nil {
		attrs = append(attrs, slog.String("penalty", d.Penalty.Spec().Name), slog.Int64("violations", d.Violations))
	}
	if d.BanLeft > 0 {
		attrs = append(attrs, slog.Duration("ban_left", d.BanLeft))
	}
	if d.By != ByStore {
		attrs = append(attrs, slog.String("by", d.By.String()))
	}
	return slog.GroupValue(attrs...)
}
