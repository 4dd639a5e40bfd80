package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// checkedBy asks for a check and returns its status, and who decided.
func checkedBy(t *testing.T, s *served, body string) (status int, by string) {
	t.Helper()
	resp, err := http.Post(s.check+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	switch text := bodyOf(t, resp); {
	case strings.Contains(text, `"by":"local"`):
		return resp.StatusCode, "local"
	case strings.Contains(text, `"by":"policy"`):
		return resp.StatusCode, "policy"
	}
	return resp.StatusCode, "store"
}

// A name that leads to another primary is followed, though the one that was demoted keeps
// its connections and answers on them: by what is decided, and by what is heard.
func TestAttackDemotedPrimary(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t), redistest.Start(t)
	name := redistest.StartProxy(t, first.Addr)
	s := serving(t, "--limit", "1000 per 1h", "--store", name.URL())
	const ann = `{"client":"192.0.2.1"}`
	await.Until(t, "the store decides", func() bool { _, by := checkedBy(t, s, ann); return by == "store" })

	demote(t, first, second)
	name.Point(second.Addr)
	began := time.Now()
	await.Until(t, "a check is decided without the store", func() bool { _, by := checkedBy(t, s, ann); return by == "local" })
	await.Until(t, "the new primary decides", func() bool { _, by := checkedBy(t, s, ann); return by == "store" })
	t.Logf("the new primary decides after %s", time.Since(began))
	if keys, err := second.Do(t, "KEYS", "stint:{[0-9]*").AsStrSlice(); err != nil || len(keys) == 0 {
		t.Errorf("the new primary has counted nothing: %v, %v", keys, err)
	}
	await.Until(t, "it listens there", func() bool { return listeners(t, second) > 0 })
	if text := s.log.String(); !strings.Contains(text, "READONLY") || !strings.Contains(text, "connections were replaced") {
		t.Errorf("the log does not tell:\n%s", text)
	}
}

// demote makes a primary the replica of another one.
func demote(t *testing.T, was, now *redistest.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(now.Addr)
	if err != nil {
		t.Fatal(err)
	}
	was.Do(t, "REPLICAOF", host, port)
}

