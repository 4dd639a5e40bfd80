package frameworks_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	hertz "github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/examples/frameworks"
	"github.com/stintdev/stint/httplimit"
)

// frameworksUnderTest serve a handler that answers what answer returns, behind a Middleware, and return
// the address.
var frameworksUnderTest = map[string]func(t *testing.T, m httplimit.Middleware, answer func(ctx context.Context, path string) int) string{
	"chi": func(t *testing.T, m httplimit.Middleware, answer func(context.Context, string) int) string {
		r := chi.NewRouter()
		frameworks.Chi(r, m)
		r.Get("/*", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(answer(r.Context(), r.URL.Path)) })
		return serve(t, r)
	},
	"gin": func(t *testing.T, m httplimit.Middleware, answer func(context.Context, string) int) string {
		gin.SetMode(gin.ReleaseMode)
		g := gin.New()
		g.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }), frameworks.Gin(m))
		g.GET("/*path", func(c *gin.Context) { c.Status(answer(c.Request.Context(), c.Request.URL.Path)) })
		return serve(t, g)
	},
	"echo": func(t *testing.T, m httplimit.Middleware, answer func(context.Context, string) int) string {
		e := echo.New()
		e.Use(frameworks.Echo(m))
		e.GET("/*", func(c echo.Context) error {
			status := answer(c.Request().Context(), c.Request().URL.Path)
			if status >= 400 {
				return echo.NewHTTPError(status)
			}
			return c.NoContent(status)
		})
		return serve(t, e)
	},
	"fiber": func(t *testing.T, m httplimit.Middleware, answer func(context.Context, string) int) string {
		f := fiber.New(fiber.Config{DisableStartupMessage: true})
		f.Use(frameworks.Fiber(m))
		f.Get("/*", func(c *fiber.Ctx) error {
			status := answer(c.UserContext(), c.Path())
			if status >= 400 {
				return fiber.NewError(status)
			}
			return c.SendStatus(status)
		})
		l := listen(t)
		go func() { _ = f.Listener(l) }()
		t.Cleanup(func() { _ = f.Shutdown() })
		return "http://" + l.Addr().String()
	},
	"hertz": func(t *testing.T, m httplimit.Middleware, answer func(context.Context, string) int) string {
		hlog.SetOutput(io.Discard)
		l := listen(t)
		h := hertz.New(hertz.WithListener(l), hertz.WithExitWaitTime(0))
		h.Use(frameworks.Hertz(m))
		h.GET("/*path", func(ctx context.Context, c *app.RequestContext) { c.Status(answer(ctx, string(c.Path()))) })
		go func() { _ = h.Run() }()
		t.Cleanup(func() { _ = h.Close() })
		return "http://" + l.Addr().String()
	},
}

func serve(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func get(t *testing.T, url string) (status int, header http.Header, body string) {
	t.Helper()
	client := http.Client{Timeout: time.Minute}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		resp, err := client.Get(url)
		if err != nil && time.Now().Before(end) {
			continue // it may not accept yet
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header, string(text)
	}
}

// With each framework, requests in flight are limited, statuses are counted, headers and refusals arrive,
// and handlers know their caller.
func TestFrameworks(t *testing.T) {
	everyone := func(*http.Request) string { return "all" }
	ban, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 3, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for name, start := range frameworksUnderTest {
		t.Run(name, func(t *testing.T) {
			began, end := make(chan bool), make(chan bool)
			clients := httplimit.Clients{}
			callers := make(chan string, 100)
			url := start(t, httplimit.Middleware{Clients: &clients, Decide: httplimit.By(nil, stint.MustLimit("running: 2 in_flight"), everyone)}, func(ctx context.Context, path string) int {
				if callers <- stint.Caller(ctx); path == "/slow" {
					began <- true
					<-end
				}
				return 204
			})
			for round := range 3 {
				done := make(chan int, 2)
				for range 2 {
					go func() { status, _, _ := get(t, url+"/slow"); done <- status }()
					<-began
				}
				if status, _, body := get(t, url+"/quick"); status != 429 || !strings.Contains(body, "running: 2 in_flight") && !strings.Contains(body, "2 in_flight") {
					t.Errorf("round %d: a third at once: %d %s", round, status, body)
				}
				end <- true
				end <- true
				if a, b := <-done, <-done; a != 204 || b != 204 {
					t.Errorf("round %d: %d %d", round, a, b)
				}
			}
			if caller := <-callers; caller != "client=127.0.0.1" {
				t.Errorf("the caller is %q", caller)
			}
			url = start(t, httplimit.Middleware{Decide: httplimit.Watch(httplimit.By(nil, stint.MustLimit("a: 100 per 1h"), everyone), nil, everyone, ban, 401)}, func(context.Context, string) int { return 401 })
			var got []string
			for range 5 {
				status, header, _ := get(t, url+"/login")
				got = append(got, fmt.Sprint(status, " ", header.Get("X-Ratelimit-Remaining")))
			}
			if text := fmt.Sprint(got); text != "[401 99 401 98 401 97 429  429 ]" {
				t.Error(text)
			}
		})
	}
}
