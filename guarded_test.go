package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// tariff has methods of each kind.
type tariff struct{}

func (tariff) byValue(context.Context, int) (int, error)    { return 1, nil }
func (*tariff) byPointer(context.Context, int) (int, error) { return 1, nil }

type byValuer interface {
	byValue(context.Context, int) (int, error)
}

type box[T any] struct{}

func (*box[T]) load(context.Context, int) (int, error) { return 1, nil }

func generic[T any](context.Context, T) (int, error) { return 1, nil }

var ofVariable = func(context.Context, int) (int, error) { return 1, nil }

// The default name is that of the function, however it is made a value.
func TestGuardDefaultNames(t *testing.T) {
	var receiver tariff
	var behind byValuer = receiver
	for want, f := range map[string]func(context.Context, int) (int, error){
		"one":                         one,
		"tariff.byValue":              receiver.byValue,
		"tariff.byPointer":            receiver.byPointer,
		"box.load":                    new(box[map[string]int]).load,
		"generic":                     generic[int],
		"init.func1":                  ofVariable,
		"TestGuardDefaultNames.func1": func(context.Context, int) (int, error) { return 2, nil },
		"byValuer.byValue":            behind.byValue,
	} {
		got := stint.Guard[int, int]{}.For(f).Name()
		if want = "github.com/stintdev/stint_test." + want; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := (stint.Guard[int, int]{Name: "own"}).For(one).Name(); got != "own" {
		t.Error(got)
	}
}

// Key is the key that a call is charged under, for all names and keys, and differs where one of them does.
func TestGuardedKeyIsCharged(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	draw := func() string {
		const letters = ":%3Aa一=( \x00"
		b := make([]rune, 1+rng.IntN(4))
		for i := range b {
			b[i] = []rune(letters)[rng.IntN(len([]rune(letters)))]
		}
		return string(b)
	}
	var charged []string
	limiter := &stint.Limiter{Observe: func(_ context.Context, r *stint.Request, _ *stint.Answer) {
		for _, a := range r.Asks {
			charged = append(charged, a.Key)
		}
	}}
	of := map[string][2]string{}
	for range 5000 {
		pair := [2]string{draw(), draw()}
		f := stint.Guard[string, int]{
			Name: pair[0], Limiter: limiter, Limit: stint.MustLimit("a: 1 per 1h"), More: []*stint.Limit{stint.MustLimit("b: 1 per 1d")},
			Key: func(ctx context.Context, a string) string { return stint.Caller(ctx) + a },
		}.For(func(context.Context, string) (int, error) { return 1, nil })
		ctx := t.Context()
		if rng.IntN(2) == 0 {
			ctx = stint.WithSubject(ctx, draw())
		}
		key, err := f.Key(ctx, pair[1])
		if err != nil {
			t.Fatal(err)
		}
		pair[1] = stint.Caller(ctx) + pair[1]
		if before, ok := of[key]; ok && before != pair {
			t.Fatalf("%q is the key of %q and of %q", key, before, pair)
		}
		of[key] = pair
		charged = charged[:0]
		argument := pair[1][len(stint.Caller(ctx)):]
		if rng.IntN(2) == 0 {
			_, _ = f.Call(ctx, argument)
		} else {
			_, _ = f.Do(ctx, argument, func(context.Context) (int, error) { return 1, nil })
		}
		if len(charged) != 2 || charged[0] != key || charged[1] != key {
			t.Fatalf("%q was charged, want %q", charged, key)
		}
	}
	if len(of) < 1000 {
		t.Errorf("only %d pairs", len(of))
	}
}

// What is stored of a caller can be looked at and pardoned where the call is guarded, and by another program
// that has the Guard and not the function.
func TestGuardedStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := stint.Guard[int, int]{
			Name: "load", Limiter: new(stint.Limiter), Limit: stint.MustLimit("2 per 1h fixed_window"), More: []*stint.Limit{stint.MustLimit("9 per 1d fixed_window")},
			Penalty: penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 2, BanFor: time.Hour}),
		}
		f, other := guard.For(one), guard.For(nil)
		ann, bob := stint.WithSubject(t.Context(), "ann"), stint.WithSubject(t.Context(), "bob")
		stands := func(ctx context.Context) string {
			d, err := other.Peek(ctx, 0)
			r, err2 := other.Record(ctx, 0)
			return fmt.Sprintf("%d left, %d violations, %s, %v", d.Remaining, r.Violations, r.BanLeft, errors.Join(err, err2))
		}
		for i, c := range []struct {
			do   func() string
			want string
		}{
			{func() string { return stands(ann) }, "2 left, 0 violations, 0s, <nil>"},
			{func() string { return outcome(f.Call(ann, 0)) }, "1 <nil>"},
			{func() string { return stands(ann) }, "1 left, 0 violations, 0s, <nil>"},
			{func() string { return outcome(f.Call(ann, 0)) }, "1 <nil>"},
			{func() string { return outcome(f.Call(ann, 0)) }, "limited: "},
			{func() string { return stands(ann) }, "0 left, 1 violations, 0s, <nil>"},
			{func() string { return outcome(f.Call(ann, 0)) }, "banned: "},
			{func() string { return stands(ann) }, "0 left, 0 violations, 1h0m0s, <nil>"},
			{func() string { return fmt.Sprint(other.Pardon(bob, 0)) }, "false <nil>"},
			{func() string { return fmt.Sprint(other.Pardon(ann, 0)) }, "true <nil>"},
			{func() string { return fmt.Sprint(other.Pardon(ann, 0)) }, "false <nil>"},
			{func() string { return outcome(f.Call(ann, 0)) }, "limited: "},
			{func() string { return fmt.Sprint(other.Reset(ann, 0)) }, "<nil>"},
			{func() string { return outcome(f.Call(ann, 0)) }, "1 <nil>"},
			{func() string { return stands(ann) }, "1 left, 1 violations, 0s, <nil>"},
			{func() string { return stands(bob) }, "2 left, 0 violations, 0s, <nil>"},
		} {
			if got := c.do(); got != c.want {
				t.Errorf("step %d: %s, want %s", i, got, c.want)
			}
		}
	})
}

