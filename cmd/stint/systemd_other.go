//go:build !linux

package main

import "net"

// There is no systemd here.

func notify(string, string) error { return nil }

func monotonic() string { return "" }

func (*supervisor) listener(bool) (net.Listener, error) { return nil, nil }
