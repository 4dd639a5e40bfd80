package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
)

// child is this program in another process, which answers each line of its standard input with JSON.
type child struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// startChild starts a process with env added to its environment, and reads its first line.
func startChild(first any, env ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{process: exec.Command(self)}
	c.process.Env = append(os.Environ(), env...)
	c.process.Stderr = os.Stderr
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	if err := c.out.Decode(first); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *child) end() {
	_ = c.in.Close()
	_ = c.process.Wait()
}
