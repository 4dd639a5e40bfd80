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

// maxDocument is the length of the longest text of a document, in bytes: 4 MiB.
const maxDocument = 4 << 20

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

// documents are named texts that a fleet shares besides its counts. Each has versions with
// numbers from 1; the newest 50 are kept. They are in the Store's namespace, do not expire,
// and are deleted only by Clear. They may be used from many goroutines at once.
//
// There are also reports, which instances write and all read, and claims. Both expire.
//
// Names have 1 to 64 characters of a–z 0–9 _ -. Errors about an invalid name, number or
// text wrap stint.ErrRequest.
type documents struct{ store *Store }

// Documents returns the documents of the Store's namespace, for server.Config.Documents.
func (s *Store) Documents() *documents { return &documents{s} }

// Now returns the time by the server's clock; in a Cluster, by that of one node for the
// whole namespace. After a failover, it is the clock of the new server.
func (d *documents) Now(ctx context.Context) (time.Time, error) {
	reply, err := d.store.conn.Eval(ctx, timeScript, []string{d.store.documentKey("controls")})
	if err != nil {
		return time.Time{}, fmt.Errorf("redislimit: time: %w", err)
	}
	micros, err := replied[int64]("time", reply)
	return time.UnixMicro(micros), err
}

// documentKey cannot be the key of a subject, whose tag begins with a digit or "#", nor one of
// another namespace, because no namespace contains a brace.
func (s *Store) documentKey(name string) string { return s.namespace + ":{doc:" + name + "}" }

func (s *Store) documentChannel() string { return s.namespace + ":{doc}" }

// Newest returns the number of the newest version of a document and the SHA-1 of its text,
// in hexadecimal digits. After a failover that lost versions, the SHA-1 tells versions with
// the same number apart. 0 and "": the document has no version.
func (d *documents) Newest(ctx context.Context, name string) (number int64, digest string, err error) {
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

// Read returns a version, or nil if there is none or it is no longer kept. An empty version
// is not nil.
func (d *documents) Read(ctx context.Context, name string, number int64) ([]byte, error) {
	return d.field(ctx, name, strconv.FormatInt(number, 10))
}

func (d *documents) field(ctx context.Context, name, field string) ([]byte, error) {
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

// Write adds text as the version with that number, if the newest version has the number
// before; otherwise it changes nothing and returns false. If several callers write the same
// number, one gets true. text may be any bytes, up to maxDocument. After an error that does
// not wrap stint.ErrRequest, the version may have been written.
func (d *documents) Write(ctx context.Context, name string, number int64, text []byte) (bool, error) {
	if err := checkDocument(name); err != nil {
		return false, err
	}
	if number < 1 {
		return false, fmt.Errorf("redislimit: %w: version %d: the first is 1", stint.ErrRequest, number)
	}
	if len(text) > maxDocument {
		return false, fmt.Errorf("redislimit: %w: document of %d bytes: at most %d", stint.ErrRequest, len(text), maxDocument)
	}
	key := d.store.documentKey(name)
	reply, err := d.store.conn.Eval(ctx, documentScript, []string{key}, strconv.FormatInt(number, 10),
		strconv.FormatInt(number-1, 10), strconv.FormatInt(number-keptVersions, 10), string(text), d.store.documentChannel(), name)
	if err != nil {
		return false, documentError(key, err)
	}
	written, err := replied[int64]("document", reply)
	return written == 1, err
}

// Watch calls changed, from this goroutine, soon after a document of the namespace was
// written. It also calls it each time it has connected, including the first, because
// changes may have been missed; several changes may cause one call. It uses a connection of
// its own, which it makes again whenever it is lost, and returns when ctx is done.
//
// Without the permission to subscribe, or over a Client of your own, Watch never calls
// changed and only waits for ctx. So call Newest now and then, too.
func (d *documents) Watch(ctx context.Context, changed func()) {
	d.store.conn.Watch(ctx, d.store.documentChannel(), changed)
}

const announcementLifetime = 30 * time.Second

// Announce records a text of this instance, such as the rules that it has. It returns the
// texts that instances of the namespace have announced in the last 30 seconds, by the
// server's clock: each text once, up to 100, the newest first, including this one. To keep
// a text, announce it again every few seconds.
func (d *documents) Announce(ctx context.Context, text string) ([]string, error) {
	s := d.store
	reply, err := s.conn.Eval(ctx, announceScript, []string{s.namespace + ":{announced}"}, text, strconv.FormatInt(announcementLifetime.Milliseconds(), 10))
	if err != nil {
		return nil, fmt.Errorf("redislimit: announce: %w", err)
	}
	list, err := replied[[]any]("announce", reply)
	if err != nil {
		return nil, err
	}
	all := make([]string, 0, len(list))
	for _, t := range list {
		text, _ := t.(string)
		all = append(all, text)
	}
	return all, nil
}

// replied returns a script's reply as a T, or an error.
func replied[T any](what string, reply any) (T, error) {
	v, ok := reply.(T)
	if !ok {
		return v, fmt.Errorf("redislimit: %s: the script replied %T", what, reply)
	}
	return v, nil
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
