package conn

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Slots is how many slots a Cluster has.
	Slots            = 16384
	topologyInterval = 5 * time.Second
)

// Topology maps slots of a Cluster to nodes.
type Topology struct {
	names []string      // of nodes: host:port; the first is empty, for slots without a node
	of    [Slots]uint16 // index in names
}

// Topology returns the Topology; nil: no Cluster, or it has not answered yet.
func (c *Conn) Topology() *Topology { return c.topology.Load() }

// Node returns the address of the node that has a slot, host:port; empty: not known.
func (t *Topology) Node(slot uint16) string {
	if t == nil {
		return ""
	}
	return t.names[t.of[slot]]
}

// Nodes returns the addresses of all nodes that have slots.
func (t *Topology) Nodes() []string {
	if t == nil {
		return nil
	}
	return t.names[1:]
}

// refreshTopology keeps the last topology if the Cluster does not answer.
func (c *Conn) refreshTopology(ctx context.Context) {
	e := c.engine.Load()
	if !c.Cluster() {
		c.topology.Store(nil)
		return
	}
	bounded, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	reply, err := e.Do(bounded, "CLUSTER", "SLOTS")
	if err != nil {
		return
	}
	if t := readSlots(reply); t != nil {
		c.topology.Store(t)
	}
}

// readSlots reads the reply to CLUSTER SLOTS; nil: it is malformed, or no slot has a node.
func readSlots(reply any) *Topology {
	t := &Topology{names: []string{""}}
	ranges, _ := reply.([]any)
	for _, r := range ranges {
		fields, _ := r.([]any)
		if len(fields) < 3 {
			return nil
		}
		first, ok1 := fields[0].(int64)
		last, ok2 := fields[1].(int64)
		node, _ := fields[2].([]any)
		if !ok1 || !ok2 || len(node) < 2 || first < 0 || first > last || last >= Slots {
			return nil
		}
		host, _ := node[0].(string)
		port, ok := node[1].(int64)
		if !ok {
			return nil
		}
		name := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		place := slices.Index(t.names, name)
		if place < 0 {
			place = len(t.names)
			t.names = append(t.names, name)
		}
		for i := first; i <= last; i++ {
			t.of[i] = uint16(place)
		}
	}
	if len(t.names) == 1 {
		return nil
	}
	return t
}

// Slot is the slot of keys with this hash tag: the CRC16 (XMODEM) of the text before its first "}".
func Slot(tag []byte) uint16 {
	if end := bytes.IndexByte(tag, '}'); end >= 0 {
		tag = tag[:end]
	}
	return crcOf(tag) % Slots
}

// KeySlot is the slot of any key: that of its hash tag, if it has one that is not empty.
func KeySlot(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return crcOf([]byte(key)) % Slots
}

func crcOf(text []byte) (crc uint16) {
	for _, c := range text {
		crc = crc<<8 ^ crc16[byte(crc>>8)^c]
	}
	return crc
}

var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
