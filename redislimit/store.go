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
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// Options of a Store. The zero Options are good.
type Options struct {
	// Namespace is what all keys start with: stores with different namespaces
	// share nothing. 1 to 64 of A–Z a–z 0–9 _ . : -. Empty: "stint".
	Namespace string
}

// Store is a stint.Store in Redis. It may be used from many goroutines at once.
// It implements stint.EachTaker, stint.GiveBacker, stint.Resetter, stint.Violator
// and stint.Recorder.
//
// A request is one round trip. In a Cluster, where its asks have several
// subjects, it is one for each slot, at the same time, and a second one where
// some refuse, to give back what others took meanwhile: no limit is ever
// exceeded, but a refused request may hold units for that long, and the
// ResetAfter of an ask that would have allowed it is as if it had. If giving back
// fails, they stay taken as if the request had been allowed. Where such asks bear
// penalties, a round trip before looks for bans.
//
// Where an error says that a call was not answered in time, or that the connection
// was lost, it may have been charged. It is never sent again.
type Store struct {
	client    Client
	namespace string
	server    atomic.Pointer[Server]
	id        string // of this Store in the census
	take      script
	giveBack  script
	punish    script
	look      script
	census    script
	close     func()
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
		return nil, err
	}
	return &Store{client: c, namespace: o.Namespace, id: rand.Text(),
		take: newScript(algo.TakeScript), giveBack: newScript(algo.GiveBackScript),
		punish: newScript(algo.ViolateScript), look: newScript(algo.RecordScript),
		census: newScript(censusScript)}, nil
}

// Server is what the Store learned of its server when it connected; zero where it
// has not yet, see OpenLater.
func (s *Store) Server() Server { return *s.server.Load() }

// cluster tells whether the server is one of a Cluster.
func (s *Store) cluster() bool { return s.server.Load().Cluster }

// Close ends the connections of a Store that Open made. What New was given stays
// open.
func (s *Store) Close() {
	if s.close != nil {
		s.close()
	}
}

// Take implements stint.Store.
func (s *Store) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if s.cluster() && !oneSlot(r) {
		return s.takeAcross(ctx, r, out)
	}
	var b batch
	s.add(&b, r)
	reply, err := s.run(ctx, &b, r)
	if err != nil {
		return stint.Decision{}, err
	}
	d, _, err := s.read(reply, r, out)
	return d, err
}

// batch is one call of the script in the making.
type batch struct {
	keys []string
	blob []byte
}

// add appends a request. Asks of one request that share key and penalty share a
// record.
func (s *Store) add(b *batch, r *stint.Request) {
	places, penalised := penalties(r)
	s.addPenalties(b, penalised, len(r.Asks))
	for i := range r.Asks {
		a := &r.Asks[i]
		place := 0
		if a.Penalty != nil {
			place = places[i]
		}
		b.keys = append(b.keys, s.key(a.Key, a.Limit.ID()))
		b.blob = algo.AppendAsk(b.blob, a.Limit.Plan(), place, a.Cost)
	}
}

// addPenalties appends the beginning of a request of so many asks.
func (s *Store) addPenalties(b *batch, penalised []*stint.Ask, asks int) {
	b.blob = algo.AppendRequest(b.blob, len(penalised), asks)
	for _, a := range penalised {
		b.keys = append(b.keys, s.key(a.Key, a.Penalty.ID()))
		b.blob = algo.AppendPenalty(b.blob, a.Penalty.Plan())
	}
}

// penalties finds the records that r faces: for each, an ask that bears it, and
// for each ask the place, from 1, of its own.
func penalties(r *stint.Request) (places []int, distinct []*stint.Ask) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil {
			continue
		}
		if places == nil {
			places = make([]int, len(r.Asks))
		}
		for j, d := range distinct {
			if d.Key == a.Key && d.Penalty.ID() == a.Penalty.ID() {
				places[i] = j + 1
			}
		}
		if places[i] == 0 {
			distinct = append(distinct, a)
			places[i] = len(distinct)
		}
	}
	return places, distinct
}

// run decides a batch, whose requests have the instant of r.
func (s *Store) run(ctx context.Context, b *batch, r *stint.Request) (string, error) {
	reply, err := s.take.call(ctx, s.client, b, r)
	if err != nil {
		return "", fmt.Errorf("redislimit: %w", advise(err))
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("redislimit: the script replied %T, not a string", reply)
	}
	return text, nil
}

