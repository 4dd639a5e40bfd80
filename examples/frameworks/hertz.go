package frameworks

import (
	"bytes"
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/stintdev/stint/httplimit"
)

// Hertz limits the handlers after it.
func Hertz(m httplimit.Middleware) app.HandlerFunc {
	gate := m.Gate()
	return func(ctx context.Context, c *app.RequestContext) {
		r, err := http.NewRequestWithContext(ctx, string(c.Method()), string(c.Request.RequestURI()), bytes.NewReader(c.Request.Body()))
		if err != nil {
			c.AbortWithStatus(http.StatusBadRequest)
			return
		}
		c.Request.Header.VisitAll(func(name, line []byte) { r.Header.Add(string(name), string(line)) })
		r.Host, r.RemoteAddr = string(c.Host()), c.RemoteAddr().String()
		running, refused := gate.Begin(r)
		if refused != nil {
			setHertz(c, refused.Header)
			c.Response.SetBody(refused.Body)
			c.AbortWithStatus(refused.Status)
			return
		}
		defer running.End(func() int { return c.Response.StatusCode() })
		setHertz(c, running.Header)
		c.Next(running.Request.Context())
	}
}

func setHertz(c *app.RequestContext, h http.Header) {
	for name, lines := range h {
		for _, line := range lines {
			c.Response.Header.Add(name, line)
		}
	}
}
