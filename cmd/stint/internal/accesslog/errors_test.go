package accesslog

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

var when = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func itoa(n uintptr) string { return strconv.Itoa(int(n)) }

func TestErrors(t *testing.T) {
	good := combinedLine(1, when) + "\n"
	for name, test := range map[string]struct {
		o    Options
		text string
		want string
	}{
		"unknown":          {Options{}, "what is this " + strings.Repeat("x", 200) + "\n" + good + "no\n", `its form is not recognised: the first line is "what is this ` + strings.Repeat("x", 107) + `"...; --format or --fields says what it is`},
		"JSON":             {Options{}, `{"a":1}` + "\n", `its form is not recognised: the first line is "{\"a\":1}"; --format or --fields`},
		"no such form":     {Options{Format: "comon"}, good, `format "comon" is unknown: did you mean common?: want one of stint, `},
		"another form":     {Options{Format: "haproxy"}, good, `no line can be read as haproxy: the first is "192.0.2.1 - - `},
		"no time":          {Options{Format: `$remote_addr "$request"`}, good, "the format has no time"},
		"no request":       {Options{Format: `%t %h`}, "[10/Oct/2000:13:55:36 +0000] 192.0.2.7", "it has neither a request nor an operation"},
		"nothing between":  {Options{Format: `[$time_local] $status$host`}, good, "nothing between $status and $host"},
		"unknown letter":   {Options{Format: `%t %Y`}, good, "the format has %Y, which is unknown"},
		"half":             {Options{Format: `%t %{Referer`}, good, `no } after "%{Referer"`},
		"the end":          {Options{Format: `%t %>`}, good, `ends within "%>"`},
		"time layout":      {Options{Format: `%{%A}t %r`}, good, "%{%A}t: want sec, msec, usec"},
		"escape":           {Options{Format: `log_format a escape=no '$msec $request';`}, good, "escape=no: want default, json or none"},
		"no format":        {Options{Format: `log_format $msec`}, good, "log_format needs a name and a format"},
		"LogFormat":        {Options{Format: `LogFormat common`}, good, "there is no format in quotes"},
		"Envoy":            {Options{Format: `%START_TIME% %REQ(:PATH`}, good, "the format has no % that ends"},
		"field":            {Options{Fields: "time=$.t,pth=$.p"}, good, `fields: "pth" is unknown: did you mean path?: want one of cost, host, ip,`},
		"no place":         {Options{Fields: "time=$.t,path"}, good, `fields: "path": want name=place`},
		"no time in it":    {Options{Fields: "path=$.p"}, good, "fields: there is no time, as in time=$.ts"},
		"both":             {Options{Fields: "time=$.t,path=p"}, good, `fields are either all of JSON, as $.name, or all columns: not "$.t" and "p"`},
		"twice":            {Options{Fields: "time=$.t,path=$.t"}, good, `fields: "$.t" is there twice`},
		"a bad place":      {Options{Fields: "time=$t,path=$.p"}, good, `fields: "$t": want a place in JSON, as $.request.uri`},
		"a bad index":      {Options{Fields: "time=$.t[x],path=$.p"}, good, `want an index as [0]`},
		"the whole":        {Options{Fields: "time=$,path=$.p"}, good, `is the whole line`},
		"a form of others": {Options{Format: "combined", Fields: "time=$.t,path=$.p"}, good, `not of format "combined"`},
		"no such column":   {Options{Fields: "time=when,path=url"}, "when,uri\n", `its first line must name its columns, the time among them: it is "when,uri"`},
		"a bad cost":       {Options{Fields: "time=$.t,operation=$.o,cost=$.c"}, `{"t":1,"o":"a","c":1.5}`, "the cost is not a whole number from 0"},
		"disorder":         {Options{Disorder: -1}, good, "the disorder of a log is at least 0, not -1ns"},
	} {
		_, err := Open([]string{write(t, "access.log", test.text)}, test.o)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v\nwant %s", name, err, test.want)
		}
	}
	missing := filepath.Join(t.TempDir(), "no")
	if _, err := Open([]string{missing}, Options{}); !os.IsNotExist(err) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Open([]string{t.TempDir()}, Options{}); err == nil {
		t.Error("an empty directory is no error")
	}
	dir := filepath.Dir(write(t, "notes", "no log\n"))
	if _, err := Open([]string{dir}, Options{}); err == nil || !strings.Contains(err.Error(), "notes: its form is not recognised") {
		t.Errorf("a directory without a log: %v", err)
	}
}

