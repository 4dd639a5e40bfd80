package admin

import (
	"log/slog"
	"net/http"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/auth"
)

// maxSignIn is the size of the largest body that signs in, in bytes. Everybody may send one.
const maxSignIn = 16 << 10

// signIn opens a session for a browser. It is not an endpoint, because its callers are not known yet.
func (a *API) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxSignIn)
	c := &call{Request: r, header: w.Header()}
	var in adminapi.SessionRequest
	if err := c.read(&in); err != nil {
		refuse(w, err)
		return
	}
	who, refused := a.Callers.SignIn(r, w.Header(), in.Token)
	if refused != nil {
		a.refuseCaller(w, r, who, refused)
		return
	}
	a.Audit.line(slog.LevelInfo, "signed in", "who", who.Name, "from", r.RemoteAddr)
	write(w, "application/json", http.StatusCreated, sessionOf(who))
}

func (a *API) signOut(c *call) (int, any, error) {
	if c.who.By != auth.BySession {
		return 0, nil, &callError{status: http.StatusNotFound, detail: "This call belongs to no session."}
	}
	a.Callers.SignOut(c.Request, c.header)
	a.Audit.line(slog.LevelInfo, "signed out", "who", c.who.Name, "from", c.RemoteAddr)
	return http.StatusOK, sessionOf(c.who), nil
}

func (a *API) showSession(c *call) (int, any, error) { return http.StatusOK, sessionOf(c.who), nil }

func sessionOf(who auth.Caller) adminapi.Session {
	s := adminapi.Session{Name: who.Name, Scope: who.Scope.String(), By: string(who.By)}
	if !who.Until.IsZero() {
		until := who.Until.UTC()
		s.Until = &until
	}
	return s
}
