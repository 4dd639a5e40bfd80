package stint

import "context"

// never stands beside asks that are only looked at: it never allows, so that nothing
// is taken.
var never = Ask{Key: "stint:look", Limit: MustLimit("1 per 1s"), Cost: 2}

// Look tells how the asks of r stand at this instance, without asking the Store: what
// its share of each limit would answer to each ask by itself, whatever its OnError.
// Remaining is of the share. It takes nothing, and looks at no penalty. out has a
// place for each ask. An error wraps ErrFull.
func (f *Fallback) Look(r *Request, out []Decision) error {
	f.init()
	live := f.Live()
	f.local.sharedBy(live)
	local := Request{Asks: make([]Ask, 0, len(r.Asks)+1)}
	for _, a := range r.Asks {
		a.Penalty = nil
		a.SetUnits(a.Limit.scale(a.Units(), live))
		local.Asks = append(local.Asks, a)
	}
	local.Asks = append(local.Asks, never)
	answers := make([]Decision, len(local.Asks))
	if _, err := f.local.Take(context.Background(), &local, answers); err != nil {
		return err
	}
	for i := range r.Asks {
		out[i] = answers[i]
		out[i].share(live)
	}
	return nil
}
