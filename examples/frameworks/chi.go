package frameworks

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/stintdev/stint/httplimit"
)

// Chi limits the routes of r, whose handlers are http.Handlers.
func Chi(r chi.Router, m httplimit.Middleware) {
	r.Use(func(next http.Handler) http.Handler { return m.Wrap(next) })
}
