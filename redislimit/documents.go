package redislimit

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// MaxDocument is the length of the longest text of a document, in bytes: 4 MiB.
const MaxDocument = 4 << 20

const keptVersions = 50

//go:embed document.lua
var documentText string

//go:embed announce.lua
var announceText string

var (
	documentScript = conn.NewScript(documentText)
	announceScript = conn.NewScript(announceText)
	// timeScript runs on a key, so that in a Cluster the node that has the key answers.
	timeScript = conn.NewScript("local t = redis.call('TIME')\nreturn t[1] * 1000000 + t[2]")
)

// Documents are texts by name that a fleet shares beside its counts, each in versions
// with numbers from 1, of which the newest 50 are kept. They lie in the Store's
// namespace, do not expire, and are deleted by Clear alone. They may be used from many
// goroutines at once.
//
// Names are 1 to 64 of a–z 0–9 _ -. Errors about a name, a number or a text that
// cannot be wrap stint.ErrRequest.
type Documents struct{ store *Store }

// Documents is the documents of s's namespace.
func (s *Store) Documents() *Documents { return &Documents{s} }

// Now is the time by the server's clock, in a Cluster by that of one node for the whole
// namespace. When another server takes over, its clock counts.
func (d *Documents) Now(ctx context.Context) (time.Time, error) {
	reply, err := d.store.conn.Eval(ctx, timeScript, []string{d.store.documentKey("controls")})
	if err != nil {
		return time.Time{}, fmt.Errorf("redislimit: time: %w", err)
	}
	micros, ok := reply.(int64)
	if !ok {
		return time.Time{}, fmt.Errorf("redislimit: time: the script replied %T", reply)
	}
	return time.UnixMicro(micros), nil
}

// documentKey cannot be a key of a subject, whose tag begins with a digit or "#", nor of another
// namespace, since none contains a brace.
func (s *Store) documentKey(name string) string { return s.namespace + ":{doc:" + name + "}" }

func (s *Store) documentChannel() string { return s.namespace + ":{doc}" }

// Newest is the number of the newest version of a document and the SHA-1 of its
// text, in hexadecimal digits, which tells it from another of that number that was
// lost in a failover; 0 and "": it has none.
func (d *Documents) Newest(ctx context.Context, name string) (number int64, digest string, err error) {
	if err := checkDocument(name); err != nil {
		return 0, "", err
	}
	key := d.store.documentKey(name)
	reply, err := d.store.conn.Do(ctx, "HMGET", key, "newest", "digest")
	if err != nil {
		return 0, "", documentError(key, err)
	}
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return 0, "", fmt.Errorf("redislimit: document: HMGET replied %T of %d", reply, len(fields))
	}
	if fields[0] == nil {
		return 0, "", nil
	}
	text, _ := fields[0].(string)
	digest, _ = fields[1].(string)
	if number, err = strconv.ParseInt(text, 10, 64); err != nil || number < 1 {
		return 0, "", brokenKey(key, false)
	}
	return number, digest, nil
}

// Read returns a version; nil where there is none, or it is no longer kept. An
// empty version is not nil.
func (d *Documents) Read(ctx context.Context, name string, number int64) ([]byte, error) {
	return d.field(ctx, name, strconv.FormatInt(number, 10))
}

func (d *Documents) field(ctx context.Context, name, field string) ([]byte, error) {
	if err := checkDocument(name); err != nil {
		return nil, err
	}
	key := d.store.documentKey(name)
	reply, err := d.store.conn.Do(ctx, "HGET", key, field)
	if err != nil {
		return nil, documentError(key, err)
	}
	switch text := reply.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(text), nil
	}
	return nil, fmt.Errorf("redislimit: document: HGET replied %T", reply)
}

// Write makes text, any bytes up to MaxDocument, the version with that number if
// the newest so far is the one before; else it changes nothing and returns false.
// Of several writers of the same number, one gets true. After an error that is
// no stint.ErrRequest, it may have written.
func (d *Documents) Write(ctx context.Context, name string, number int64, text []byte) (bool, error) {
	if err := checkDocument(name); err != nil {
		return false, err
	}
	if number < 1 {
		return false, fmt.Errorf("redislimit: %w: version %d: the first is 1", stint.ErrRequest, number)
	}
	if len(text) > MaxDocument {
		return false, fmt.Errorf("redislimit: %w: document of %d bytes: at most %d", stint.ErrRequest, len(text), MaxDocument)
	}
	key := d.store.documentKey(name)
	reply, err := d.store.conn.Eval(ctx, documentScript, []string{key}, strconv.FormatInt(number, 10),
		strconv.FormatInt(number-1, 10), strconv.FormatInt(number-keptVersions, 10), string(text), d.store.documentChannel(), name)
	if err != nil {
		return false, documentError(key, err)
	}
	written, ok := reply.(int64)
	if !ok {
		return false, fmt.Errorf("redislimit: document: the script replied %T", reply)
	}
	return written == 1, nil
}

// Watch calls changed, from this goroutine, soon after a document of the namespace
// was written, and after each time that it has connected, the first among them,
// since something may have been missed; several changes may come as one. It
// returns when ctx is done, and connects again for as long as that takes, by a
// connection of its own.
//
// It calls nothing where it cannot listen: without a permission, or over a Client of the
// user's own, with which it only waits for ctx. So callers should ask Newest now and then,
// too.
func (d *Documents) Watch(ctx context.Context, changed func()) {
	d.store.conn.Watch(ctx, d.store.documentChannel(), changed)
}

const announcementLifetime = 30 * time.Second

// Announce records a text of this instance, such as which rules it has, and returns what
// instances of the namespace have announced in the last 30 seconds, by the server's clock:
// each text once, up to 100 of them, the newest first, this one among them. To keep a
// text, announce it again every few seconds.
func (d *Documents) Announce(ctx context.Context, text string) ([]string, error) {
	s := d.store
	reply, err := s.conn.Eval(ctx, announceScript, []string{s.namespace + ":{announced}"}, text, strconv.FormatInt(announcementLifetime.Milliseconds(), 10))
	if err != nil {
		return nil, fmt.Errorf("redislimit: announce: %w", err)
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("redislimit: announce: the script replied %T", reply)
	}
	all := make([]string, 0, len(list))
	for _, t := range list {
		text, _ := t.(string)
		all = append(all, text)
	}
	return all, nil
}

func checkDocument(name string) error {
	ok := len(name) >= 1 && len(name) <= 64
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	if !ok {
		return fmt.Errorf("redislimit: %w: document %.80q: a name must be 1 to 64 of a–z 0–9 _ -", stint.ErrRequest, name)
	}
	return nil
}

func documentError(key string, err error) error {
	if conn.IsWrongType(err) {
		return brokenKey(key, true)
	}
	return fmt.Errorf("redislimit: document: %w", err)
}
