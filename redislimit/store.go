package redislimit

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// kit opens limits, asks and decisions to this package.
var kit = stint.Internal()

// Options of a Store. The zero Options are good.
type Options struct {
	// Namespace is what all keys and channels start with: stores with different
	// namespaces share nothing, and those with the same one share the counts of
	// limits with equal names and keys, and documents. So each service has a
	// namespace of its own. 1 to 64 of A–Z a–z 0–9 _ . : -. Empty: "stint".
	Namespace string
}

// Store is a stint.Store in Redis. It may be used from many goroutines at once.
// It implements stint.BatchTaker, stint.Refunder, stint.Resetter, stint.Violator,
// stint.Recorder, stint.Inspector, stint.DeadlineKeeper and stint.Networked.
//
// A request takes one round trip. In a Cluster, where its asks have several
// subjects, it is one for each slot, at the same time, and a second one where
// some refuse, to refund what others took meanwhile: no limit is ever
// exceeded, but a refused request may hold units for that long, and the
// ResetAfter of an ask that would have allowed it is as if it had. If refunding
// fails, they stay taken as if the request had been allowed. Slots with leaky buckets
// are asked after the others, one by one, for a place in a queue is not refunded: it
// is lost where a second queue refuses. Where such asks bear penalties, a round trip
// before looks for bans, and where one runs, another looks how long the limits refuse.
//
// Requests that come while others are under way go in one call; see the package.
// Where an error wraps stint.ErrNotCharged, nothing was charged; after another one it
// may have been. It is never sent again.
type Store struct {
	client    Client
	namespace string
	server    atomic.Pointer[Server]
	topology  atomic.Pointer[topology] // of a Cluster; nil: it is not known, or there is none
	id        string                   // of this Store in the census
	take      script
	refund    script
	punish    script
	look      script
	inspect   script
	census    script
	announce  script
	close     func()
	tried     chan struct{} // closed after the first attempt to connect; nil: New was called
	merger    merger
	listed    *semaphore.Weighted // asks of lists
	fallback  fallback
}

// New is a Store over a Client. It asks the server what it is, and returns an
// error that says what to do if it will not serve.
func New(ctx context.Context, c Client, o Options) (*Store, error) {
	s, err := newStore(c, o)
	if err != nil {
		return nil, err
	}
	server, err := ask(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("redislimit: %w", advise(err))
	}
	if err := server.check(); err != nil {
		return nil, fmt.Errorf("redislimit: %w", err)
	}
	s.server.Store(&server)
	return s, nil
}

// newStore is a Store that does not know its server yet.
func newStore(c Client, o Options) (*Store, error) {
	if o.Namespace == "" {
		o.Namespace = "stint"
	}
	if err := checkNamespace(o.Namespace); err != nil {
		return nil, fmt.Errorf("redislimit: %w", err)
	}
	return &Store{client: c, namespace: o.Namespace, id: rand.Text(),
		take: newScript(algo.TakeScript), refund: newScript(algo.RefundScript),
		punish: newScript(algo.ViolateScript), look: newScript(algo.RecordScript), inspect: newScript(algo.InspectScript),
		census: newScript(censusScript), announce: newScript(announceScript),
		merger: merger{queues: map[uint16]*queue{}}, listed: semaphore.NewWeighted(mostListed)}, nil
}

// Namespace is what all keys of the Store start with.
func (s *Store) Namespace() string { return s.namespace }

// Server is what the Store learned of its server when it connected; zero where it
// has not yet, see OpenLater.
func (s *Store) Server() Server { return *s.server.Load() }

// cluster tells whether the server is one of a Cluster.
func (s *Store) cluster() bool { return s.server.Load().Cluster }

// WithFallback implements stint.Networked: a stint.Fallback around the Store, with its
// defaults, which counts the instances that share the limits. It waits for the server for
// stint.DefaultDeadline, logs with slog.Default when that does not decide, and ends with
// Close.
func (s *Store) WithFallback() stint.Store {
	f := &s.fallback
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store == nil {
		f.store = &stint.Fallback{Store: s}
		var ctx context.Context
		ctx, f.done = context.WithCancel(context.Background())
		go f.store.Follow(ctx)
		f.end()
	}
	return f.store
}

// fallback is what WithFallback returned.
type fallback struct {
	mu     sync.Mutex
	store  *stint.Fallback    // nil: nothing yet
	done   context.CancelFunc // ends its counting of instances
	closed bool
}

// end ends what was started, once the Store is closed. The lock is held.
func (f *fallback) end() {
	if f.closed && f.store != nil {
		f.done()
		f.store.Close()
	}
}

// Close ends the connections of a Store that Open made, and what WithFallback returned.
// The client that New was given stays open.
func (s *Store) Close() {
	s.fallback.mu.Lock()
	s.fallback.closed = true
	s.fallback.end()
	s.fallback.mu.Unlock()
	if s.close != nil {
		s.close()
	}
}

