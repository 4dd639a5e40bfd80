package conn

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		address         string
		hosts           []string
		user, password  string
		db              int
		master          string
		namespace       string
		tls, singleOnly bool
	}{
		{address: "redis://localhost", hosts: []string{"localhost:6379"}, singleOnly: true},
		{address: "redis://localhost:7000/3", hosts: []string{"localhost:7000"}, db: 3, singleOnly: true},
		{address: "redis://[::1]:7000", hosts: []string{"[::1]:7000"}, singleOnly: true},
		{address: "redis://[::1]", hosts: []string{"[::1]:6379"}, singleOnly: true},
		{address: "redis://:p%40ss@h?namespace=n&db=2", hosts: []string{"h:6379"}, password: "p@ss", db: 2, namespace: "n", singleOnly: true},
		{address: "rediss://u:p@h", hosts: []string{"h:6379"}, user: "u", password: "p", tls: true, singleOnly: true},
		{address: "redis+cluster://u:p@h1:1,h2,h3:3", hosts: []string{"h1:1", "h2:6379", "h3:3"}, user: "u", password: "p"},
		{address: "rediss+cluster://h1", hosts: []string{"h1:6379"}, tls: true},
		{address: "redis+sentinel://h1,h2:5/mymaster/4", hosts: []string{"h1:26379", "h2:5"}, master: "mymaster", db: 4},
		{address: "unix:///run/redis.sock?db=1", hosts: []string{"/run/redis.sock"}, db: 1, singleOnly: true},
		{address: "unix://u:p@/run/redis.sock", hosts: []string{"/run/redis.sock"}, user: "u", password: "p", singleOnly: true},
	} {
		target, err := Parse(c.address)
		if err != nil {
			t.Errorf("%s: %v", c.address, err)
			continue
		}
		o := target.option
		got := []any{o.InitAddress, o.Username, o.Password, o.SelectDB, o.Sentinel.MasterSet, target.Namespace, o.TLSConfig != nil, o.ForceSingleClient}
		want := []any{c.hosts, c.user, c.password, c.db, c.master, c.namespace, c.tls, c.singleOnly}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", c.address, got, want)
		}
		if !o.DisableRetry {
			t.Errorf("%s: charges would be sent again", c.address)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"":                                          "must be a URL",
		"localhost:6379":                            "must be a URL",
		"http://h":                                  `unknown scheme "http"`,
		"redis://":                                  "no host",
		"redis://a,b":                               "several hosts",
		"redis://h:0":                               "a port must be a number",
		"rediss://h?verify=none":                    `verify "none": want chain`,
		"redis://h?verify=chain":                    "need an encrypted connection",
		"rediss://h?verify=chain&server_name=n":     "both verify=chain and server_name",
		"redis://h:99999":                           "a port must be a number",
		"redis://h:x":                               "a port must be a number",
		"redis://u:secret":                          "a password ends with @",
		"redis://h/x":                               `database "x"`,
		"redis://h/-1":                              `database "-1"`,
		"redis://h?database=1":                      `unknown parameter "database"`,
		"redis://h?db=1&db=2":                       "parameter db must be given once",
		"redis://h?db=":                             "parameter db must be given once",
		"redis://h?timeout=2":                       `timeout "2": must be a duration from 10ms to 1m`,
		"redis://h?timeout=1ms":                     "from 10ms to 1m",
		"redis://h?timeout=-1s":                     "from 10ms to 1m",
		"redis://h?timeout=2m":                      "from 10ms to 1m",
		"redis://h?connections=3":                   `connections "3": must be 1, 2, 4, 8, … or 256`,
		"redis://h?connections=0":                   "must be 1, 2, 4",
		"redis://h?connections=512":                 "must be 1, 2, 4",
		"redis://h?connections=many":                "must be 1, 2, 4",
		"redis://h?ca=x":                            "write rediss in place of redis",
		"redis://h?sentinel_user=x":                 "sentinel_user is only for redis+sentinel://",
		"redis://u:secret@h?password_file=" + empty: "both a password and a password_file",
		"redis://h?password_file=" + empty:          "empty.pem is empty",
		"redis://h?password_file=/nowhere":          "password_file: stat /nowhere",
		"redis://h?password_file=/dev/null":         "is not a regular file",
		"redis+sentinel://h/m?sentinel_password=secret&sentinel_password_file=" + empty: "both a sentinel_password and a sentinel_password_file",
		"redis://h?%zz":                  "parameters cannot be read",
		"redis://:secret%zz@h":           "user or password cannot be read",
		"redis://u:se?secret@h:6379":     "escape ? and @ in the password",
		"redis://u:p?db=secret@h:6379":   "escape ? and @ in the password",
		"redis+cluster://h/1":            "a Cluster has only database 0",
		"redis+cluster://h1,,h2":         "empty host",
		"redis+sentinel://h":             "needs the master's name",
		"unix://":                        "needs the path of a socket",
		"unix://host/path":               "needs the path of a socket",
		"rediss://h?cert=x":              "cert and key must be given together",
		"rediss://h?ca=/nowhere":         "ca: stat /nowhere",
		"rediss://h?ca=" + empty:         "no certificate in",
		"rediss://h?cert=/no&key=/where": "cert and key: stat /no",
	} {
		target, err := Parse(address)
		if err == nil {
			_, err = New(target, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the password: %v", address, err)
		}
	}
}

// FuzzAddress holds that no address crashes, and that no error tells its password.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"redis://u:secret@h:1/2?db=3", "redis+cluster://h,[::1]:7", "rediss+sentinel://:secret@a,b/m/1?sentinel_user=x", "unix://u@/x?namespace=y", "rediss://h?timeout=1s&connections=4&password_file=/p&ca=/c", "redis://secret"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		to, err := Parse(address)
		if err != nil {
			return
		}
		if o := to.option; len(o.InitAddress) == 0 || !o.DisableRetry || o.ConnWriteTimeout <= 0 || o.Dialer.Timeout <= 0 {
			t.Fatalf("%q: %+v", address, o)
		}
	})
}