// Of a caller who is not known, the methods do as calls do.
func TestGuardedAnonymous(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	for _, c := range []struct {
		anonymous stint.Anonymous
		key       string
		refuses   bool
		left      int64
		found     bool
	}{
		{stint.AnonymousRefuse, "", true, 0, false},
		{stint.AnonymousShare, "g:(anonymous)", false, 3, true},
		{stint.AnonymousAllow, "", false, 0, false},
	} {
		f := stint.Guard[int, int]{Name: "g", Limit: stint.MustLimit("3 per 1h"), Penalty: p, Anonymous: c.anonymous}.For(one)
		key, err := f.Key(t.Context(), 0)
		d, err1 := f.Peek(t.Context(), 0)
		if errors.Is(err, stint.ErrRequest) != c.refuses || key != c.key || d.Remaining != c.left || d.Allowed == c.refuses {
			t.Errorf("%s: key %q, %v, %+v", c.anonymous, key, err, d)
		}
		for range 4 {
			_, _ = f.Call(t.Context(), 0)
		}
		r, err2 := f.Record(t.Context(), 0)
		found, err3 := f.Pardon(t.Context(), 0)
		err4 := f.Reset(t.Context(), 0)
		if found != c.found || (r.BanLeft > 0) != c.found {
			t.Errorf("%s: %+v, found %v", c.anonymous, r, found)
		}
		for i, err := range []error{err1, err2, err3, err4} {
			if errors.Is(err, stint.ErrRequest) != c.refuses || err != nil && !c.refuses {
				t.Errorf("%s: method %d: %v", c.anonymous, i+1, err)
			}
		}
	}
}

// A Guard without a Penalty has nothing to pardon, and says so.
func TestGuardedWithoutPenalty(t *testing.T) {
	f := stint.Guard[int, int]{Anonymous: stint.AnonymousShare}.For(one)
	_, err1 := f.Record(t.Context(), 0)
	_, err2 := f.Pardon(t.Context(), 0)
	if !errors.Is(err1, stint.ErrRequest) || !errors.Is(err2, stint.ErrRequest) {
		t.Error(err1, err2)
	}
	defer func() {
		if p := recover(); p != "stint: a Guard without a function needs a Name" {
			t.Error(p)
		}
	}()
	stint.Guard[int, int]{}.For(nil)
}

// Client counts by address although the caller is known.
func TestGuardByClient(t *testing.T) {
	f := stint.Guard[int, int]{
		Name: "g", Limit: stint.MustLimit("1 per 1h"), Key: func(ctx context.Context, _ int) string { return stint.Client(ctx) },
	}.For(one)
	for i, c := range []struct{ subject, client, key, want string }{
		{"ann", "192.0.2.1", "g:client=192.0.2.1", "1 <nil>"},
		{"bob", "192.0.2.1", "g:client=192.0.2.1", "limited: "},
		{"", "192.0.2.1", "g:client=192.0.2.1", "limited: "},
		{"ann", "192.0.2.2", "g:client=192.0.2.2", "1 <nil>"},
	} {
		ctx := stint.WithClient(stint.WithSubject(t.Context(), c.subject), c.client)
		key, err := f.Key(ctx, 0)
		if got := outcome(f.Call(ctx, 0)); got != c.want || key != c.key || err != nil {
			t.Errorf("%d: %s by %q, %v", i, got, key, err)
		}
	}
	if _, err := f.Call(stint.WithSubject(t.Context(), "ann"), 0); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("no address: %v", err)
	}
}