// What all files have is what each has.
func TestHasOfSeveral(t *testing.T) {
	json := `{"ts":1646861401.5,"msg":"handled request","request":{"client_ip":"192.0.2.7","method":"GET","host":"a","uri":"/","headers":{}},"duration":0.5,"status":502}`
	l := openLog(t, Options{}, write(t, "a", combinedLine(1, when)), write(t, "b", json), write(t, "c", ""))
	want := Fields{Client: true, Method: true, Path: true, Query: true, Status: true, Headers: []string{"Referer", "User-Agent"}}
	if got := l.Has(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	hidden := Fields{AllHeadersBut: []string{"Cookie"}}
	for name, want := range map[string]bool{"Cookie": false, "Accept": true} {
		if hidden.Header(name) != want {
			t.Errorf("%s is logged: %t", name, !want)
		}
	}
	if got := hidden.and(Fields{AllHeadersBut: []string{"A"}}); !reflect.DeepEqual(got.AllHeadersBut, []string{"A", "Cookie"}) {
		t.Errorf("%+v", got)
	}
}

func TestTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	for text, want := range map[string]string{
		"2026-03-01T12:00:00Z": "2026-03-01T12:00:00Z", "2026-03-01T12:00:00.1234567+05:30": "2026-03-01T06:30:00.123456Z",
		"2026-03-01 12:00:00,5": "2026-03-01T11:00:00.5Z", "2026-07-01 12:00:00": "2026-07-01T10:00:00Z", "2026-03-01T12:00:00 +0100": "2026-03-01T11:00:00Z",
		"2026-03-01 12:00:00 UTC": "2026-03-01T12:00:00Z", "2024-02-29T00:00:00-01": "2024-02-29T01:00:00Z",
		"29/Feb/2024:00:00:00 +0000": "2024-02-29T00:00:00Z", "31/Dec/1999:23:59:60 +0000": "2000-01-01T00:00:00Z",
		"1772366400": "2026-03-01T12:00:00Z", "1772366400.5": "2026-03-01T12:00:00.5Z", "1772366400500": "2026-03-01T12:00:00.5Z", "1772366400500.25": "2026-03-01T12:00:00.50025Z",
		"1772366400500000": "2026-03-01T12:00:00.5Z", "1772366400500000000": "2026-03-01T12:00:00.5Z", "1.7723664005e9": "2026-03-01T12:00:00.5Z", "1.7723664005E12": "2026-03-01T12:00:00.5Z",
		"Mar  1 12:00:00": "2026-03-01T11:00:00Z", "Dec 31 12:00:00": "2025-12-31T11:00:00Z", "Feb 29 12:00:00": "2024-02-29T11:00:00Z",
		"2026-02-29T00:00:00Z": "", "2026-13-01T00:00:00Z": "", "2026-00-01T00:00:00Z": "", "2026-01-01T24:00:00Z": "", "2026-01-01T00:00:00.Z": "", "2026-01-01T00:00:00+24:00": "", "2026-01-01T00:00:00x": "",
		"": "", "-": "", "-5": "", "1.": "", ".5": "", "1e400": "", "NaN": "", "+Inf": "", "0x1p4": "", "99999999999999999999": "", "xx/Feb/2024:00:00:00 +0000": "", "29/Feb/2023:00:00:00 +0000": "",
		"29-Feb-2024:00:00:00 +0000": "", "30/Feb/2024 00:00:00 +0000": "", "1969-12-31T23:59:59Z": "", "Mar 32 12:00:00": "",
	} {
		c := clock{zone: berlin, latest: at("2026-03-02T00:00:00Z")}
		for range 2 { // the second is remembered
			got, ok := c.parse(text)
			if ok != (want != "") || ok && got != at(want) {
				t.Errorf("%q: %v %t, want %s", text, time.UnixMicro(got).UTC(), ok, want)
			}
		}
	}
	// As time.Parse has it, through all days of some years and the changes of a zone.
	c := clock{zone: berlin}
	for when := time.Date(1999, 1, 1, 0, 30, 0, 0, time.UTC); when.Year() < 2005; when = when.Add(7 * time.Hour) {
		text := when.Format("2006-01-02 15:04:05")
		want, err := time.ParseInLocation("2006-01-02 15:04:05", text, berlin)
		if got, ok := c.parse(text); err != nil || !ok || got != want.UnixMicro() {
			t.Fatalf("%s: %v, want %v", text, time.UnixMicro(got), want)
		}
	}
}
