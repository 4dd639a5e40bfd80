package watch

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
)

// bytesOfBan is about what the metric of bans keeps of one.
const bytesOfBan = 128

// The metric of bans keeps no key: a client that invents long ones takes no more memory
// by it than one with short ones, and lifting still finds each.
func TestBytesOfBans(t *testing.T) {
	long := strings.Repeat("k", stint.MaxKey-10)
	var b Bans
	before := heapInUse()
	for i := range 2 * config.MaxCountedBans {
		b.impose("login", long+strconv.Itoa(i), time.Hour)
	}
	if n := b.Count()["login"]; n != config.MaxCountedBans {
		t.Fatalf("%d bans", n)
	}
	if each := (heapInUse() - before) / config.MaxCountedBans; each > bytesOfBan {
		t.Errorf("%d bytes a ban, want at most %d", each, bytesOfBan)
	}
	b.Lift("logi", "n"+long+"0")
	b.Lift("login", long+"0")
	b.Lift("login", long+"0")
	if n := b.Count()["login"]; n != config.MaxCountedBans-1 {
		t.Errorf("%d bans after one was lifted", n)
	}
	runtime.KeepAlive(&b)
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
