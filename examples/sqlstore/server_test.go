package sqlstore_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/stintdev/stint/examples/sqlstore"
	"github.com/stintdev/stint/internal/await"
)

// server is a Postgres of a test, in a folder of its own, on a socket there.
type server struct {
	dir     string
	admin   *sql.DB
	schemas atomic.Int64
	stop    func()
}

// dieWithUs has a server end when the test's process dies, where a system can do that.
var dieWithUs = func(*syscall.SysProcAttr) {}

// start starts a server, which ends with the test.
func start(t testing.TB) *server {
	t.Helper()
	as := owner(t)
	dir, err := os.MkdirTemp("/tmp", "stint") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if as.Credential != nil {
		if err := os.Chown(dir, int(as.Credential.Uid), int(as.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(program(t, "initdb"), "-D", data, "-U", "stint", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	postgres := exec.Command(program(t, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300")
	dieWithUs(as)
	var said bytes.Buffer
	postgres.SysProcAttr, postgres.Dir, postgres.Stdout, postgres.Stderr = as, dir, &said, &said
	if err := postgres.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{dir: dir}
	s.stop = sync.OnceFunc(func() {
		_ = postgres.Process.Signal(syscall.SIGQUIT) // at once, and with its children
		_ = postgres.Wait()
		if t.Failed() {
			t.Logf("postgres said:\n%s", said.String())
		}
	})
	t.Cleanup(s.stop)
	s.admin = s.open(t, "public")
	await.Until(t, "postgres answers", func() bool { return s.admin.Ping() == nil })
	return s
}

// owner is whom the server runs as: it refuses to be root's.
func owner(t testing.TB) *syscall.SysProcAttr {
	as := &syscall.SysProcAttr{}
	if os.Getuid() != 0 {
		return as
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			return as
		}
	}
	t.Fatal("there is neither a user postgres nor a user nobody to run Postgres as")
	return nil
}

// program finds a program of Postgres, which Debian keeps out of PATH.
func program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(paths) > 0 {
		return paths[len(paths)-1]
	}
	const required = "STINT_REQUIRE_POSTGRES"
	if os.Getenv(required) != "" {
		t.Fatalf("%s is set, and %s of Postgres is not installed", required, name)
	}
	t.Skipf("%s of Postgres is not installed: apt-get install postgresql", name)
	return ""
}

// schema makes an empty schema, and returns its name.
func (s *server) schema(t testing.TB) string {
	t.Helper()
	name := fmt.Sprint("s", s.schemas.Add(1))
	if _, err := s.admin.Exec("CREATE SCHEMA " + name); err != nil {
		t.Fatal(err)
	}
	return name
}

func (s *server) open(t testing.TB, schema string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", fmt.Sprintf("host=%s user=stint dbname=postgres search_path=%s", s.dir, schema))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(32)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *server) rows(t testing.TB, schema string) *sqlstore.Rows {
	t.Helper()
	rows, err := sqlstore.New(t.Context(), s.open(t, schema))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
