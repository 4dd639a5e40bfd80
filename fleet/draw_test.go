package fleet_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
)

// drawn draws the steps of a story.
type drawn struct {
	*rand.Rand
	*story
	holds []string
	made  int
	last  string // request
}

// draw takes "300 steps of seed 7" that are drawn at random.
func (s *story) draw(rest string) {
	var n int
	var seed uint64
	_, err := fmt.Sscanf(rest, "%d steps of seed %d", &n, &seed)
	s.must(err)
	g := &drawn{Rand: rand.New(rand.NewPCG(seed, 3)), story: s}
	for range n {
		s.step(g.next())
		if g.IntN(3) == 0 {
			time.Sleep((&requests{Rand: g.Rand}).pause())
		}
	}
}

func pick[T any](g *drawn, all ...T) T { return all[g.IntN(len(all))] }

func (g *drawn) next() string {
	switch k := g.IntN(24); {
	case k == 0 && g.store.fails != "here":
		return "store here"
	case k == 0:
		return "store " + pick(g, "away", "away", "cut", "lost", "hung", "full", "bad", "unfit", "unable", "slow", "slow", "cut a", "bad b", "away a")
	case k == 1:
		return "wait " + pick(g, "30ms", "150ms", "1s", "2500ms", "7s")
	case k == 2 || k > 16 && g.isLeased():
		return fmt.Sprintf("burst %d every %s %s", 10+g.IntN(60), pick(g, "100us", "1ms", "7ms"), g.ask())
	case k == 3:
		return "other " + g.request()
	case k == 4:
		return "refund " + g.refunded() + pick(g, "", "", "@local", "@lease")
	case k == 5 && g.IntN(3) == 0:
		return pick(g, "reset ", "forget ", "theirs ") + g.refunded()
	case k <= 7:
		return "batch " + g.request() + pick(g, "", "", " within 4ms") + " ; " + g.request() + pick(g, "", "", " within 7ms") + pick(g, "", " ; "+g.request())
	case k == 8 && len(g.penalties) > 0:
		return "violate " + g.key() + " +" + g.penalty() + pick(g, "", "*3")
	case k <= 11 && g.canHold():
		return g.hold()
	case k == 15 && g.IntN(3) == 0:
		return "limit " + g.relimited()
	case k <= 13 && g.fallback != nil:
		return "look " + g.key() + " " + pick(g, g.order...).Spec().Name
	case k == 14 && g.IntN(3) == 0:
		return fmt.Sprintf("list %d %s", 60+g.IntN(80), g.ask())
	}
	if g.last == "" || g.IntN(3) > 0 {
		g.last = g.request() + pick(g, "", "", "", " within 5ms", " within 40ms")
	}
	return "take " + g.last
}

func (g *drawn) key() string {
	if g.isLeased() {
		return "a" // two hot keys may share a counter, or not
	}
	return pick(g, "a", "b")
}

func (g *drawn) penalty() string {
	if len(g.penalties) == 0 {
		return ""
	}
	return pick(g, slices.Sorted(maps.Keys(g.penalties))...)
}

// limit draws a limit that is as asked for, or else any.
func (g *drawn) limit(is func(*stint.Limit) bool) *stint.Limit {
	if some := slices.DeleteFunc(slices.Clone(g.order), func(l *stint.Limit) bool { return !is(l) }); len(some) > 0 {
		return pick(g, some...)
	}
	return pick(g, g.order...)
}

func isUnheld(l *stint.Limit) bool  { return !l.IsHeld() }
func isNoQueue(l *stint.Limit) bool { return !l.IsHeld() && l.Spec().Algorithm != stint.LeakyBucket }
func isCharged(l *stint.Limit) bool { return l.Spec().Algorithm != stint.InFlight }

func (g *drawn) isLeased() bool {
	return slices.ContainsFunc(g.order, func(l *stint.Limit) bool { return l.Spec().Lease > 0 })
}

func (g *drawn) canHold() bool {
	return slices.ContainsFunc(g.order, (*stint.Limit).IsHeld)
}

// ask draws one that holds nothing.
func (g *drawn) ask() string {
	l := g.limit(isUnheld)
	s := g.key() + " " + l.Spec().Name
	switch g.IntN(12) {
	case 0:
		s += "*0"
	case 1, 2:
		s += fmt.Sprintf("*%d", 1+g.Int64N(1+l.Capacity()/3))
	case 3:
		s += fmt.Sprintf("*%d", l.Capacity()+g.Int64N(2))
	}
	if l.Spec().Algorithm == stint.LeakyBucket {
		s += pick(g, "", "~-1ns", "~300ms", "~1s")
	}
	if p := g.penalty(); p != "" && g.IntN(4) == 0 {
		s += "+" + p
	}
	return s + pick(g, "", "", "", "", "", "", "", "", "!allow", "!deny")
}

func (g *drawn) request() string {
	all := []string{g.ask()}
	for range g.IntN(3) * g.IntN(2) {
		next := g.ask()
		name := strings.FieldsFunc(next, func(r rune) bool { return strings.ContainsRune("*~+!", r) })[0]
		twice := false
		for _, a := range all {
			twice = twice || strings.HasPrefix(a, name)
		}
		if !twice {
			all = append(all, next)
		}
	}
	return strings.Join(all, ", ")
}

// relimited draws a limit that is read again, as it was or with another amount.
func (g *drawn) relimited() string {
	l := pick(g, g.order...)
	text := l.Terms()
	if g.IntN(2) == 0 {
		text = strings.Replace(text, fmt.Sprint(l.Spec().Amount), fmt.Sprint(l.Spec().Amount+1), 1)
	}
	return l.Spec().Name + " " + text
}

// refunded draws a key and a limit that is no queue.
func (g *drawn) refunded() string {
	return g.key() + " " + g.limit(isNoQueue).Spec().Name + pick(g, "", "*2")
}

// hold draws a step of a hold, or one that makes it.
func (g *drawn) hold() string {
	if len(g.holds) == 0 || g.IntN(3) == 0 {
		g.made++
		name := fmt.Sprint("h", g.made)
		var asks []string
		key := g.key()
		for _, i := range g.Perm(len(g.order))[:min(1+g.IntN(2), len(g.order))] {
			a := key + " " + g.order[i].Spec().Name
			if g.order[i].Spec().Algorithm != stint.InFlight {
				a += fmt.Sprintf("*%d", 1+g.IntN(8))
			}
			asks = append(asks, a)
		}
		g.holds = append(g.holds, name)
		return "take " + strings.Join(asks, ", ") + " holding " + name + pick(g, "", "", " for 1s")
	}
	if g.IntN(6) == 0 {
		return fmt.Sprintf("charge %s %s %d", g.key(), g.limit(isCharged).Spec().Name, g.IntN(12))
	}
	i := g.IntN(len(g.holds))
	name := g.holds[i]
	switch g.IntN(5) {
	case 0:
		return "renew " + name
	case 1:
		return "release " + name
	}
	if g.IntN(4) > 0 { // else it is settled again
		g.holds = append(g.holds[:i:i], g.holds[i+1:]...)
	}
	return fmt.Sprintf("settle %s %d", name, g.IntN(14))
}
