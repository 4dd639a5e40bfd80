package stint_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

var ctx = context.Background()

// How do I limit something?
func Example() {
	perMinute := stint.MustLimit("api: 2 per 1m")
	var limiter stint.Limiter // lives in memory

	for range 3 {
		d, err := limiter.Allow(ctx, "user:42", perMinute)
		if err != nil {
			fmt.Println("could not decide:", err)
			return
		}
		fmt.Println(d.Outcome, d.Remaining, d.RetryAfter.Round(time.Second))
	}
	// Output:
	// allowed 1 0s
	// allowed 0 0s
	// limited 0 30s
}

// How do I limit by user, by address and by API at once?
func ExampleLimiter_Take() {
	var (
		limiter stint.Limiter
		perUser = stint.MustLimit("user: 100 per 1m")
		perIP   = stint.MustLimit("ip: 1000 per 1h sliding_window")
		perAPI  = stint.MustLimit("export: 1 per 10s sliding_log")
	)
	r := stint.Request{Asks: []stint.Ask{
		{Key: "user:42", Limit: perUser},
		{Key: "ip:192.0.2.1", Limit: perIP},
		{Key: "api:/export", Limit: perAPI},
	}}
	for range 2 {
		d, err := limiter.Take(ctx, &r, nil)
		if err != nil {
			fmt.Println("could not decide:", err)
			return
		}
		fmt.Println(d.Outcome, "by", d.Key)
	}
	d, _ := limiter.Peek(ctx, "user:42", perUser) // the refused request cost nothing
	fmt.Println(d.Remaining)
	// Output:
	// allowed by api:/export
	// limited by api:/export
	// 99
}

type User struct{ Name string }

func loadFromDatabase(_ context.Context, id int) (User, error) {
	return User{"user " + strconv.Itoa(id)}, nil
}

// How do I limit a function, as an annotation would?
func ExampleGuard() {
	limiter := new(stint.Limiter) // or one over what a fleet shares
	ctx := context.Background()

	guard := stint.Guard[int, User]{Limiter: limiter, Limit: stint.MustLimit("load: 5 per 10s"), Message: "slow down"}
	loadUser := guard.Wrap(loadFromDatabase)

	ctx = stint.WithSubject(ctx, "ann") // the caller to count for
	user, err := loadUser(ctx, 42)
	fmt.Println(user.Name, err)

	for range 5 {
		_, err = loadUser(ctx, 43)
	}
	var refused *stint.RefusedError
	if errors.As(err, &refused) {
		fmt.Println(refused.Message, refused.RetryAfter.Round(time.Second))
	}
	// Output:
	// user 42 <nil>
	// slow down 2s
}

// How do I count a function's calls by its argument, together with another one's, and
// switch that off while it runs?
func ExampleGuard_key() {
	var limited atomic.Bool
	limited.Store(true)
	guard := stint.Guard[int, User]{
		Name:    "users",
		Limit:   stint.MustLimit("mail: 1 per 10s"),
		Key:     func(_ context.Context, id int) string { return strconv.Itoa(id) },
		Enabled: limited.Load,
	}
	loadUser := guard.Wrap(loadFromDatabase)
	for _, id := range []int{42, 43, 42} {
		_, err := loadUser(ctx, id)
		fmt.Println(id, err == nil)
	}
	limited.Store(false)
	_, err := loadUser(ctx, 42)
	fmt.Println(42, err == nil)
	// Output:
	// 42 true
	// 43 true
	// 42 false
	// 42 true
}

// How do I see who is banned from a function, and lift the ban?
func ExampleGuarded() {
	penalty, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 2, BanFor: 48 * time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	users := stint.Guard[int, User]{
		Name: "users", Limit: stint.MustLimit("1 per 1m"), Penalty: penalty,
		Messages: stint.Messages{Limited: "slow down", Banned: "banned for {ban_left}", StillBanned: "still banned for {ban_left}"},
	}.For(loadFromDatabase)

	ann := stint.WithSubject(ctx, "ann")
	for range 4 {
		_, err := users.Call(ann, 42)
		var refused *stint.RefusedError
		if errors.As(err, &refused) {
			fmt.Println(refused.Message)
		}
	}
	key, _ := users.Key(ann, 42)
	found, _ := users.Pardon(ann, 42)
	bob, _ := users.Pardon(stint.WithSubject(ctx, "bob"), 42)
	fmt.Println(key, found, bob)
	// Output:
	// slow down
	// banned for 2d
	// still banned for 2d
	// users:subject=ann true false
}

