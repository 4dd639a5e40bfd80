package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// stateDir is a directory of one instance, in which it keeps a file.
type stateDir struct {
	root *os.Root
	lock *os.File // nil: it could not be locked, because the disk fails
	name string   // of the file
}

// stateHead begins a state file; its number is the format's. The SHA-256 of the rest follows, in hexadecimal
// digits, and the end of the line.
const stateHead = stateName + "1 "

const stateName = "stint state "

// maxState is the size of the largest state file, in bytes: two documents of maxDocument and
// the pending changes.
const maxState = 32 << 20

var (
	// errStateUsed means that another process uses the directory.
	errStateUsed = errors.New("another instance uses it: each needs a directory of its own")
	// errNoState means that there is no state file.
	errNoState = errors.New("there is no state file")
)

// openStateDir opens or makes the directory for the state file of the fleet that of identifies. An error is a
// mistake in the use of the directory. failed is an error of the disk: then the state can at best be read.
func openStateDir(path string, of string) (d *stateDir, failed, err error) {
	if !filepath.IsAbs(path) {
		return nil, nil, fmt.Errorf("%s: want an absolute path: a relative one depends on where the program is started", path)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 && runtime.GOOS != "windows" {
		return nil, nil, fmt.Errorf("%s: with mode %04o others may write there: chmod 700 it, or name a directory in it that does not exist yet", path, mode)
	}
	if !isOurs(info) {
		return nil, nil, fmt.Errorf("%s: another user owns it, and may write there: chown it, or name a directory in it that does not exist yet", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256([]byte(of))
	d = &stateDir{root: root, name: "state-" + hex.EncodeToString(sum[:6])}
	d.lock, err = root.OpenFile("lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = lockFile(d.lock)
	}
	switch {
	case errors.Is(err, errStateUsed), errors.Is(err, fs.ErrPermission):
		d.close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	case err != nil:
		return d, fmt.Errorf("%s: %w", path, err), nil
	}
	return d, nil, nil
}

// close releases the directory for others.
func (d *stateDir) close() {
	if d.lock != nil {
		_ = d.lock.Close()
	}
	_ = d.root.Close()
}

// read returns the body last written; errNoState if there is none.
func (d *stateDir) read() ([]byte, error) {
	info, err := d.root.Lstat(d.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errNoState
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is not a regular file", d.name)
	case info.Mode().Perm()&0o022 != 0 && runtime.GOOS != "windows":
		return nil, fmt.Errorf("%s: others may write to it", d.name)
	case !isOurs(info):
		return nil, fmt.Errorf("%s: another user owns it, and may write to it", d.name)
	case info.Size() > maxState:
		return nil, fmt.Errorf("%s: larger than %d MiB", d.name, maxState>>20)
	}
	f, err := d.root.Open(d.name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return nil, err
	}
	head, body, ok := bytes.Cut(data, []byte("\n"))
	if bytes.HasPrefix(head, []byte(stateName)) && !bytes.HasPrefix(head, []byte(stateHead)) {
		return nil, fmt.Errorf("%s: another version of the program wrote it, in the format %.20q", d.name, head[len(stateName):])
	}
	if sum := sha256.Sum256(body); !ok || string(head) != stateHead+hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("%s: it is damaged: its checksum does not match", d.name)
	}
	return body, nil
}

// setAside renames an unreadable file, so that an operator can look at it.
func (d *stateDir) setAside() error { return d.root.Rename(d.name, d.name+".bad") }

// write replaces the file as a whole, or leaves it unchanged. It returns when the disk has it.
func (d *stateDir) write(body []byte) error {
	if d.lock == nil {
		return errors.New("the directory could not be locked at the start")
	}
	if len(body) > maxState-1024 {
		return fmt.Errorf("%d bytes: at most %d MiB", len(body), maxState>>20)
	}
	sum := sha256.Sum256(body)
	fresh := d.name + ".new"
	if err := d.root.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(stateHead + hex.EncodeToString(sum[:]) + "\n")
	if err == nil {
		_, err = f.Write(body)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.root.Rename(fresh, d.name)
	}
	if err != nil {
		_ = d.root.Remove(fresh)
		return err
	}
	return d.sync()
}

// sync makes the disk store the list of files.
func (d *stateDir) sync() error {
	if runtime.GOOS == "windows" { // Windows cannot do that
		return nil
	}
	dir, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (d *stateDir) path() string { return filepath.Join(d.root.Name(), d.name) }
