package stats

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/server/config"
)

// statsd sends lines to statsd over TCP or, with Datadog's tags, over UDP. Unsent lines are sent at the next
// flush. Not safe for concurrent use.
type statsd struct {
	network, address string
	dog              bool
	packet           int // the most bytes of a write
	suffix           string
	mogrifiers       []mogrifier

	conn    net.Conn
	closed  chan struct{} // by the server
	failing bool

	lines []byte
	ends  []sending
	err   error // of this flush
}

// sending is the last byte of a line, and the value to note when it is sent.
type sending struct {
	end   int
	noted *uint64
	value uint64
}

const (
	dialTimeout  = 1500 * time.Millisecond
	writeTimeout = time.Second
	// A datagram of this size fits into a frame of Ethernet.
	datagram  = 1432
	tcpPacket = 64 << 10
	// mostTimes bounds the lines about times of a method in a flush. Beyond that, they are sampled.
	mostTimes = 1000
)

func newStatsd(c *config.EnvoyStats, tags []tag) (*statsd, error) {
	d := &statsd{network: "tcp", address: cmp.Or(c.DogStatsd, c.Statsd), packet: tcpPacket}
	if _, _, err := net.SplitHostPort(d.address); err != nil {
		return nil, errors.New("stats: statsd: " + err.Error())
	}
	var suffix strings.Builder
	if c.DogStatsd != "" {
		d.network, d.packet, d.dog = "udp", datagram, true
		var err error
		if d.mogrifiers, err = newMogrifiers(c.Mogrifiers); err != nil {
			return nil, err
		}
	}
	for _, t := range tags {
		value := withoutSyntax(t.value, ".:|") // as gostats has them
		if d.dog {
			suffix.WriteString("," + t.key + ":" + withoutSyntax(value, ","))
		} else {
			suffix.WriteString(".__" + t.key + "=" + value)
		}
	}
	if d.dog {
		for _, key := range slices.Sorted(maps.Keys(c.DogStatsdTags)) {
			suffix.WriteString("," + key + ":" + withoutSyntax(c.DogStatsdTags[key], "|,"))
		}
	}
	d.suffix = suffix.String()
	return d, nil
}

// flush sends all changes since the last sending, and all gauges.
func (d *statsd) flush(groups []*group, gauges []gauge, methods map[string]*method) error {
	d.err = d.connect()
	for _, g := range groups {
		for i, kind := range g.kinds {
			if n := g.n[i].Load(); n > g.sent[i] {
				d.line(g.name+"."+kind, strconv.FormatUint(n-g.sent[i], 10), "|c", &g.sent[i], n)
			}
		}
	}
	for _, g := range gauges {
		d.line(g.name, strconv.FormatUint(g.value, 10), "|g", nil, 0)
	}
	for _, m := range methods {
		d.times(m)
	}
	d.write()
	d.failing = d.err != nil
	return d.err
}

// times sends a line for each call since the last flush. If there are too many, it sends lines for some of
// them, evenly distributed over the sorted times, each with the number of calls for which it stands.
func (d *statsd) times(m *method) {
	var counts [timeBuckets]uint64
	total := uint64(0)
	for i := range counts {
		counts[i] = m.times.n[i].Load()
		total += counts[i] - m.times.sent[i]
	}
	kind, lines := "|ms", total
	if total > mostTimes {
		lines = mostTimes
		kind = "|ms|@" + strconv.FormatFloat(float64(lines)/float64(total), 'g', 6, 64)
	}
	seen, written := uint64(0), uint64(0)
	for i, n := range counts {
		if n == m.times.sent[i] {
			continue
		}
		seen += n - m.times.sent[i]
		value := strconv.FormatFloat(float64(timeOf(i))/1000, 'f', -1, 64)
		for upTo := seen * lines / total; written < upTo; written++ {
			d.line(m.name, value, kind, nil, 0)
		}
		d.note(&m.times.sent[i], n)
	}
}

// line adds a line; see note.
func (d *statsd) line(name, value, kind string, noted *uint64, now uint64) {
	if d.err != nil {
		return
	}
	tags := d.suffix
	if d.dog {
		var more string
		if name, more = mogrified(d.mogrifiers, name); tags != "" || more != "" {
			tags = "|#" + strings.TrimPrefix(tags+more, ",")
		}
	} else {
		name, tags = name+tags, ""
	}
	if size := len(name) + len(value) + len(kind) + len(tags) + 2; len(d.lines) > 0 && len(d.lines)+size > d.packet {
		d.write()
	}
	d.lines = append(d.lines, name...)
	d.lines = append(d.lines, ':')
	d.lines = append(d.lines, value...)
	d.lines = append(d.lines, kind...)
	d.lines = append(d.lines, tags...)
	d.lines = append(d.lines, '\n')
	if noted != nil {
		d.note(noted, now)
	}
}

// note sets noted to now when all lines up to here are sent.
func (d *statsd) note(noted *uint64, now uint64) {
	d.ends = append(d.ends, sending{len(d.lines), noted, now})
}

// write sends the lines, and notes which were sent.
func (d *statsd) write() {
	if d.err == nil && len(d.lines) > 0 {
		_ = d.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		var n int
		n, d.err = d.conn.Write(d.lines)
		for _, s := range d.ends {
			if s.end <= n {
				*s.noted = s.value
			}
		}
		if d.err != nil {
			d.close()
		}
	}
	d.lines, d.ends = d.lines[:0], d.ends[:0]
}

// connect opens a connection, if there is none.
func (d *statsd) connect() error {
	if d.conn != nil {
		select {
		case <-d.closed:
			d.close()
		default:
			return nil
		}
	}
	conn, err := net.DialTimeout(d.network, d.address, dialTimeout)
	if err != nil {
		return err
	}
	d.conn, d.closed = conn, make(chan struct{})
	if d.network == "tcp" {
		// A connection that the server has closed takes one more write, which is lost.
		go func(closed chan struct{}) {
			_, _ = io.Copy(io.Discard, conn)
			close(closed)
		}(d.closed)
	}
	return nil
}

func (d *statsd) close() {
	if d.conn != nil {
		_ = d.conn.Close()
		d.conn = nil
	}
}
