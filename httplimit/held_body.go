package httplimit

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// storeTimeout is how long a response waits for the store at most. What is not settled by then is
// settled in the background.
const storeTimeout = time.Second

// heldCall is what an outgoing request holds until its response has ended.
type heldCall struct {
	ctx  context.Context
	held *stint.Reservation // nil: nothing
	once sync.Once
}

// end charges what was held. Only the first call does something.
func (h *heldCall) end() {
	h.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), storeTimeout)
		defer cancel()
		_ = h.held.Settle(ctx) // one that is lost is as free
	})
}

// until makes resp end h, and ends it at once if nothing more comes.
func (h *heldCall) until(resp *http.Response) {
	switch body := resp.Body.(type) {
	case nil:
		h.end()
	case io.ReadWriteCloser: // of 101 Switching Protocols: a connection in both directions
		resp.Body = &heldConn{body, h}
	default:
		if body == http.NoBody {
			h.end()
			return
		}
		// net/http drops the connection when the context ends, although nobody reads.
		resp.Body = &heldBody{body, h, context.AfterFunc(h.ctx, h.end)}
	}
}

type heldBody struct {
	io.ReadCloser
	call *heldCall
	stop func() bool
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (b *heldBody) end() {
	b.stop()
	b.call.end()
}

// heldConn holds until it is closed: it can be written after its peer has written all.
type heldConn struct {
	io.ReadWriteCloser
	call *heldCall
}

func (c *heldConn) Close() error {
	defer c.call.end()
	return c.ReadWriteCloser.Close()
}

// CloseWrite is what httputil.ReverseProxy calls if the other side has written all.
func (c *heldConn) CloseWrite() error {
	if w, ok := c.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return http.ErrNotSupported
}
