package rpclimit

import (
	"net/netip"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
)

// Call is a call as a Key and a Decide see it. They must not change or keep it.
type Call struct {
	// Method is the full name of the method: "/acme.items.v1.Items/Get".
	Method string
	// Peer is the address of the connection, which behind a proxy is the proxy's. Zero: none, as
	// over a Unix socket, or the call is outgoing.
	Peer netip.Addr
	// Target is the server of an outgoing call: the target of a grpc.ClientConn, or the host
	// of a URL. "": the call is incoming.
	Target string
	// Metadata returns the values that the caller sends under a name, of any case. It may be
	// nil; see Values.
	Metadata func(name string) []string
	// Message is the request of a unary call, or the message of a stream to be decided. nil:
	// the stream as a whole is to be decided.
	Message any
}

// Values returns the values that the caller sends under a name, of any case.
func (c *Call) Values(name string) []string {
	if c.Metadata == nil {
		return nil
	}
	return c.Metadata(name)
}

// End describes a call that has ended; see Answer.OnEnd.
type End struct {
	// Code is code.Code_OK, or the code of the handler's error or of a refused message.
	Code code.Code
	// Err is the error that the call ended with. nil: none, or the handler panicked.
	Err error
	// Panicked says that the handler panicked. Code is then code.Code_UNKNOWN.
	Panicked bool
	// Last is the last message that was sent: the response of a unary call. nil: none.
	Last any
	// Received and Sent are how many messages the server received and sent.
	Received, Sent int64
	// Took is how long the call ran since it was decided.
	Took time.Duration
}