// read turns the script's answer to r into decisions and returns what follows it.
func (s *Store) read(reply string, r *stint.Request, out []stint.Decision) (stint.Decision, string, error) {
	head, rest, err := algo.ReadHead(reply)
	if err != nil {
		return stint.Decision{}, "", fmt.Errorf("redislimit: %w", err)
	}
	_, penalised := penalties(r)
	if !head.Names(len(penalised), len(r.Asks)) {
		return stint.Decision{}, "", fmt.Errorf("redislimit: answer %v: not one of this script's", head)
	}
	if !head.Verdicts() {
		if head.Result == algo.ResultBroken {
			return stint.Decision{}, rest, s.broken(r, penalised, head)
		}
		return running(penalised[head.Who-1], head.Left), rest, nil
	}
	if out == nil {
		out = make([]stint.Decision, len(r.Asks))
	}
	for i := range r.Asks {
		var v algo.Verdict
		if v, rest, err = algo.ReadVerdict(rest); err != nil {
			return stint.Decision{}, "", fmt.Errorf("redislimit: %w", err)
		}
		if v.Remaining > r.Asks[i].Limit.Capacity() {
			return stint.Decision{}, "", fmt.Errorf("redislimit: answer of %d units left of %d: not one of this script's", v.Remaining, r.Asks[i].Limit.Capacity())
		}
		out[i] = stint.DecisionOf(&r.Asks[i], v)
	}
	d := stint.Strictest(out)
	if d.Allowed != (head.Result == algo.ResultAllowed) {
		return stint.Decision{}, "", fmt.Errorf("redislimit: answer %v with verdicts that say otherwise: not one of this script's", head)
	}
	switch head.Result {
	case algo.ResultWarned:
		d.Punish(nil, algo.Warned, 0)
	case algo.ResultBanned:
		d.Punish(penalised[head.Who-1].Penalty, algo.Banned, algo.Duration(head.Left))
	}
	return d, rest, nil
}

// running is the answer of a ban that runs.
func running(by *stint.Ask, left int64) stint.Decision {
	d := algo.Duration(left)
	return stint.Decision{Outcome: stint.Banned, Key: by.Key, RetryAfter: d, BanLeft: d, Penalty: by.Penalty}
}

// readBan reads the answer to a request of records alone: a ban that runs, or the
// zero Decision.
func (s *Store) readBan(reply string, penalised []*stint.Ask) (stint.Decision, error) {
	head, _, err := algo.ReadHead(reply)
	switch {
	case err != nil:
		return stint.Decision{}, fmt.Errorf("redislimit: %w", err)
	case !head.Names(len(penalised), 0):
		return stint.Decision{}, fmt.Errorf("redislimit: answer %v: not one of this script's", head)
	case head.Result == algo.ResultBroken:
		return stint.Decision{}, s.broken(nil, penalised, head)
	case head.Result == algo.ResultRunning:
		return running(penalised[head.Who-1], head.Left), nil
	}
	return stint.Decision{}, nil
}

// broken names the key that holds what it should not.
func (s *Store) broken(r *stint.Request, penalised []*stint.Ask, head algo.Head) error {
	var key string
	if head.Who <= len(penalised) {
		a := penalised[head.Who-1]
		key = s.key(a.Key, a.Penalty.ID())
	} else {
		a := &r.Asks[head.Who-1-len(penalised)]
		key = s.key(a.Key, a.Limit.ID())
	}
	return brokenKey(key, head.Left == 1)
}

func brokenKey(key string, wrongType bool) error {
	what := "a value that is not Stint's"
	if wrongType {
		what = "another type of value"
	}
	return fmt.Errorf("redislimit: key %q holds %s: %w: delete the key, or give Stint a namespace or database of its own", key, what, stint.ErrBroken)
}

// script is a script and the name that the server knows it by.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

// call runs the script on a batch, at the instant of r.
func (sc script) call(ctx context.Context, c Client, b *batch, r *stint.Request) (any, error) {
	at := ""
	if !r.At.IsZero() {
		at = strconv.FormatInt(r.At.UnixMicro(), 10)
	}
	return sc.eval(ctx, c, b.keys, at, string(b.blob))
}

// eval runs the script. NOSCRIPT and TRYAGAIN mean that nothing ran, so they are the
// errors after which the call is sent again: with the text, or a little later.
func (sc script) eval(ctx context.Context, c Client, keys []string, argv ...string) (any, error) {
	args := make([]string, 0, 3+len(keys)+len(argv))
	args = append(args, "EVALSHA", sc.sha, strconv.Itoa(len(keys)))
	args = append(args, keys...)
	args = append(args, argv...)
	for rest := firstRest; ; {
		reply, err := c.Do(ctx, args...)
		if err == nil {
			return reply, nil
		}
		switch word := code(err); {
		case word == "NOSCRIPT" && args[0] == "EVALSHA":
			args[0], args[1] = "EVAL", sc.text
		case word == "TRYAGAIN" && rest <= longestRest:
			select {
			case <-ctx.Done():
				return nil, err
			case <-time.After(rest):
			}
			rest *= 2
		default:
			return nil, err
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