// How do I wait for my turn rather than be refused?
func ExampleLimiter_Wait() {
	var limiter stint.Limiter
	pace := stint.MustLimit("calls: 100 per 1s leaky_bucket")
	start := time.Now()
	for range 3 {
		if err := limiter.Wait(ctx, "mailer", pace); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(time.Since(start) >= 20*time.Millisecond)
	// Output: true
}

// How do I punish those who do not stop?
func ExamplePenalty() {
	login := stint.MustLimit("login: 5 per 1m")
	penalty, err := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 3, BanAfter: 5, BanFor: 30 * time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	var limiter stint.Limiter
	r := stint.Request{Asks: []stint.Ask{{Key: "192.0.2.1", Limit: login, Penalty: penalty}}}
	for range 11 {
		d, err := limiter.Take(ctx, &r, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(d.Outcome, " ")
	}
	other, _ := limiter.Pardon(ctx, "192.0.2.2", penalty)
	found, _ := limiter.Pardon(ctx, "192.0.2.1", penalty)
	fmt.Println(other, found)
	// Output: allowed allowed allowed allowed allowed limited limited warned warned banned banned false true
}

// How do I ask for many users in one round trip?
func ExampleLimiter_TakeBatch() {
	var limiter stint.Limiter
	limit := stint.MustLimit("feed: 1 per 1m")
	users := []string{"ann", "bob", "ann"}
	rs := make([]stint.Request, len(users))
	for i, u := range users {
		rs[i].Asks = []stint.Ask{{Key: u, Limit: limit}}
	}
	answers := make([]stint.Answer, len(users))
	limiter.TakeBatch(ctx, rs, answers)
	for i, a := range answers {
		fmt.Println(users[i], a.Outcome, a.Err)
	}
	// Output:
	// ann allowed <nil>
	// bob allowed <nil>
	// ann limited <nil>
}

// How do I check one limit and spend another? A login counts under attempts, and only failed ones under
// failures, which must have room: the Peek says how much, at the instant at which the attempt is charged.
func ExampleLimiter_Take_peek() {
	var limiter stint.Limiter
	attempts := stint.MustLimit("attempts: 10 per 1h")
	failures := stint.MustLimit("failures: 2 per 1h")

	login := func(user, password string) string {
		r := stint.Request{Asks: []stint.Ask{
			{Key: user, Limit: attempts},
			{Key: user, Limit: failures, Peek: true},
		}}
		var each [2]stint.Decision
		d, err := limiter.Take(ctx, &r, each[:])
		switch {
		case err != nil:
			return "could not decide"
		case !d.Allowed:
			return "too many attempts"
		case each[1].Remaining < 1:
			_ = limiter.Refund(ctx, each[0], 1) // it was no attempt
			return "too many failures"
		case password != "secret":
			_, _ = limiter.Charge(ctx, user, failures, 1)
			return "wrong password"
		}
		return "welcome"
	}
	for _, password := range []string{"guess", "secret", "guess", "secret"} {
		fmt.Println(login("ann", password))
	}
	d, _ := limiter.Peek(ctx, "ann", attempts)
	fmt.Println(d.Remaining, "attempts left")
	// Output:
	// wrong password
	// welcome
	// wrong password
	// too many failures
	// 7 attempts left
}

// How do I refund what a failed operation took?
func ExampleLimiter_Refund() {
	var limiter stint.Limiter
	quota := stint.MustLimit("export: 3 per 24h fixed_window")
	d, err := limiter.AllowN(ctx, "tenant", quota, 2)
	if err != nil || !d.Allowed {
		return
	}
	_ = limiter.Refund(ctx, d, 2) // the export failed
	d, _ = limiter.Peek(ctx, "tenant", quota)
	fmt.Println(d.Remaining)
	// Output: 3
}

// How do I limit what a request costs if I know that only at its end? Hold an estimate, and settle
// what it did cost.
func ExampleLimiter_Reserve() {
	var (
		limiter stint.Limiter
		starts  = stint.MustLimit("starts: 60 per 1m")
		tokens  = stint.MustLimit("tokens: 10000 per 1h fixed_window hold")
		flight  = stint.MustLimit("flight: 4 in_flight")
	)
	ask := func(ctx context.Context, user string) (used int64, err error) { return 1200, nil } // the model

	r, d, err := limiter.Reserve(ctx, &stint.Request{Asks: []stint.Ask{
		{Key: "ann", Limit: starts},
		{Key: "ann", Limit: tokens, Cost: 4000}, // as much as the answer may have
		{Key: "ann", Limit: flight},
	}})
	if err != nil || !d.Allowed {
		return // come back in d.RetryAfter
	}
	defer r.Cancel(ctx) // if it was not settled, it costs nothing

	d, _ = limiter.Peek(ctx, "ann", tokens)
	fmt.Println(d.Remaining, "remain while it runs")
	used, err := ask(ctx, "ann")
	if err != nil {
		return
	}
	if err := r.Settle(ctx, used); err != nil {
		fmt.Println(err)
	}
	d, _ = limiter.Peek(ctx, "ann", tokens)
	fmt.Println(d.Remaining, "remain")
	// Output:
	// 6000 remain while it runs
	// 8800 remain
}

// How do I limit how many run at once?
func ExampleLimiter_Acquire() {
	var limiter stint.Limiter
	exports := stint.MustLimit("exports: 1 in_flight")

	release, d, err := limiter.Acquire(ctx, "tenant", exports)
	fmt.Println(d.Outcome, err)
	_, d, _ = limiter.Acquire(ctx, "tenant", exports)
	fmt.Println(d.Outcome, d.Busy, d.RetryAfter)
	release()
	release, d, _ = limiter.Acquire(ctx, "tenant", exports)
	fmt.Println(d.Outcome)
	release()
	// Output:
	// allowed <nil>
	// limited true 1s
	// allowed
}

// How do I charge what is known only afterwards, without holding anything?
func ExampleLimiter_Charge() {
	var limiter stint.Limiter
	traffic := stint.MustLimit("traffic: 1000000 per 1h fixed_window")
	charged, err := limiter.Charge(ctx, "ann", traffic, 1_500_000) // bytes that were sent
	fmt.Println(charged, err)
	d, _ := limiter.Allow(ctx, "ann", traffic)
	fmt.Println(d.Outcome)
	// Output:
	// 1500000 <nil>
	// limited
}

// How do I limit a function by what its calls turn out to cost?
func ExampleGuard_costAfter() {
	guard := stint.Guard[string, []byte]{
		Name:      "export",
		Limit:     stint.MustLimit("bytes: 1000 per 1h fixed_window hold"),
		Anonymous: stint.AnonymousShare,              // one count for all callers
		Cost:      func(string) int64 { return 500 }, // the estimate
		CostAfter: func(_ string, data []byte, err error) int64 {
			return int64(len(data))
		},
	}
	export := guard.Wrap(func(_ context.Context, name string) ([]byte, error) { return make([]byte, 300), nil })
	for range 4 {
		_, err := export(ctx, "report")
		fmt.Println(err == nil)
	}
	// Output:
	// true
	// true
	// false
	// false
}

// How do I keep one instance from being drowned, whatever its store says? By a second
// layer: a limit of this process's own, beside those that a fleet shares.
func ExampleLimiter_instance() {
	limiter := stint.Limiter{ // Store: what the fleet shares
		Instance: stint.MustLimit("2 per 1m"),
	}
	perUser := stint.MustLimit("user: 3 per 1m")
	for range 3 {
		d, err := limiter.Allow(ctx, "user:42", perUser)
		fmt.Println(d.Outcome, d.By, err)
	}
	d, _ := limiter.Peek(ctx, "user:42", perUser)
	fmt.Println(d.Remaining) // what the instance refused cost the user nothing
	// Output:
	// allowed store <nil>
	// allowed store <nil>
	// limited instance <nil>
	// 1
}

// An observer sees what is decided, wherever in the program.
func ExampleLimiter_observe() {
	l := stint.Limiter{Observe: func(_ context.Context, _ *stint.Request, a *stint.Answer) {
		if a.Err == nil && !a.Allowed {
			fmt.Printf("%s: %s of %s\n", a.Outcome, a.Key, a.Limit)
		}
	}}
	limit := stint.MustLimit("login: 1 per 1h")
	for range 2 {
		_, _ = l.Allow(context.Background(), "ann", limit)
	}
	// Output: limited: ann of login: 1 per 1h
}

// A service has answered "come back in a minute": no worker calls it until then. Workers in other
// processes see it by the PauseAsk.
func ExampleLimiter_Pause() {
	ctx := context.Background()
	var limiter stint.Limiter
	request := &stint.Request{Asks: []stint.Ask{
		{Key: "mail.example", Limit: stint.MustLimit("mail: 100 per 1m")},
		stint.PauseAsk("mail.example"),
	}}
	if err := limiter.Pause(ctx, "mail.example", time.Minute); err != nil {
		fmt.Println(err)
	}
	d, err := limiter.Take(ctx, request, nil) // TakeWait would wait
	fmt.Println(d.Allowed, d.RetryAfter.Round(time.Second), err)
	// Output: false 1m0s <nil>
}
