package frameworks

import (
	"maps"

	"github.com/labstack/echo/v4"

	"github.com/stintdev/stint/httplimit"
)

// Echo limits the handlers within it.
func Echo(m httplimit.Middleware) echo.MiddlewareFunc {
	gate := m.Gate()
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			running, refused := gate.Begin(c.Request())
			if refused != nil {
				maps.Copy(c.Response().Header(), refused.Header)
				c.Response().WriteHeader(refused.Status)
				_, err := c.Response().Write(refused.Body)
				return err
			}
			defer running.End(func() int { return c.Response().Status })
			maps.Copy(c.Response().Header(), running.Header)
			c.SetRequest(running.Request)
			err := next(c)
			if err != nil {
				c.Error(err) // writes the response, whose status counts
			}
			return nil
		}
	}
}
