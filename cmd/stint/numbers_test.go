package main

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server/adminapi"
)

// severalOfOne is a plural after the number 1, such as "1 rules", or a singular after another.
var severalOfOne = regexp.MustCompile(`(?:^|[^\w.,:/-])(1 (?:rules|limits|requests|instances|violations|bans|webhooks|holds|warnings|entries|keys|times|files|more \w+s)|(?:0|2|1000) (?:rule|limit|request|instance|violation|ban|webhook|hold|warning|entry|key|time|file))(?:[^\w/]|$)`)

// What the commands print reads well whatever the numbers of the API are.
func TestNumbersInSentences(t *testing.T) {
	said := 0
	for _, n := range []int64{0, 1, 2, 1000} {
		for name, text := range map[string]string{
			"alerts": printed(n, printAlerts), "alert test": printed(n, printAlertTest), "audit": printed(n, printAudit), "bans": printed(n, printBans), "lifted": printed(n, printLifted),
			"key": printed(n, printKey), "released": printed(n, printReleased), "offenders": printed(n, printOffenders), "history": printed(n, printHistory), "overrides": printed(n, printOverrides),
			"preview": printed(n, printPreview), "rules": printed(n, printRules), "source": printed(n, printSource), "reach": printed(n, printReach), "silences": printed(n, printSilences),
			"status": printed(n, printStatus), "switches": printed(n, printSwitches), "versions": printed(n, printVersions), "top": printed(n, func(w io.Writer, now adminapi.Live) {
				fmt.Fprint(w, strings.Join((&topView{now: &now}).summary(), "\n"))
			}),
		} {
			if wrong := severalOfOne.FindString(text); wrong != "" {
				t.Errorf("%s: %q in\n%s", name, wrong, text)
			}
			said += strings.Count(text, fmt.Sprint(n, " "))
		}
	}
	if said < 40 {
		t.Errorf("only %d numbers were printed before a word", said)
	}
}

// printed is what print writes of a value in which each number is n, and of each list an item.
func printed[T any](n int64, print func(io.Writer, T)) string {
	var of T
	fill(reflect.ValueOf(&of).Elem(), n)
	var b strings.Builder
	print(&b, of)
	return b.String()
}

func fill(v reflect.Value, n int64) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.SetMapIndex(key, value)
	case reflect.Int, reflect.Int64:
		v.SetInt(n)
	case reflect.Float64:
		v.SetFloat(float64(n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	}
}

// The test finds what it looks for.
func TestSeveralOfOne(t *testing.T) {
	for text, want := range map[string]bool{
		"f: 1 rules, version": true, "1 violations": true, "and 1 more files": true, "2 rule": true, "0 hold.": true, "1 rule, version": false, "2 rules": false, "21 rules": false, "0.1 keys": false, "1000 rule": true, "p: 1 warning": false,
	} {
		if severalOfOne.MatchString(text) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}
