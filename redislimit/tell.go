package redislimit

import (
	"slices"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// forget deletes keys and tells of it.
var forget = newScript(algo.ResetScript)

// What is told on the channel begins with one of these: a key follows, or nothing.
const (
	toldKey = "k"
	toldAll = "a"
)

// undoing is where it is told that something of a key was undone.
func (s *Store) undoing() string { return s.namespace + ":{undone}" }

// telling is argv for a script that tells of r's keys, each once. Each message
// crosses the bus of a whole Cluster, so that wherever an instance listens it hears.
func (s *Store) telling(r *stint.Request, argv ...string) []string {
	argv = append(argv, s.undoing())
	told := argv[len(argv):]
	for i := range r.Asks {
		if m := toldKey + r.Asks[i].Key; !slices.Contains(told, m) {
			told = append(told, m)
		}
	}
	return append(argv, told...)
}
