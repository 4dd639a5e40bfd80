package stint

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/limittext"
)

// ParseLimit reads the text form of a limit:
//
//	[NAME:] AMOUNT per PERIOD [ALGORITHM] [burst N] [buckets N] [lease N%] [hold [TIME]] [retry TIME] [debt N]
//	[NAME:] AMOUNT per day|week|month|year [in ZONE] [starts DAY] [lease N%] [hold [TIME]] [retry TIME] [debt N]
//	[NAME:] AMOUNT in_flight [hold TIME] [retry TIME]
//	[NAME:] unlimited
//
// such as "login: 5 per 1m", "search: 100 per 10s sliding_log", "100 per 1h token_bucket
// burst 20", "500 per 1d sliding_window buckets 12", "100000 per 1m lease 5%",
// "200000 per 1m fixed_window hold", "5000000 per month in Europe/Berlin starts 15" or
// "4 in_flight". An AMOUNT of 0 lets nothing pass; unlimited lets everything pass. PERIOD and TIME are Go
// durations, or numbers of days such as 7d. Words may be in any case, but units of time may not. hold without
// a TIME is DefaultHold, and debt 0 is NoDebt. For ZONE and DAY, see Calendar. NAME ends at the last colon,
// so it may contain colons. Name your limits if several count in one Store: limits with the same name, or
// with none, share their counts if their algorithms and periods are the same (see Spec.Name).
func ParseLimit(text string) (*Limit, error) {
	name, terms, err := cutName(text)
	if err != nil {
		return nil, fmt.Errorf("limit %q: %w", limittext.Clip(text), err)
	}
	words := inLowerCase(strings.Fields(terms))
	s, err := parseSpec(words)
	if err != nil {
		if better := misplaced(words); better != nil {
			err = better
		}
		return nil, fmt.Errorf("limit %q: %w", limittext.Clip(text), err)
	}
	s.Name = name
	l, err := NewLimit(s)
	if err != nil {
		return nil, fmt.Errorf("limit %q: %w", limittext.Clip(text), errors.Unwrap(err))
	}
	return l, nil
}

// inLowerCase writes keywords as parseSpec expects them. Values stay as they are.
func inLowerCase(words []string) []string {
	for i, w := range words {
		if kind, err := algo.ParseKind(w); err == nil {
			words[i] = kind.String()
		} else if lower := strings.ToLower(w); lower == "per" || slices.Contains(options, lower) {
			words[i] = lower
		}
	}
	return words
}

// cutName cuts a limit's text at its last colon. The terms contain no colon.
func cutName(text string) (name, terms string, err error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", text, nil
	}
	if name = strings.TrimSpace(text[:i]); name == "" {
		return "", "", errors.New(`a name must come before ":", such as "login: 5 per 1m"`)
	}
	return name, text[i+1:], nil
}

// MustLimit is ParseLimit for limits written in the program: it panics where
// ParseLimit returns an error.
func MustLimit(text string) *Limit {
	l, err := ParseLimit(text)
	if err != nil {
		panic(err)
	}
	return l
}

// misplaced returns an error if the algorithm stands in the wrong place or there are two;
// nil: something else is wrong.
func misplaced(words []string) error {
	const after = 3 // AMOUNT per PERIOD
	isAlgorithm := func(word string) bool { _, err := algo.ParseKind(word); return err == nil }
	i := slices.IndexFunc(words, isAlgorithm)
	if i < 0 {
		return nil
	}
	if j := slices.IndexFunc(words[i+1:], isAlgorithm); j >= 0 {
		return fmt.Errorf("%q and %q: only one algorithm", words[i], words[i+1+j])
	}
	if i == after || len(words) <= after || i == 1 && words[i] == InFlight.String() {
		return nil
	}
	inOrder := slices.Insert(slices.Delete(slices.Clone(words), i, i+1), after, words[i])
	s, err := parseSpec(inOrder)
	if err == nil {
		_, err = NewLimit(s)
	}
	if err != nil {
		return fmt.Errorf("%q must come right after the period, and then: %s", words[i], strings.TrimPrefix(err.Error(), "limit: "))
	}
	return fmt.Errorf("%q must come right after the period: write %q", words[i], limittext.Clip(strings.Join(inOrder, " ")))
}