// listeners is how many hear on a server what is undone.
func listeners(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	reply, err := s.Do(t, "PUBSUB", "NUMSUB", "stint:{invalidated}").ToArray()
	if err != nil || len(reply) != 2 {
		t.Fatal(fmt.Sprint(reply, err))
	}
	n, err := reply[1].AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A password and certificates that are changed in their files are taken without a check
// that the store does not decide; those that Redis refuses are told, and change nothing,
// though connections are made again. What expires soon is told.
func TestAttackCredentialsRotate(t *testing.T) {
	t.Parallel()
	ca, cert, key := redistest.Certificate(t)
	redis := redistest.Start(t, "--tls-port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca,
		"--user", "app", "on", ">first-secret", "~*", "&*", "+@all")
	address := redis.ListenTLS(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		put(t, file(name), string(text))
	}
	write("ca", ca)
	write("cert", cert)
	write("key", key)
	put(t, file("password"), "first-secret\n")
	put(t, file("stint.yaml"), "server: {decision_timeout: 5s}\nrules: [{name: all, key: client.ip, limits: [1000000 per 1h]}]\n")
	s := serving(t, "--config", file("stint.yaml"), "--store", "rediss://app@"+address+"?server_name=localhost&password_file="+file("password")+
		"&ca="+file("ca")+"&cert="+file("cert")+"&key="+file("key"))
	stays := func(when string) {
		t.Helper()
		for range 50 {
			if status, by := checkedBy(t, s, `{"client":"192.0.2.1"}`); status != 200 || by != "store" {
				t.Fatalf("%s: %d, by %s", when, status, by)
			}
		}
	}
	connections := func() (ids string) {
		text, err := redis.Do(t, "CLIENT", "LIST").ToString()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, "user=app") && !strings.Contains(line, "sub=1") {
				ids += line[:strings.Index(line, " ")] + " "
			}
		}
		return ids
	}
	tells := func(text string) func() bool {
		return func() bool { stays(text); return strings.Contains(s.log.String(), text) }
	}
	stays("at first")
	await.Until(t, "it tells of expiry", tells("expires soon"))
	metric := func(of string) bool {
		return strings.Contains(metrics(t, s), `stint_certificate_expiry_timestamp_seconds{listener="store `+of+`"}`)
	}
	await.Until(t, "the metric tells of expiry", func() bool { return metric("client") && metric("ca") && metric("server") })

	// A password that Redis does not know, and a certificate that it does not trust.
	do := calling(s.admin)
	otherCA, other, otherKey := redistest.Certificate(t)
	for of, wrong := range map[string]func(){
		"password":    func() { put(t, file("password"), "wrong-secret\n") },
		"certificate": func() { write("cert", other); write("key", otherKey) },
		"authority":   func() { write("ca", otherCA) },
	} {
		wrong()
		await.Until(t, "it tells that the "+of+" is refused", func() bool {
			stays("with a wrong " + of)
			_, text := do("status")
			return strings.Contains(text, "ST016")
		})
		redis.Do(t, "CLIENT", "KILL", "USER", "app")
		await.Until(t, "all its connections are made again", func() bool {
			for range 50 { // by whichever
				if _, by := checkedBy(t, s, `{"client":"192.0.2.1"}`); by != "store" {
					return false
				}
			}
			return true
		})
		stays("connected again with a wrong " + of)
		put(t, file("password"), "first-secret\n")
		write("ca", ca)
		write("cert", cert)
		write("key", key)
		await.Until(t, "all is well", func() bool { _, text := do("status"); return !strings.Contains(text, "ST016") })
	}

	before := connections()
	if before == "" {
		t.Fatal("it has no connections")
	}
	redis.Do(t, "ACL", "SETUSER", "app", ">second-secret")
	put(t, file("password"), "second-secret\n")
	await.Until(t, "all connections are new", func() bool {
		stays("while the password rotates")
		now := connections()
		for id := range strings.FieldsSeq(before) {
			if strings.Contains(now+" ", id+" ") {
				return false
			}
		}
		return now != ""
	})
	redis.Do(t, "ACL", "SETUSER", "app", "<first-secret")
	redis.Do(t, "CLIENT", "KILL", "USER", "app")
	await.Until(t, "it connects by the new one", func() bool { _, by := checkedBy(t, s, `{"client":"192.0.2.1"}`); return by == "store" })
	for _, secret := range []string{"first-secret", "second-secret", "wrong-secret"} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log tells the password:\n%s", s.log)
		}
	}
}

// What another instance undoes is not missed for long by one that listens where nothing is
// to be heard any more: at a connection that has frozen, at a node that was removed from
// its Cluster, at a primary that Sentinels have demoted. The last two take a while, and are
// part of the long form.
func TestAttackMissedInvalidation(t *testing.T) {
	t.Parallel()
	t.Run("frozen connection", func(t *testing.T) {
		redis := redistest.Start(t)
		way := redistest.StartProxy(t, redis.Addr)
		name := redistest.StartProxy(t, way.Addr)
		deafens(t, name.URL()+"?timeout=1m", redis.URL(), func() {
			way.Set(redistest.Toxic{Deafen: true})
			name.Point(redis.Addr)
		})
	})
	if attack.Time(t, 0) == 0 {
		return
	}
	t.Run("removed node", func(t *testing.T) {
		c := redistest.StartReplicated(t, 3, 1)
		deafens(t, c.URL(), c.URL(), func() {
			for _, s := range c.All() {
				if listeners(t, s) > 0 {
					c.Remove(t, s)
					return
				}
			}
		})
	})
	t.Run("planned failover", func(t *testing.T) {
		w := redistest.StartWatched(t, 1, 1)
		deafens(t, w.URL(), w.URL(), func() { w.Failover(t) })
	})
}

