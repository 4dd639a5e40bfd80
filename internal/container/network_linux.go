package container

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// Address is one of a container with a network of its own. There, each address of 10.0.0.0/8 leads to the
// container itself, and from there to what listens by Listen.
const Address = "10.0.0.1"

// connect gives this thread's network its loopback.
func connect() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, loopback); err != nil {
		return err
	}
	more, err := unix.NewIfreq("lo:0") // a second name, as lo has 127.0.0.1
	if err != nil {
		return err
	}
	if err := more.SetInet4Addr([]byte{10, 0, 0, 1}); err != nil { // of the class A: all of 10.0.0.0/8
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFADDR, more)
}

// Dial connects to an address in the network of the container, as a program beside it would. It is fit for
// http.Transport.DialContext. The host must be an IP address.
func (c *Container) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = c.do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens in the network of the container. The host must be an IP address.
func (c *Container) Listen(network, address string) (l net.Listener, err error) {
	err = c.do(func() (err error) {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}
