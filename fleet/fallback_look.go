package stint

import "context"

// Look tells how the asks of r stand at this instance, without asking the Store: what
// its share of each limit would answer to each ask by itself, whatever its OnError.
// Remaining is of the share. It takes nothing, and looks at no penalty. out has a
// place for each ask. An error wraps ErrFull.
func (f *Fallback) Look(r *Request, out []Decision) error {
	f.init()
	live := f.Live()
	f.local.sharedBy(live)
	local := Request{Asks: make([]Ask, 0, len(r.Asks))}
	for _, a := range r.Asks {
		a.SetUnits(a.Limit.scale(a.Units(), live))
		local.Asks = append(local.Asks, a)
	}
	if err := NewLimiter(f.local).DryRun(context.Background(), &local, out); err != nil {
		return err
	}
	for i := range out {
		out[i].share(live)
	}
	return nil
}
