package httplimit

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// storeTimeout is how long a response waits for the store at most. Later settlements continue in
// the background.
const storeTimeout = time.Second

// heldCall has the hold of an outgoing request until its response has ended.
type heldCall struct {
	ctx  context.Context
	held *stint.Reservation // nil: nothing
	once sync.Once
}

// end charges the held units. Only the first call has an effect.
func (h *heldCall) end() {
	h.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), storeTimeout)
		defer cancel()
		_ = h.held.Settle(ctx) // a lost unit is as free
	})
}

// until makes the end of resp end h. It ends h at once if resp has no body.
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

// heldConn holds until it is closed, because it can be written to after its peer has
// finished.
type heldConn struct {
	io.ReadWriteCloser
	call *heldCall
}

func (c *heldConn) Close() error {
	defer c.call.end()
	return c.ReadWriteCloser.Close()
}

// CloseWrite is called by httputil.ReverseProxy when the other side has finished writing.
func (c *heldConn) CloseWrite() error {
	if w, ok := c.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return http.ErrNotSupported
}