// Take implements stint.Store. Requests that come at the same time go to the server
// together, in the order in which they came.
func (s *Store) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	waited, err := s.awaitFirst(ctx, r.Deadline)
	switch {
	case err != nil:
		return stint.Decision{}, notSent(err)
	case waited > 0 && r.Deadline > 0:
		rest := *r
		rest.Deadline = max(1, r.Deadline-waited)
		r = &rest
	}
	if !s.cluster() || oneSlot(r) {
		return s.takeMerged(ctx, r, out)
	}
	if r.Deadline > 0 { // for all that it takes, not for each call
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	return s.takeAcross(ctx, r, out)
}

// KeepsDeadline implements stint.DeadlineKeeper: Take keeps a Request's Deadline, without a
// context, unless its asks lie in several slots of a Cluster. TakeBatch, Refund,
// Violate and all else go by the contexts that they are given.
func (s *Store) KeepsDeadline() bool { return true }

// run decides a batch.
func (s *Store) run(ctx context.Context, b *batch) (string, error) {
	args := b.command(&s.take)
	if c, ok := s.client.(texter); ok && ctx.Done() == nil {
		text, err := evalsha(ctx, &s.take, args, c.text)
		if err != nil {
			return "", fmt.Errorf("redislimit: %w", unsent(advise(err)))
		}
		return text, nil
	}
	reply, err := s.take.do(ctx, s.client, args)
	if err != nil {
		return "", fmt.Errorf("redislimit: %w", unsent(advise(err)))
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("redislimit: the script replied %T, not a string", reply)
	}
	return text, nil
}

// script is a script and the name that the server knows it by.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

// call runs the script on a batch, with further arguments.
func (sc script) call(ctx context.Context, c Client, b *batch, more ...string) (any, error) {
	return sc.do(ctx, c, append(b.command(&sc), more...))
}

// eval runs the script.
func (sc script) eval(ctx context.Context, c Client, keys []string, argv ...string) (any, error) {
	args := make([]string, 0, 3+len(keys)+len(argv))
	args = append(args, "EVALSHA", sc.sha, strconv.Itoa(len(keys)))
	args = append(args, keys...)
	args = append(args, argv...)
	return sc.do(ctx, c, args)
}

func (sc script) do(ctx context.Context, c Client, args []string) (any, error) {
	return evalsha(ctx, &sc, args, c.Do)
}

// evalsha runs the script. NOSCRIPT and TRYAGAIN mean that nothing ran, so they are
// the errors after which the call is sent again: with the text, or a little later.
func evalsha[T any](ctx context.Context, sc *script, args []string, do func(context.Context, ...string) (T, error)) (none T, _ error) {
	for rest := firstRest; ; {
		reply, err := do(ctx, args...)
		if err == nil {
			return reply, nil
		}
		switch word := code(err); {
		case word == "NOSCRIPT" && args[0] == "EVALSHA":
			args[0], args[1] = "EVAL", sc.text
		case word == "TRYAGAIN" && rest <= longestRest:
			select {
			case <-ctx.Done():
				return none, err
			case <-time.After(rest):
			}
			rest *= 2
		default:
			return none, err
		}
	}
}

// A slot that a Cluster moves takes a few milliseconds, of which keys that are on
// both sides can be spoken to on neither. So calls rest so long, 63 ms in all.
const (
	firstRest   = time.Millisecond
	longestRest = 32 * time.Millisecond
)

// code is the server's code of an error that it replied, such as "NOSCRIPT", of
// those that something is done about; "" of another error.
func code(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		word, _, _ := strings.Cut(err.Error(), " ")
		if _, known := advice[word]; known || word == "NOSCRIPT" {
			return word
		}
		// Before Redis 7, an error within a script comes inside of another one.
		if text := err.Error(); strings.HasPrefix(text, "ERR Error running script") || strings.HasPrefix(text, "@user_script") {
			for _, word := range append([]string{"READONLY"}, noWrites...) {
				if strings.Contains(text, ": -"+word+" ") {
					return word
				}
			}
		}
		if strings.HasPrefix(err.Error(), errMaxClients.Error()) {
			return "MAXCLIENTS"
		}
		if word := refusedByTLS(err); word != "" {
			return word
		}
		// What a command within a script lacks is told in words.
		if text := strings.TrimPrefix(err.Error(), "ERR "); strings.HasPrefix(text, "The user executing the script can't") || strings.HasPrefix(text, "ACL failure in script") {
			return "NOPERM"
		}
	}
	return ""
}

// isWrongType tells whether a server replied that a key holds another type. From
// within a script, some servers put words of their own before it.
func isWrongType(err error) bool {
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "WRONGTYPE")
}
