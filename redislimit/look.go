package redislimit

import (
	"context"
	"errors"
	"fmt"
)

// keepsAll is the only policy under which a server that is full refuses what is new,
// instead of making room for it. All that Stint keeps but documents expires, so that
// the volatile- policies drop it as the allkeys- ones do.
const keepsAll = "noeviction"

// DropsCounts tells whether the server makes room by dropping counts and bans when it
// runs out of memory. false where the policy is not known.
func (s Server) DropsCounts() bool { return s.Eviction != "" && s.Eviction != keepsAll }

// Look asks the server for its eviction policy again, and in a Cluster each of its nodes,
// for it can be changed while the server runs, and another server can take its place. Of
// several policies, it takes one that drops counts, if there is any. Server then returns
// the same as Look.
func (s *Store) Look(ctx context.Context) (Server, error) {
	nodes := []Client{s.client}
	if n, ok := s.client.(noder); ok && s.cluster() {
		nodes = n.nodes()
	}
	var found Server
	var errs []error
	for _, c := range nodes {
		now, err := policyOf(ctx, c)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if found.Eviction == "" || now.DropsCounts() {
			found = now
		}
	}
	if found.Eviction == "" {
		return Server{}, fmt.Errorf("redislimit: eviction policy: %w", errors.Join(errs...))
	}
	for {
		before := s.server.Load()
		now := *before
		now.Eviction = found.Eviction
		if s.server.CompareAndSwap(before, &now) {
			return now, nil
		}
	}
}

// policyOf is a Server of which no more than the policy is known.
func policyOf(ctx context.Context, c Client) (Server, error) {
	fields := map[string]string{}
	if err := info(ctx, c, "memory", fields); err != nil {
		return Server{}, advise(err)
	}
	policy, ok := fields["maxmemory_policy"]
	if !ok {
		return Server{}, errors.New("the server does not say which")
	}
	return Server{Eviction: policy}, nil
}
