package frameworks

import (
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/stintdev/stint/httplimit"
)

// Fiber limits the handlers after it. Their contexts are those of UserContext.
func Fiber(m httplimit.Middleware) fiber.Handler {
	gate := m.Gate()
	return func(c *fiber.Ctx) error {
		r := new(http.Request)
		if err := fasthttpadaptor.ConvertRequest(c.Context(), r, true); err != nil {
			return fiber.ErrBadRequest
		}
		running, refused := gate.Begin(r.WithContext(c.UserContext()))
		if refused != nil {
			setFiber(c, refused.Header)
			return c.Status(refused.Status).Send(refused.Body)
		}
		defer running.End(func() int { return c.Response().StatusCode() })
		setFiber(c, running.Header)
		c.SetUserContext(running.Request.Context())
		if err := c.Next(); err != nil {
			return c.App().ErrorHandler(c, err) // writes the response, whose status counts
		}
		return nil
	}
}

func setFiber(c *fiber.Ctx, h http.Header) {
	for name, lines := range h {
		for _, line := range lines {
			c.Response().Header.Add(name, line)
		}
	}
}
