package server_test

import (
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
)

// openRedis is a Store of the Redis at url, in a namespace if one is given, until the test ends.
func openRedis(t testing.TB, url string, namespace ...string) *redislimit.Store {
	t.Helper()
	store := connectRedis(t, url, namespace...)
	t.Cleanup(store.Close)
	return store
}

// connectRedis is openRedis for those who close the Store themselves.
func connectRedis(t testing.TB, url string, namespace ...string) *redislimit.Store {
	t.Helper()
	var o redislimit.Options
	if len(namespace) > 0 {
		o.Namespace = namespace[0]
	}
	store, err := redislimit.Connect(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// holdingStore is a Store that holds.
type holdingStore interface {
	stint.Store
	stint.Holder
}

// eachStore runs a test on memory, and on a real Redis.
func eachStore(t *testing.T, test func(t *testing.T, store holdingStore)) {
	t.Run("memory", func(t *testing.T) { test(t, new(stint.Memory)) })
	t.Run("redis", func(t *testing.T) { test(t, openRedis(t, redistest.Start(t).URL())) })
}

// onStores is eachStore for tests that need the Store only in a Server.
func onStores(t *testing.T, test func(t *testing.T, store func(*server.Config))) {
	eachStore(t, func(t *testing.T, s holdingStore) { test(t, over(s)) })
}
