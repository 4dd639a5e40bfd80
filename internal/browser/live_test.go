package browser

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// The overview follows what happens without a reload, and says that it is live.
func TestLiveUpdate(t *testing.T) {
	t.Parallel()
	s := serve(t, loginRule)
	b := open(t)
	b.visit(s.admin + "/")
	b.until("it is live", of("connection")+".dataset.state === 'live'")
	b.until("nothing is decided", of("tile-decisions")+".textContent === '0'")
	stop := load(t, s)
	b.until("decisions are shown", of("tile-decisions")+".textContent !== '0'")
	b.until("refusals are shown", fmt.Sprintf("/[1-9]/.test(%s.textContent)", of("tile-refused")))
	b.until("the busiest rule is shown", fmt.Sprintf("%s.textContent.includes('login')", of("page-overview")))
	b.accessible("the overview under load")
	stop()
	b.until("it is quiet again", of("tile-decisions")+".textContent === '0'")
}

// load sends checks again and again until it is stopped; without any, of one client that logs in.
func load(t testing.TB, s *instance, checks ...string) (stop func()) {
	if len(checks) == 0 {
		checks = []string{`{"operation":"login","client":"192.0.2.99"}`}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			resp, err := http.Post(s.check+"/v1/check", "application/json", strings.NewReader(checks[i%len(checks)]))
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			time.Sleep(4 * time.Millisecond) // other tests run, too
		}
	}()
	stop = sync.OnceFunc(func() {
		close(done)
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// When the store is away, the page says so and goes on, and when it is back, it says so, too.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	s, redis := busy(t)
	b := open(t)
	b.visit(s.admin + "/")
	b.until("the store decides", of("health")+".querySelector('.good') !== null")
	redis.Stop(t)
	load(t, s)
	b.until("the overview says that the store is away", of("health")+".querySelector('.bad') !== null")
	b.see("health", "The store has been away for")
	b.accessible("the overview without the store")
	b.at("bans")
	b.see("local")
	b.see("page-bans", "203.0.113.0/24")
	b.click("btn-ban")
	b.fill("input-network", "198.18.0.0/15")
	b.fill("input-reason", "while it is away")
	b.click("btn-confirm")
	b.gone("dialog")
	b.see("page-bans", "198.18.0.0/15")
	b.at("keys?rule=login&key=192.0.2.1")
	b.see("key", "192.0.2.1")
	redis.Restart(t)
	b.at("overview")
	b.until("the store decides again", of("health")+".querySelector('.bad') === null && "+of("health")+".querySelector('.dot') !== null && "+of("tile-decides")+"?.classList.contains('bad') === false")
}

// When the instance is gone, the page says that it has lost it, keeps what it shows, and finds
// another that takes its place.
func TestInstanceAway(t *testing.T) {
	atLength(t)
	s := serve(t, loginRule)
	address := strings.TrimPrefix(s.admin, "http://")
	b := open(t)
	b.visit(s.admin + "/")
	b.until("it is live", of("connection")+".dataset.state === 'live'")
	s.stop()
	b.until("it is lost", of("connection")+".dataset.state === 'lost'")
	b.see("page-overview")
	b.accessible("the overview without the instance")
	serve(t, loginRule, "--admin-listen", address)
	b.until("it is live again", of("connection")+".dataset.state === 'live'")
}

// Ten thousand bans stay a list that scrolls: only the rows in view are elements.
func TestTenThousandKeys(t *testing.T) {
	atLength(t)
	s := serve(t, `
rules:
  - name: login
    match: operation == "login"
    key: client.ip
    limits: [1 per 1h fixed_window]
    penalty: {ban_after: 1, ban_for: 30m}
`)
	s.banMany(10_000)
	b := open(t)
	b.visit(s.admin + "/#/bans")
	b.until("all are counted", fmt.Sprintf(`/10.?000/.test(%s.textContent)`, of("bans-count")))
	most := 0
	rows := func() int {
		n := eval[int](b, "document.querySelectorAll('tbody tr').length")
		most = max(most, n)
		return n
	}
	rows()
	// Scrolls from the top to the end, a screen each frame, and measures the frames.
	const scroll = `new Promise(done => {
		const box = document.querySelector('.scroll.long');
		const frames = [];
		let last = performance.now(), most = 0;
		const step = () => {
			const now = performance.now();
			frames.push(now - last);
			last = now;
			most = Math.max(most, document.querySelectorAll('tbody tr').length);
			if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1) { frames.sort((a, b) => a - b); done([most, frames.length, frames[frames.length >> 1], frames[Math.floor(frames.length * 0.99)]]); return; }
			box.scrollTop += box.clientHeight * 4;
			requestAnimationFrame(step);
		};
		requestAnimationFrame(step);
	})`
	figures := eval[[]float64](b, scroll)
	most = max(most, int(figures[0]))
	b.see("row-9999")
	if n := rows(); most > 200 {
		t.Errorf("%d rows are elements, %d at most", n, most)
	}
	t.Logf("10,000 rows: at most %d elements; %v frames of %.1f ms (median), %.1f ms (99 %%)", most, figures[1], figures[2], figures[3])
	b.accessible("a long list")
	b.fill("input-filter", "10.0.39.15")
	b.until("the filter finds one", "document.querySelectorAll('tbody tr').length === 1")
	b.see("row-0", "10.0.39.15")
}

// A page that was closed leaves no stream behind, and one that is signed out gets no more events.
func TestStreamEnds(t *testing.T) {
	atLength(t)
	s := serve(t, guarded)
	b := open(t)
	b.signIn(s, writeToken)
	b.until("it is live", of("connection")+".dataset.state === 'live'")
	other := open(t)
	other.signIn(s, readToken)
	other.until("it is live", of("connection")+".dataset.state === 'live'")
	s.write("viewer.token", "geheim-other-0123456789abcdef")
	s.reload()
	other.see("page-signin")
	b.until("the other goes on", of("connection")+".dataset.state === 'live'")
}
