package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	if name := os.Getenv(siteVariable); name != "" {
		if err := serveSite(name); err != nil {
			log.Fatal(err)
		}
		return
	}
	if text := os.Getenv(workerVariable); text != "" {
		if err := work(text); err != nil {
			log.Fatal(err)
		}
		return
	}
	short := flag.Bool("short", false, "one tiny round, to see that all works")
	rounds := flag.Int("rounds", 10, "how many rounds")
	only := flag.String("only", "", "measure only tables whose name (of waiting: title) starts so")
	out := flag.String("out", "../docs", "the directory to write to")
	waiting := flag.Bool("waiting", false, "measure waiting instead of all other tables")
	many := flag.Bool("rules", false, "measure files with many rules instead of all other tables")
	from := flag.String("from", "", "measure nothing: write the page and the pictures of these raw figures")
	whole := flag.Bool("tables", false, "print all tables, too")
	flag.Parse()
	if *short {
		*rounds = 1
	}
	if *waiting {
		if err := benchWaiting(*short, *rounds, *only, *out, os.Stderr); err != nil {
			log.Fatal(err)
		}
		return
	}
	if *many {
		if err := benchRules(*short, *rounds, *out, os.Stderr); err != nil {
			log.Fatal(err)
		}
		return
	}
	r, err := readRun(*from)
	if *from == "" {
		r, err = bench(*short, *rounds, *only, os.Stderr)
	}
	if err == nil {
		err = r.write(*out)
	}
	if err != nil {
		log.Fatal(err)
	}
	if *whole {
		r.document(os.Stdout)
	}
}

func bench(short bool, rounds int, only string, progress io.Writer) (*run, error) {
	r := &run{about: about{Date: time.Now(), Rounds: rounds}}
	redis, err := startRedis()
	if err != nil {
		return nil, err
	}
	defer redis.stop()
	stopWith(redis)
	r.Machine = thisMachine(redis, limiters)
	if r.checked, err = check(short, redis); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "%s: checked\n", time.Since(r.Date).Round(time.Second))
	all := tables(short)
	for i := range all {
		t := &all[i]
		if !strings.HasPrefix(t.name, only) {
			continue
		}
		m, err := measure(t, redis, rounds, short)
		if err != nil {
			return nil, err
		}
		r.tables = append(r.tables, m)
		fmt.Fprintf(progress, "%s: %s\n", time.Since(r.Date).Round(time.Second), t.name)
	}
	r.Took, r.Machine.LoadAfter = time.Since(r.Date), load()
	return r, nil
}

// stopWith ends the server at a signal; workers end with their standard input.
func stopWith(redis *redisServer) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		redis.stop()
		os.Exit(1)
	}()
}

func (r *run) write(dir string) error {
	files := map[string][]byte{}
	var b bytes.Buffer
	r.page(&b)
	files["benchmarks.md"] = bytes.Clone(b.Bytes())
	for group, title := range groupTitles {
		var tables []*measured
		for _, m := range r.tables {
			if m.table.group == group {
				tables = append(tables, m)
			}
		}
		if len(tables) > 0 && group != pauseGroup {
			b.Reset()
			plot(&b, title, tables)
			files["benchmarks-"+group+".svg"] = bytes.Clone(b.Bytes())
		}
	}
	b.Reset()
	if err := r.raw(&b); err != nil {
		return err
	}
	files["benchmarks.raw.jsonl"] = b.Bytes()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
