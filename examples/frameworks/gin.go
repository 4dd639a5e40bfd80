package frameworks

import (
	"maps"

	"github.com/gin-gonic/gin"

	"github.com/stintdev/stint/httplimit"
)

// Gin limits the handlers after it.
func Gin(m httplimit.Middleware) gin.HandlerFunc {
	gate := m.Gate()
	return func(c *gin.Context) {
		running, refused := gate.Begin(c.Request)
		if refused != nil {
			maps.Copy(c.Writer.Header(), refused.Header)
			c.Status(refused.Status)
			_, _ = c.Writer.Write(refused.Body)
			c.Abort()
			return
		}
		defer running.End(func() int { return c.Writer.Status() })
		maps.Copy(c.Writer.Header(), running.Header)
		c.Request = running.Request
		c.Next()
	}
}
