package watch

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/server/internal/reports"
)

// Privacy shows keys and addresses as the settings say.
type Privacy struct {
	salt    atomic.Pointer[salt] // nil: keys are shown as they are
	sampled *Sampled
	// Reports share the salt with the fleet, where ID names this instance.
	Reports reports.Reports
	ID      string
}

// ShownKey returns a key, a client's address or a user's name as log lines, pages, messages and traces show
// it: unchanged, or with privacy: hash as a keyed hash, the same at all instances of a fleet. "" stays "".
func (p *Privacy) ShownKey(key string) string {
	of := p.salt.Load()
	if of == nil || key == "" {
		return key
	}
	return of.hash(key)
}

// shownAddress is ShownKey for the address of a connection, without its port if it is hashed.
func (p *Privacy) shownAddress(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil || p.salt.Load() == nil {
		return remote
	}
	return p.ShownKey(host)
}

// hideAddresses replaces the addresses in a line of net/http, if they are to be hashed.
func (p *Privacy) hideAddresses(line string) string {
	if p.salt.Load() == nil {
		return line
	}
	return addressInLine.ReplaceAllStringFunc(line, p.shownAddress)
}

// addressInLine matches addresses with their port, as net writes them.
var addressInLine = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+:\d+\b|\[[0-9a-fA-F:.]+(%[^\]\s]*)?\]:\d+\b`)

// salt is the key of the hashes. Without it, hashes of addresses could be undone by trying
// all addresses.
type salt struct {
	secret [sha256.Size]byte
	hashes sync.Pool // of hash.Hash under the secret, which cost more to make than to use
}

func newSalt() *salt {
	s := new(salt)
	_, _ = rand.Read(s.secret[:]) // it never fails
	return s
}

// hash returns h: and 16 hexadecimal digits.
func (s *salt) hash(key string) string {
	m, _ := s.hashes.Get().(hash.Hash)
	if m == nil {
		m = hmac.New(sha256.New, s.secret[:])
	}
	_, _ = io.WriteString(m, key) // it never fails
	var sum [sha256.Size]byte
	shown := [18]byte{'h', ':'}
	hex.Encode(shown[2:], m.Sum(sum[:0])[:8])
	m.Reset()
	s.hashes.Put(m)
	return string(shown[:])
}

// The salt of a fleet is the part saltPart of the report saltReport. Each instance starts with
// a salt of its own, and takes the fleet's as soon as it can read it. If there is none, the instance that
// claims saltReport writes its own. The store keeps it for saltKept after the last instance has gone.
const (
	saltReport  = "privacy"
	saltPart    = "salt"
	saltKept    = 30 * 24 * time.Hour
	saltTimeout = time.Second
	// How often the salt is read, before and after the fleet's is known. A flushed store has none; the next
	// instance then writes the common salt again.
	saltUnknownEvery = time.Second
	saltKnownEvery   = time.Minute
)

// ShareSalt adopts the fleet's salt, or makes its own the fleet's, and reports whether all instances have it
// now.
func (p *Privacy) ShareSalt(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, saltTimeout)
	defer cancel()
	shared, err := p.tryShareSalt(ctx)
	if err != nil && ctx.Err() == nil {
		p.sampled.Failure("the salt of privacy: hash cannot be shared; this instance hashes keys by its own", err)
	}
	return shared
}

func (p *Privacy) tryShareSalt(ctx context.Context) (shared bool, err error) {
	parts, err := p.Reports.Reported(ctx, saltReport)
	if err != nil {
		return false, err
	}
	mine := p.salt.Load().secret
	if there := parts[saltPart]; len(there) == len(mine) {
		if mine != [sha256.Size]byte(there) {
			mine = [sha256.Size]byte(there)
			p.salt.Store(&salt{secret: mine})
		}
	} else if claimed, err := p.Reports.Claim(ctx, saltReport, p.ID, 10*saltTimeout); err != nil || !claimed {
		return false, err
	}
	err = p.Reports.Report(ctx, saltReport, saltPart, mine[:], saltKept) // again, so that it is kept
	return err == nil, err
}

// FollowSalt calls ShareSalt from time to time, until ctx ends.
func (p *Privacy) FollowSalt(ctx context.Context) {
	next := time.NewTimer(saltUnknownEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		wait := saltUnknownEvery
		if p.ShareSalt(ctx) {
			wait = saltKnownEvery
		}
		next.Reset(wait)
	}
}
