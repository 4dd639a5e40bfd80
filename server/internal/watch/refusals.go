package watch

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

// Refusals logs refusals, and decisions without the store. Clients can cause any number of them, so each
// rule logs only the first few in a second, and counts the others in one line. Refusals by the blocklist, by
// bans of networks and by the limit of a Limiter share one count.
//
// It may be used from many goroutines at once.
type Refusals struct {
	to    *slog.Logger
	shown func(key string) string
	most  uint32    // lines a second for each rule; 0: none
	all   lineCount // of all rules

	noRule ruleLines
}

// refusalRules times Log.Refusals are the lines a second of all rules together.
const refusalRules = 20

// degradedEvery is how often a rule logs that it decides without the store.
const degradedEvery = 10 * time.Second

// ruleLines has the lines of one rule.
type ruleLines struct {
	rule     string
	refusals lineCount // of this second
	degraded lineCount // of these degradedEvery
	unlogged [kind.Kinds]atomic.Int64
	armed    atomic.Bool // a timer will log unlogged
}

// lineCount counts lines in the current part of time: the part's number is in the upper half, the number of
// lines in the lower half.
type lineCount struct{ n atomic.Uint64 }

// take reports whether fewer than most lines were taken in the given part of time.
func (c *lineCount) take(part, most uint32) bool {
	for most > 0 {
		old := c.n.Load()
		next := old + 1
		if uint32(old>>32) != part {
			next = uint64(part)<<32 | 1
		} else if uint32(old) >= most {
			return false
		}
		if c.n.CompareAndSwap(old, next) {
			return true
		}
	}
	return false
}

// take reports whether a line of r may be logged at now. If not, it counts a refusal of kind k.
func (l *Refusals) take(r *ruleLines, now time.Duration, k kind.Kind) bool {
	second := uint32(now / time.Second)
	if r.refusals.take(second, l.most) && l.all.take(second, refusalRules*l.most) {
		return true
	}
	r.unlogged[k].Add(1)
	if !r.armed.Load() && r.armed.CompareAndSwap(false, true) {
		time.AfterFunc(time.Second, func() { l.flush(r) })
	}
	return false
}

