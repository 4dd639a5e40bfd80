package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// notifyTimeout bounds the time in which a service manager must take what it is told.
const notifyTimeout = time.Second

// notify sends text to a socket of systemd's, as sd_notify does. A name that begins with @ is that of
// an abstract one.
func notify(socket, text string) error {
	if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return fmt.Errorf("NOTIFY_SOCKET %q: want a path, or @ and the name of an abstract socket", socket)
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = c.Write([]byte(text))
	return err
}

// monotonic is the line by which systemd sees that a reload began after its signal.
func monotonic() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "MONOTONIC_USEC=0"
	}
	return "MONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/1000, 10)
}

// firstSocket is the descriptor of the first socket that systemd passes.
const firstSocket = 3

// listener returns the gateway's listener, if systemd has opened it; nil: it has not. wanted is whether
// there is a gateway. All other sockets that were passed are closed, and the log says so.
func (s *supervisor) listener(wanted bool) (net.Listener, error) {
	p := s.sockets
	if p.count == "" || p.count == "0" {
		return nil, nil
	}
	if p.pid != strconv.Itoa(os.Getpid()) {
		s.log.Warn("sockets of systemd have no effect, because they were passed to another process", "listen_pid", p.pid)
		return nil, nil
	}
	count, err := strconv.Atoi(p.count)
	if err != nil || count < 0 || count > 1000 {
		return nil, fmt.Errorf("LISTEN_FDS %q: want a number of sockets", p.count)
	}
	return s.chosen(openSockets(firstSocket, count, p.names), wanted)
}

// openSockets are the descriptors from first on. Their names are joined by colons; those that have none
// are called unknown, as sd_listen_fds_with_names does.
func openSockets(first, count int, names string) (all []*os.File) {
	given := strings.Split(names, ":")
	for i := range count {
		unix.CloseOnExec(first + i)
		name := "unknown"
		if i < len(given) && given[i] != "" {
			name = given[i]
		}
		all = append(all, os.NewFile(uintptr(first+i), name))
	}
	return all
}

// chosen returns the gateway's listener of files, or nil, and closes them.
func (s *supervisor) chosen(files []*os.File, wanted bool) (net.Listener, error) {
	var names []string
	for _, f := range files {
		defer f.Close() // the listener has a descriptor of its own
		names = append(names, f.Name())
	}
	at, err := gatewaySocket(names)
	if err != nil {
		return nil, err
	}
	if at < 0 || !wanted {
		why := "none of them has the name gateway"
		if !wanted {
			why = "there is no gateway, because there are no routes"
		}
		s.log.Warn("sockets of systemd have no effect", "names", strings.Join(names, ", "), "because", why)
		return nil, nil
	}
	l, err := net.FileListener(files[at])
	if err != nil {
		return nil, fmt.Errorf("gateway: the socket %q of systemd does not listen: want ListenStream=, and Accept=no: %w", names[at], err)
	}
	if _, ok := l.(*net.TCPListener); !ok {
		l.Close()
		return nil, fmt.Errorf("gateway: the socket %q of systemd is %s: want one of TCP, such as ListenStream=127.0.0.1:8080", names[at], l.Addr().Network())
	}
	if len(names) > 1 {
		s.log.Warn("only the gateway takes a socket of systemd; the others have no effect", "names", strings.Join(names, ", "))
	}
	s.log.Info("the gateway's socket is systemd's, and listen has no effect", "name", names[at])
	return l, nil
}

// gatewaySocket returns which of the sockets with these names is the gateway's, and -1 if none is:
// the one with the name gateway, or the only one.
func gatewaySocket(names []string) (at int, err error) {
	const name = "gateway"
	at = slices.Index(names, name)
	switch {
	case len(names) == 1:
		return 0, nil
	case at >= 0 && slices.Contains(names[at+1:], name):
		return -1, errors.New("systemd has passed two sockets with the name gateway: want one ListenStream= in the socket unit")
	}
	return at, nil
}
