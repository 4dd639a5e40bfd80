package limittext_test

import (
	"archive/zip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/limittext"
)

// Each time zone of the database is found by its name in any case.
func TestZoneNames(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Skip("Go has no database of time zones: ", err)
	}
	defer database.Close()
	zones := 0
	for _, f := range database.File {
		if f.FileInfo().IsDir() {
			continue
		}
		zones++
		for _, text := range []string{f.Name, strings.ToLower(f.Name), strings.ToUpper(f.Name), strings.ReplaceAll(f.Name, "_", " ")} {
			// Of two that might be meant, only one exists.
			names := slices.DeleteFunc(limittext.ZoneNames(text), func(name string) bool { _, err := time.LoadLocation(name); return err != nil })
			if len(names) == 0 || names[0] != f.Name {
				t.Errorf("%s is looked for as %q", text, names)
			}
		}
	}
	if zones < 400 {
		t.Errorf("only %d zones", zones)
	}
}

func TestMonthDay(t *testing.T) {
	for text, want := range map[string]string{
		"04-06": "04-06", "4-6": "04-06", "Apr 6": "04-06", "6 April": "04-06", "sept-30": "09-30", "02-29": "02-29",
		"": "", "-": "", "4": "", "0-6": "", "4-0": "", "4-31": "", "02-30": "", "ap-6": "", "Aprils-6": "", "apr-may": "", "4-6-7": "", "4/6": "", "4-x": "", "99999999999-1": "",
	} {
		got := ""
		if month, day, ok := limittext.MonthDay(text); ok {
			got = time.Date(2000, month, day, 0, 0, 0, 0, time.UTC).Format("01-02")
		}
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestWeekday(t *testing.T) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		for n := 3; n <= len(day.String()); n++ {
			for _, text := range []string{day.String()[:n], strings.ToUpper(day.String()[:n])} {
				if got, ok := limittext.Weekday(text); !ok || got != day {
					t.Errorf("%s is %s, %t", text, got, ok)
				}
			}
		}
	}
	for _, text := range []string{"", "su", "sundays", "moon", "0", "7"} {
		if day, ok := limittext.Weekday(text); ok {
			t.Errorf("%q is %s", text, day)
		}
	}
}
