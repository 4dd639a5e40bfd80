package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a server of our own on loopback, without persistence.
type redisServer struct {
	addr    string
	process *exec.Cmd
	dir     string
	client  *redis.Client
}

func startRedis() (*redisServer, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "stint-bench-")
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: addr, dir: dir, client: redis.NewClient(&redis.Options{Addr: addr})}
	s.process = exec.Command(binary, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no")
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err = s.client.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}

func (s *redisServer) stop() {
	_ = s.client.Close()
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	_ = os.RemoveAll(s.dir)
}

func (s *redisServer) flush() error { return s.client.FlushAll(context.Background()).Err() }

func (s *redisServer) info(section string, fields ...string) (float64, error) {
	text, err := s.client.Info(context.Background(), section).Result()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, f := range fields {
			if name == f {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return 0, err
				}
				sum += v
			}
		}
	}
	return sum, nil
}

func (s *redisServer) cpu() (float64, error) { return s.info("cpu", "used_cpu_user", "used_cpu_sys") }

func (s *redisServer) memory() (float64, error) { return s.info("memory", "used_memory") }

func (s *redisServer) version() string {
	text, _ := s.client.Info(context.Background(), "server").Result()
	_, rest, _ := strings.Cut(text, "redis_version:")
	version, _, _ := strings.Cut(rest, "\r")
	return version
}