// deafens has two instances remember a refusal each, brings trouble upon them, and resets
// at the other one what each has refused.
func deafens(t *testing.T, here, there string, trouble func()) {
	file := configured(t, "server: {decision_timeout: 5s}\nrules: [{name: default, key: client.ip, limits: [1 per 1h]}]\n")
	all := []*served{serving(t, "--config", file, "--store", here), serving(t, "--config", file, "--store", there)}
	body := func(i int) string { return fmt.Sprintf(`{"client":"192.0.2.%d"}`, i+1) }
	for i, s := range all {
		await.Until(t, "it hears", func() bool {
			want(t, calling(s.admin), 0, nil, "status")
			return strings.Contains(metrics(t, s), "stint_denials_listening 1")
		})
		await.Until(t, "it remembers a refusal", func() bool {
			checkedBy(t, s, body(i))
			return !strings.Contains(metrics(t, s), "stint_denials_remembered_total 0\n")
		})
	}
	trouble()
	began := time.Now()
	for i := range all {
		await.Until(t, "the other one resets", func() bool {
			code, _ := calling(all[1-i].admin)("key", "reset", "--rule", "default", "--key", fmt.Sprintf("192.0.2.%d", i+1))
			return code == 0
		})
	}
	for i, s := range all {
		await.Until(t, "it is allowed again", func() bool { status, _ := checkedBy(t, s, body(i)); return status == 200 })
		t.Logf("instance %d allows again after %s", i, time.Since(began))
	}
}

// A Cluster that has lost a master decides about the keys of all others, every time; only
// those of the dead one are decided without it, until it is back.
func TestAttackClusterDeadMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartReplicated(t, 3, 0)
	for _, s := range c.Masters {
		s.Do(t, "CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	file := configured(t, "server: {decision_timeout: 500ms}\nrules: [{name: all, key: client.ip, limits: [1000000 per 1h]}]\n")
	s := serving(t, "--config", file, "--store", c.URL())
	clients := map[int][]string{} // of each master
	for i := 1; len(clients[0]) < 5 || len(clients[1]) < 5 || len(clients[2]) < 5; i++ {
		ip := fmt.Sprintf("192.0.2.%d", i)
		owner := c.Owner(c.Slot(t, fmt.Sprintf("stint:{%d:%s}", len(ip), ip)))
		clients[owner] = append(clients[owner], ip)
	}
	decided := func(owner int) (byStore, all int) {
		for _, ip := range clients[owner] {
			all++
			if _, by := checkedBy(t, s, `{"client":"`+ip+`"}`); by == "store" {
				byStore++
			}
		}
		return byStore, all
	}
	allBy := func(owner int) func() bool {
		return func() bool { n, all := decided(owner); return n == all }
	}
	for owner := range 3 {
		await.Until(t, "the store decides", allBy(owner))
	}
	const dead = 1
	c.Masters[dead].Kill()
	await.Until(t, "the dead one is not asked", func() bool {
		n, _ := decided(dead)
		return n == 0 && strings.Contains(metrics(t, s), `stint_breaker_state{state="partly open"} 1`)
	})
	asked, living := 0, 0
	for end := time.Now().Add(attack.Time(t, time.Second/2)); time.Now().Before(end); {
		for owner := range 3 {
			n, all := decided(owner)
			if owner == dead {
				continue
			}
			living, asked = living+n, asked+all
		}
	}
	if living != asked {
		t.Errorf("of the living masters' keys, the store decided %d of %d", living, asked)
	}
	t.Logf("of the living masters' keys, the store decided %d of %d", living, asked)
	if code, text := calling(s.admin)("status"); code != 0 || !strings.Contains(text, "partly open") {
		t.Errorf("status: exit %d\n%s", code, text)
	}
	if resp, text := roundTrip(t, "GET", s.check+"/readyz", ""); resp.StatusCode != 200 || text != "ready, without a part of the store\n" {
		t.Errorf("readyz: %s %q", resp.Status, text)
	}
	c.Masters[dead].Begin(t)
	for owner := range 3 {
		await.Until(t, "the store decides again", allBy(owner))
	}
	await.Until(t, "all are asked", func() bool { return strings.Contains(metrics(t, s), `stint_breaker_state{state="closed"} 1`) })
}
