package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/stintdev/stint"
)

// ByMemory stands for a bound that is made of the memory there is; see
// Settings.FitMemory.
const ByMemory = -1

// Holdings is what an instance holds at most, by its bounds.
type Holdings struct {
	// Memory is how many bytes the bounds were made for, and From says why: "setting",
	// "cgroup", "machine" or "unknown".
	Memory int64
	From   string
	Parts  []Holding
	There  int64 // how many bytes the cgroup or the machine has, where the setting says more; else 0
}

// Holding is a number of things of one kind.
type Holding struct {
	Name string
	Most int64
	Each int64 // bytes of one, at most
}

// Sum is all of it, in bytes.
func (h *Holdings) Sum() (n int64) {
	for _, p := range h.Parts {
		n += p.Most * p.Each
	}
	return n
}

// What one of each takes, in bytes. Tests compare them with the heap (see docs/bounds.md),
// but for connections and requests, which are estimates.
const (
	programBytes    = 64 << 20 // what is there before anybody asks, and the collector's work
	keyBytes        = 250
	connectionBytes = 32 << 10
	requestBytes    = 48 << 10
	denialBytes     = 1200
	leaseBytes      = 400
	adminBytes      = 2*maxCall + 1<<20
	banBytes        = 128
)

// unknownMemory is what is reckoned with where nobody says how much there is.
const unknownMemory = 4 << 30

// FitMemory makes the bounds that are ByMemory of s.Memory, or where that is 0 of the
// memory that this process's cgroup or else the machine has, so that all that the
// instance holds fits. It returns what that is. A second call changes nothing.
func (s *Settings) FitMemory() Holdings {
	h := Holdings{Memory: s.Memory, From: "setting"}
	there, from := memory(rootFS)
	switch {
	case h.Memory == 0:
		h.Memory, h.From = there, from
	case h.Memory > there:
		h.There = there
	}
	if h.Memory == 0 {
		h.Memory, h.From = unknownMemory, "unknown"
	}
	fit := func(to *int64, share, each, least, most int64) {
		if *to == ByMemory {
			*to = min(max(h.Memory/share/each, least), most)
		}
	}
	const listeners = 4
	const flights = 2 // the gateway's and the check API's
	fit(&s.MaxKeys, 5, keyBytes, 10_000, stint.DefaultMaxKeys)
	fit(&s.MaxConnections, 6, connectionBytes*listeners, 256, 50_000)
	fit(&s.Instance.InFlight, 8, requestBytes*flights, 500, defaultInFlight)
	fit(&s.Instance.Bytes, 8, 1, 8<<20, 1<<40)
	fit(&s.RememberedDenials, 12, denialBytes, 1000, stint.DefaultMaxDenials)
	h.Parts = []Holding{
		{"program", 1, programBytes},
		{"keys", cmp.Or(s.MaxKeys, stint.DefaultMaxKeys), keyBytes},
		{"connections", listeners * s.MaxConnections, connectionBytes},
		{"requests under way", flights * s.Instance.InFlight, requestBytes},
		{"bytes of bodies and headers under way", s.Instance.Bytes, 1},
		{"bodies of the admin API", adminBytes, 1},
		{"bans, for the metric", mostBans, banBytes},
	}
	if s.Store != "memory" {
		h.Parts = append(h.Parts,
			Holding{"remembered denials", s.RememberedDenials, denialBytes},
			Holding{"leases", stint.DefaultMaxLeases, leaseBytes},
			Holding{"spent while the store is away", s.maxOwed(h.Memory), 1})
	}
	return h
}

// maxOwed bounds what is kept of what was spent while the store is away.
func (s *Settings) maxOwed(memory int64) int64 { return min(stint.DefaultMaxOwed, memory/32) }

// Log tells of h in one line, and warns where it is more than the memory.
func (h *Holdings) Log(l *slog.Logger) {
	args := []any{"memory", ByteSize(h.Memory).String(), "from", h.From, "sum", ByteSize(h.Sum()).String()}
	for _, p := range h.Parts[1:] {
		name := strings.ReplaceAll(strings.ReplaceAll(p.Name, ",", ""), " ", "_")
		if p.Each == 1 {
			args = append(args, name, ByteSize(p.Most).String())
		} else {
			args = append(args, name, p.Most)
		}
	}
	l.Info("what this instance holds at most", args...)
	if h.There > 0 {
		l.Warn("server.memory is more than there is, so that the system may end this process before its bounds do anything: lower it, or leave it out",
			"memory", ByteSize(h.Memory).String(), "there_is", ByteSize(h.There).String())
	}
	if h.Sum() > h.Memory*95/100 {
		l.Warn("what this instance may hold is more than its memory: lower max_keys, max_connections or instance.in_flight_bytes, or give it more",
			"memory", ByteSize(h.Memory).String(), "sum", ByteSize(h.Sum()).String())
	}
}

// ByteSize is a number of bytes. Its text is as in a file: 512MiB.
type ByteSize int64

func (b ByteSize) String() string {
	switch {
	case b >= 10<<30 || b > 0 && b%(1<<30) == 0:
		return fmt.Sprintf("%dGiB", b>>30)
	case b >= 10<<20 || b > 0 && b%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", b>>20)
	case b >= 10<<10 || b > 0 && b%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", b>>10)
	}
	return strconv.FormatInt(int64(b), 10)
}

// parseByteSize reads a number of bytes from 1 MiB on.
func parseByteSize(text string) (int64, error) {
	for unit, shift := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		digits, ok := strings.CutSuffix(text, unit)
		n, err := strconv.ParseInt(digits, 10, 32)
		if ok && err == nil && n<<shift >= 1<<20 && n < 1<<20 {
			return n << shift, nil
		}
	}
	return 0, fmt.Errorf("%.40q: want a size such as 512MiB or 4GiB, from 1MiB on", text)
}
