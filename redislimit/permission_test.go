package redislimit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// A user who may not do what Stint must do is told what that is, at once or at the
// first request.
func TestNoPermission(t *testing.T) {
	server := redistest.Start(t)
	server.Do(t, "ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-info")
	server.Do(t, "ACL", "SETUSER", "foreign", "on", ">pw", "~other:*", "+@all")
	server.Do(t, "ACL", "SETUSER", "unread", "on", ">pw", "~*", "+@all", "-get")
	if _, err := redislimit.Connect(t.Context(), "redis://blind:pw@"+server.Addr, redislimit.Options{}); err == nil || !strings.Contains(err.Error(), "lacks a permission") {
		t.Errorf("no INFO: %v", err)
	}
	l := stint.NewLimiter(open(t, "redis://foreign:pw@"+server.Addr))
	if _, err := l.Allow(t.Context(), "a", stint.MustLimit("1 per 1m")); err == nil || !strings.Contains(err.Error(), "lacks a permission") {
		t.Errorf("no key: %v", err)
	}
	l = stint.NewLimiter(open(t, "redis://unread:pw@"+server.Addr))
	if _, err := l.Allow(t.Context(), "a", stint.MustLimit("1 per 1m")); err == nil || !strings.Contains(err.Error(), "lacks a permission") {
		t.Errorf("no GET: %v", err)
	}
}

// The permissions that the advice names are enough.
func TestLeastPermission(t *testing.T) {
	server := redistest.Start(t)
	args := []string{"ACL", "SETUSER", "stint", "on", ">pw", "~stint:*"}
	for _, c := range []string{"info", "evalsha", "eval", "time", "get", "set", "del", "llen", "lindex", "lset", "rpush", "rpop", "ltrim", "pexpire", "pexpireat"} {
		args = append(args, "+"+c)
	}
	server.Do(t, args...)
	s := open(t, "redis://stint:pw@"+server.Addr)
	l := stint.NewLimiter(s)
	defer leastForMore(t, server, s)
	for _, text := range []string{"2 per 1s", "2 per 1s sliding_log", "2 per 1s sliding_window"} {
		limit := stint.MustLimit(text)
		for range 3 {
			if _, err := l.Allow(t.Context(), "a", limit); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		if err := errors.Join(stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: "a", Limit: limit, Cost: 1}}}), l.Reset(t.Context(), "a", limit)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// leastForMore gives the user of TestLeastPermission what the advice names for
// each thing more, and tries that thing before and after.
func leastForMore(t *testing.T, server *redistest.Server, s *redislimit.Store) {
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	violate(t, s, time.Time{}, stint.Banned, stint.Ask{Key: "a", Penalty: p}) // needs nothing more
	if r, err := s.Record(t.Context(), "a", p); err != nil || r.Bans != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	allow := func(rules ...string) {
		server.Do(t, append([]string{"ACL", "SETUSER", "stint"}, rules...)...)
	}
	lacks := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "lacks a permission") {
			t.Errorf("%s without permission: %v", what, err)
		}
	}
	inspect := func() error {
		_, err := s.Inspect(t.Context(), "a", []*stint.Limit{stint.MustLimit("1 per 1m")})
		return err
	}
	lacks("inspect", inspect())
	allow("+pttl")
	if err := inspect(); err != nil {
		t.Error(err)
	}
	held := stint.MustLimit("2 in_flight hold 1m")
	hold := func() error {
		r := stint.Request{Asks: []stint.Ask{{Key: "a", Limit: held}}, Hold: stint.NewHoldID()}
		_, err := s.Take(t.Context(), &r, nil)
		calls := []stint.HoldCall{{Action: stint.HoldRelease, Key: "a", Limit: held, Hold: r.Hold, Units: 1}, {Key: "a", Limit: held, Hold: r.Hold, Units: 1}}
		s.Holds(t.Context(), time.Time{}, calls)
		_, err2 := s.Held(t.Context(), "a", []*stint.Limit{held})
		return errors.Join(err, calls[0].Err, calls[1].Err, err2)
	}
	lacks("hold", hold())
	allow("+hget", "+hmget", "+hset", "+hdel", "+hgetall")
	if err := hold(); err != nil {
		t.Error(err)
	}
	allow("-hget", "-hmget", "-hset", "-hdel")
	yes := func(stint.Record) bool { return true }
	lacks("banned", s.Banned(t.Context(), yes))
	lacks("clear", s.Clear(t.Context()))
	allow("+scan")
	lacks("banned", s.Banned(t.Context(), yes))
	allow("+mget")
	if n := len(bans(t, s)); n != 1 {
		t.Errorf("%d bans", n)
	}
	d := s.Documents()
	_, err := d.Write(t.Context(), "a", 1, nil)
	lacks("write", err)
	_, _, err = d.Newest(t.Context(), "a")
	lacks("newest", err)
	allow("+hget", "+hmget", "+hset", "+hdel")
	write(t, d, "a", 1, "without a word to anyone")
	if text, err := d.Read(t.Context(), "a", 1); err != nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
	heard := watch(t, d)
	allow("+publish", "+subscribe", "&stint:*")
	hears(t, heard, "the connection, once it may be made")
	drain(heard)
	write(t, d, "a", 2, "")
	hears(t, heard, "a write")
	_, err = d.Announce(t.Context(), "a")
	lacks("announce", err)
	allow("+zadd", "+zremrangebyscore", "+zrevrange")
	if all, err := d.Announce(t.Context(), "a"); err != nil || len(all) != 1 {
		t.Errorf("%q, %v", all, err)
	}
	lacks("report", d.Report(t.Context(), "a", "part", nil, time.Minute))
	allow("+zrange", "+zrem")
	if ok, err := d.Claim(t.Context(), "a", "i", time.Minute); !ok || err != nil { // needs nothing more
		t.Error(ok, err)
	}
	err = d.Report(t.Context(), "a", "part", nil, time.Minute)
	if all, err2 := d.Reported(t.Context(), "a"); err != nil || err2 != nil || len(all) != 1 {
		t.Errorf("%q, %v, %v", all, err, err2)
	}
	if err := s.Clear(t.Context()); err != nil {
		t.Error(err)
	}
}