// levelOf is the level of a line about a refusal of kind k.
func levelOf(k kind.Kind) slog.Level {
	if k == kind.Warned || k == kind.Banned {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// flush logs how many refusals of r had no line, if there were any.
func (l *Refusals) flush(r *ruleLines) {
	r.armed.Store(false) // before the counts are read, so that none is missed
	attrs := make([]slog.Attr, 0, 1+len(r.unlogged))
	if r.rule != "" {
		attrs = append(attrs, slog.String("rule", r.rule))
	}
	level, any := slog.LevelInfo, false
	for i := range r.unlogged {
		n := r.unlogged[i].Swap(0)
		if n == 0 {
			continue
		}
		any = true
		attrs = append(attrs, slog.Int64(kind.Kind(i).String(), n))
		level = max(level, levelOf(kind.Kind(i)))
	}
	if any {
		l.to.LogAttrs(context.Background(), level, "more refusals", attrs...)
	}
}

// FlushAll calls flush for all rules of a set.
func (l *Refusals) FlushAll(set *Served) {
	l.flush(&l.noRule)
	set.counters.all(func(_ *rules.Rule, c *ruleCounter) { l.flush(&c.lines) })
}

// decided is for watcher: it logs a refusal, and a decision without the store.
func (l *Refusals) decided(ctx context.Context, t event) {
	if l.most == 0 || t.Err != nil {
		return
	}
	degraded := t.By == stint.ByLocal || t.By == stint.ByPolicy
	if t.Allowed && !degraded {
		return
	}
	r := &l.noRule
	if t.Rule != nil {
		r = &t.set.counters.of(t.Rule).lines
	}
	if degraded && r.degraded.take(uint32(t.Start/degradedEvery), 1) {
		l.to.LogAttrs(ctx, slog.LevelWarn, "decided without the store", l.degradedAttrs(t.Request)...)
	}
	if t.Allowed {
		return
	}
	if level := levelOf(t.Kind); l.to.Enabled(ctx, level) && l.take(r, t.Start, t.Kind) {
		l.to.LogAttrs(ctx, level, "refused", l.refusalAttrs(t.Request)...)
	}
}

func (l *Refusals) degradedAttrs(t *decide.Request) []slog.Attr {
	attrs := []slog.Attr{slog.String("by", t.By.String()), slog.String("outcome", t.Kind.String())}
	if t.Rule != nil {
		attrs = append(attrs, slog.String("rule", t.Rule.Name))
	}
	if key := l.Key(t.Key); key != "" {
		attrs = append(attrs, slog.String("key", key))
	}
	return attrs
}

// refusalAttrs are the fields of a refusal that are known.
func (l *Refusals) refusalAttrs(t *decide.Request) []slog.Attr {
	attrs := append(make([]slog.Attr, 0, 20), slog.String("outcome", t.Kind.String()))
	add := func(name, text string) {
		if text != "" {
			attrs = append(attrs, slog.String(name, text))
		}
	}
	if t.Rule != nil {
		add("rule", t.Rule.Name)
	}
	if t.By != stint.ByInstance { // which counts all requests as one
		add("key", l.Key(t.Key))
	}
	if t.List != rules.Unlisted {
		add("entry", Loggable(t.Entry.String()))
	}
	if t.Limit != nil {
		cost, limit := t.Wanted()
		attrs = append(attrs, slog.Int64("cost", cost), slog.String("limit", limit), slog.Int64("remaining", t.Remaining))
		if t.Held > 0 {
			attrs = append(attrs, slog.Int64("held", t.Held))
		}
		if t.Busy {
			attrs = append(attrs, slog.Bool("busy", true))
		}
	}
	if t.Kind != kind.Blocked {
		add("retry_after", loggedWait(t.RetryAfter))
	}
	if t.Violations > 0 {
		attrs = append(attrs, slog.Int64("violations", t.Violations))
	}
	if t.Kind == kind.Banned {
		add("ban_left", loggedWait(t.BanLeft))
	}
	add("by", decide.SayBy(&t.Decision))
	add("client", l.Client(t.In.Addr()))
	add("operation", Loggable(t.In.What()))
	if r := t.In.Request; r != nil {
		add("method", Loggable(r.Method))
		add("host", Loggable(r.Host))
		add("path", Loggable(r.Path))
		add("request_id", RequestID(r.Header["X-Request-Id"]))
	}
	add("decision", t.ID)
	return attrs
}

// violated is for watcher.
func (l *Refusals) violated(ctx context.Context, v violation) {
	c := v.set.counters.of(v.Rule)
	if l.most == 0 || c == nil {
		return
	}
	k := decide.KindOfDecision(&v.Decision)
	level := levelOf(k)
	if !l.to.Enabled(ctx, level) || !l.take(&c.lines, v.Start, k) {
		return
	}
	attrs := []slog.Attr{
		slog.String("outcome", k.String()), slog.String("rule", v.Rule.Name), slog.String("key", l.Key(v.Ask.Key)),
		slog.Int("status", v.Status), slog.Int64("violations", v.Decision.Violations),
	}
	if k == kind.Banned {
		attrs = append(attrs, slog.String("ban_left", loggedWait(v.Decision.BanLeft)))
	}
	if v.ID != "" {
		attrs = append(attrs, slog.String("decision", v.ID))
	}
	l.to.LogAttrs(ctx, level, "violation by a response", attrs...)
}

// Key is a key for a line. The parts of a list are separated by commas.
func (l *Refusals) Key(key string) string {
	if shown := l.shown(key); shown != key {
		return shown // hashed
	}
	parts, _ := rules.Key(key).Parts()
	return Loggable(strings.Join(parts, ", "))
}

// Client is the address of a client for a line; empty: unknown.
func (l *Refusals) Client(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return l.shown(addr.String())
}
