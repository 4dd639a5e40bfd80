package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/server/config"
)

// The times after which a session ends: sessionTime after it began, and sessionIdle after its
// last call.
const (
	sessionTime = 12 * time.Hour
	sessionIdle = time.Hour
)

// sessions are the sessions of browsers that have signed in with a token, at most
// config.MaxSessions. They are kept in memory only. A session has the rights of the token that opened it, and
// ends when that token does. It may be used from many goroutines at once.
type sessions struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]*session // by the digest of the ID, which only the browser has
}

// session is one session.
type session struct {
	token       [sha256.Size]byte // the digest of its token
	began, used time.Time
}

// ends is when s ends if it is not used again.
func (s *session) ends() time.Time {
	end := s.began.Add(sessionTime)
	if idle := s.used.Add(sessionIdle); idle.Before(end) {
		return idle
	}
	return end
}

// start opens a session and returns its ID. If there are too many, makeRoom ends others.
func (s *sessions) start(token [sha256.Size]byte) (id string, until time.Time) {
	id = rand.Text()
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[[sha256.Size]byte]*session{}
	}
	if len(s.open) >= config.MaxSessions {
		s.makeRoom(now)
	}
	s.open[sha256.Sum256([]byte(id))] = &session{token, now, now}
	return id, now.Add(sessionTime)
}

// makeRoom drops the sessions that have ended. If none has, it drops one of the token with the
// most sessions, the one that was used least recently. So a token holder who signs in again and again does
// not end others' sessions, nor do others who sign in then.
func (s *sessions) makeRoom(now time.Time) {
	held := map[[sha256.Size]byte]int{}
	for id, o := range s.open {
		if now.After(o.ends()) {
			delete(s.open, id)
		} else {
			held[o.token]++
		}
	}
	if len(s.open) < config.MaxSessions {
		return
	}
	var least *session
	var which [sha256.Size]byte
	for id, o := range s.open {
		if least == nil || held[o.token] > held[least.token] ||
			held[o.token] == held[least.token] && o.used.Before(least.used) {
			least, which = o, id
		}
	}
	delete(s.open, which)
}

// use returns the token of the session with that ID, and when the session ends at the latest.
func (s *sessions) use(id string) (token [sha256.Size]byte, until time.Time, ok bool) {
	digest := sha256.Sum256([]byte(id))
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[digest]
	if o == nil {
		return token, until, false
	}
	if now.After(o.ends()) {
		delete(s.open, digest)
		return token, until, false
	}
	o.used = now
	return o.token, o.began.Add(sessionTime), true
}

// end ends the session with that ID, if there is one.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(id)))
}

// SignIn opens a session for a browser that presents a token, and sets its cookie in the
// headers of the answer.
func (a *Authenticator) SignIn(r *http.Request, h http.Header, token string) (Caller, *Error) {
	if len(a.callers.Tokens) == 0 {
		if who, refused := a.Authenticate(r, Bearer); refused != nil {
			return who, refused
		}
		return Caller{}, &Error{Status: http.StatusUnprocessableEntity, Detail: "The settings have no tokens, so nobody signs in here."}
	}
	if !fromOwnPage(r) {
		return Caller{}, errOrigin
	}
	found, refused := a.findToken(r, token)
	if refused != nil {
		return Caller{}, refused
	}
	if id := sessionID(r); id != "" {
		a.sessions.end(id)
	}
	id, until := a.sessions.start(found.digest)
	setCookie(r, h, id, 0)
	found.Caller.By, found.Caller.Until = BySession, until
	return found.Caller, nil
}

// SignOut ends the session that r belongs to, and deletes its cookie by the headers of the
// answer. r must have passed Authenticate.
func (a *Authenticator) SignOut(r *http.Request, h http.Header) {
	a.sessions.end(sessionID(r))
	setCookie(r, h, "", -1)
}

// bySession returns the caller whose session r belongs to. known is false if r has no cookie of an open
// session.
func (a *Authenticator) bySession(r *http.Request) (who Caller, refused *Error, known bool) {
	if a.sessions == nil {
		return Caller{}, nil, false
	}
	id := sessionID(r)
	if id == "" {
		return Caller{}, nil, false
	}
	token, until, ok := a.sessions.use(id)
	if !ok {
		return Caller{}, nil, false
	}
	found, ok := a.tokens.Load().find(token)
	if !ok { // it was replaced
		a.sessions.end(id)
		return Caller{}, nil, false
	}
	if !fromOwnPage(r) {
		return Caller{}, errOrigin, true
	}
	who = found.Caller
	who.By, who.Until = BySession, until
	return who, nil, true
}

// fromOwnPage reports whether a page of this origin surely sent r, or r only reads and the
// browser does not say who sent it. Browsers say it in Origin, except for requests that read,
// and in Sec-Fetch-Site, except over plain HTTP from another machine. A cookie with
// SameSite=Strict comes with requests of other ports of the same host, too.
func fromOwnPage(r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return sameOrigin(r) && (reads || r.Header["Origin"] != nil)
}

// cookieName is the name of the cookie at a port. Browsers send cookies to all ports of a host; the names
// distinguish two instances at one host, such as localhost.
func cookieName(r *http.Request, secure bool) string {
	name := "stint-session"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if secure {
		return "__Host-" + name // browsers take it only with Secure, from this host itself
	}
	return name
}

// sessionID is the ID in r's cookie; "": there is none, or another host has set a second one.
// If r surely comes over TLS, only the cookie that no other host can have set counts.
func sessionID(r *http.Request) string {
	kinds := []bool{true, false}
	if overTLS(r) {
		kinds = kinds[:1]
	}
	for _, secure := range kinds {
		if cookies := r.CookiesNamed(cookieName(r, secure)); len(cookies) == 1 {
			return cookies[0].Value
		}
	}
	return ""
}

// setCookie sets the cookie of a session, or deletes it if maxAge is negative. Without a maxAge
// it ends with the browser.
func setCookie(r *http.Request, h http.Header, id string, maxAge int) {
	secure := overTLS(r)
	c := http.Cookie{Name: cookieName(r, secure), Value: id, Path: "/", MaxAge: maxAge, Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	h.Add("Set-Cookie", c.String())
}

// overTLS reports whether r surely comes over TLS. A proxy may have ended TLS; the Origin shows it.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}