// parseSpec reads the words of a limit's text form.
func parseSpec(f []string) (Spec, error) {
	var s Spec
	if len(f) == 1 && strings.EqualFold(f[0], unlimitedTerms) {
		return Spec{Amount: Unlimited}, nil
	}
	inFlight := len(f) >= 2 && f[1] == InFlight.String()
	if !inFlight && (len(f) < 3 || f[1] != "per") {
		return s, errors.New(`want AMOUNT per PERIOD, such as "100 per 1m", AMOUNT in_flight, or unlimited`)
	}
	var err error
	if s.Amount, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		plain := strings.NewReplacer("_", "", ",", "", "'", "").Replace(f[0])
		if n, err := strconv.ParseInt(plain, 10, 64); err == nil {
			return s, fmt.Errorf("amount %q: write %d", limittext.Clip(f[0]), n)
		}
		return s, fmt.Errorf("amount %q: must be a whole number from 1 to 2^52", limittext.Clip(f[0]))
	}
	if s.Amount == Unlimited {
		return s, fmt.Errorf("amount %d: write %q", s.Amount, unlimitedTerms)
	}
	if inFlight {
		s.Algorithm = InFlight
		f = f[2:]
	} else {
		if s.Calendar.Unit, err = (internals{}).ParseCalendarUnit(f[2]); err != nil {
			if s.Period, err = limittext.Period(f[2]); err != nil {
				return s, fmt.Errorf("%w, or day, week, month or year", err)
			}
		}
		f = f[3:]
	}
	for _, word := range f {
		if name, value, ok := strings.Cut(word, "="); ok {
			return s, fmt.Errorf("%q: write %q", limittext.Clip(word), limittext.Clip(name+" "+value))
		}
	}
	if len(f) > 0 && !inFlight && !slices.Contains(options, f[0]) {
		kind, err := algo.ParseKind(f[0])
		if err != nil {
			return s, err
		}
		if s.Algorithm = Algorithm(kind); s.Calendar.Unit != 0 && s.Algorithm != FixedWindow {
			return s, fmt.Errorf("%s per %s: only fixed_window can follow the calendar", s.Algorithm, s.Calendar.Unit)
		}
		f = f[1:]
	}
	return s, s.parseOptions(f)
}

// options are the words that name a value after the algorithm.
var options = []string{"in", "starts", "burst", "buckets", "lease", "hold", "retry", "debt"}

func (s *Spec) parseOptions(f []string) error {
	seen := map[string]bool{}
	for len(f) > 0 {
		name := f[0]
		if !slices.Contains(options, name) {
			return fmt.Errorf("%q: only %s may follow", limittext.Clip(name), strings.Join(options, ", "))
		}
		if seen[name] {
			return fmt.Errorf("%q: only once", name)
		}
		seen[name] = true
		if name == "hold" && (len(f) == 1 || slices.Contains(options, f[1])) {
			s.Hold = DefaultHold
			f = f[1:]
			continue
		}
		if len(f) == 1 {
			return fmt.Errorf("%q: %s must follow", name, what(name))
		}
		if err := s.parseOption(name, f[1]); err != nil {
			return err
		}
		f = f[2:]
	}
	return nil
}

// what names the value that an option needs.
func what(option string) string {
	switch option {
	case "in":
		return "a time zone"
	case "starts":
		return "a day"
	}
	return "a number"
}

func (s *Spec) parseOption(name, value string) (err error) {
	switch name {
	case "in":
		s.Calendar.Zone = value
		return nil
	case "starts":
		s.Calendar.Starts = value
		return nil
	case "lease":
		s.Lease, err = limittext.Lease(value)
		return err
	case "hold":
		s.Hold, err = timeOf(name, value)
		return err
	case "retry":
		s.Retry, err = timeOf(name, value)
		return err
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if name == "debt" && (err != nil || n < 0) {
		return fmt.Errorf("debt %q: must be a whole number of units", limittext.Clip(value))
	}
	if err != nil || n < 1 && name != "debt" {
		return fmt.Errorf("%s %q: must be a whole number of at least 1", name, limittext.Clip(value))
	}
	switch name {
	case "burst":
		s.Burst = n
	case "buckets":
		s.Buckets = int(min(n, algo.MaxBuckets+1))
	case "debt":
		if s.Debt = n; n == 0 {
			s.Debt = NoDebt
		}
	}
	return nil
}

// timeOf reads the time of hold or retry.
func timeOf(name, text string) (time.Duration, error) {
	d, err := limittext.Period(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s %q: must be a time such as 500ms, 30s or 5m", name, limittext.Clip(text))
	}
	return d, nil
}

// terms is the text form of s without its name.
func (s *Spec) terms() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", s.Amount)
	switch {
	case s.Calendar.Unit != 0:
		b.WriteString(" per " + s.Calendar.terms())
	case s.Algorithm != InFlight:
		fmt.Fprintf(&b, " per %s", limittext.Duration(s.Period))
	}
	if s.Calendar.Unit == 0 && (s.Algorithm != TokenBucket || s.Burst > 0) {
		b.WriteString(" " + s.Algorithm.String())
	}
	if s.Burst > 0 {
		fmt.Fprintf(&b, " burst %d", s.Burst)
	}
	if s.Buckets > 0 {
		fmt.Fprintf(&b, " buckets %d", s.Buckets)
	}
	if s.Lease > 0 {
		fmt.Fprintf(&b, " lease %d%%", s.Lease)
	}
	if s.Hold > 0 {
		b.WriteString(" hold")
		if s.Hold != DefaultHold || s.Algorithm == InFlight {
			b.WriteString(" " + limittext.Duration(s.Hold))
		}
	}
	if s.Retry > 0 {
		b.WriteString(" retry " + limittext.Duration(s.Retry))
	}
	if s.Debt != 0 {
		fmt.Fprintf(&b, " debt %d", max(0, s.Debt))
	}
	return b.String()
}
