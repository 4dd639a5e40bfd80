package check

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// A check can be about a call of Envoy's service. Descriptors without hits_addend take the cost of
// the check, wherever that stands.
func TestReadCall(t *testing.T) {
	in, err := ReadInput([]byte(`{
		"descriptors": [
			{"entries": [{"key": "user", "value": "ann"}, {"key": "path"}]},
			{"entries": [{"key": "user", "value": "bob"}], "hits_addend": 0},
			{"entries": [{"key": "user", "value": "bob"}], "hits_addend": 7, "is_negative_hits": true},
			{"entries": [{"key": "user"}], "limit": {"name": "n", "requests_per_unit": 4294967295, "unit": "MONTH"}}
		],
		"domain": "shop", "client": "192.0.2.1", "cost": 3
	}`))
	if err != nil {
		t.Fatal(err)
	}
	entry := func(key, value string) rules.Entry { return rules.Entry{Key: key, Value: value} }
	want := &rules.Descriptors{Domain: "shop", List: []rules.Descriptor{
		{Entries: []rules.Entry{entry("user", "ann"), entry("path", "")}, Cost: 3},
		{Entries: []rules.Entry{entry("user", "bob")}},
		{Entries: []rules.Entry{entry("user", "bob")}, Cost: 7, GiveBack: true},
		{Entries: []rules.Entry{entry("user", "")}, Cost: 3, Override: &rules.DescriptorLimit{Name: "n", Amount: 4294967295, Unit: rules.Month}},
	}}
	if !reflect.DeepEqual(in.Descriptors, want) {
		t.Errorf("%+v, want %+v", in.Descriptors, want)
	}
	if in, err = ReadInput([]byte(`{"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}`)); err != nil || in.Descriptors.List[0].Cost != 1 {
		t.Errorf("%v, %+v: want a cost of 1", err, in)
	}
}

func TestReadCallRefuses(t *testing.T) {
	one := func(d string) string { return `{"domain": "d", "descriptors": [` + d + `]}` }
	limit := func(l string) string { return one(`{"entries": [{"key": "k"}], "limit": ` + l + `}`) }
	for body, want := range map[string]string{
		`{"domain": "d"}`:                                "domain: want descriptors, too",
		`{"domain": "d", "descriptors": []}`:             "domain: want descriptors, too",
		`{"domain": "", "descriptors": []}`:              "domain: must not be empty",
		`{"descriptors": [{"entries": [{"key": "k"}]}]}`: "descriptors: want a domain, too",
		`{"charge": true, "domain": "d", "descriptors": [{"entries": [{"key": "k"}], "is_negative_hits": true}]}`: "descriptor 1: is_negative_hits: a charge gives nothing back",
		one(`{}`): "descriptors: descriptor 1: want entries",
		one(`{"entries": [{"key": "k"}]}, {"entries": [{}]}`):          "descriptors: descriptor 2: entries: entry 1: want a key",
		one(`{"entries": [{"key": "k"}, {"key": ""}]}`):                "descriptors: descriptor 1: entries: entry 2: key: must not be empty",
		one(`{"entries": [{"key": "k", "value": 1}]}`):                 "descriptors: descriptor 1: entries: entry 1: value: want text",
		one(`{"entries": [{"key": "k"}], "hits_addend": -1}`):          "descriptors: descriptor 1: hits_addend: -1: must not be negative",
		one(`{"entries": [{"key": "k"}], "hits": 1}`):                  `descriptors: descriptor 1: unknown field "hits"`,
		limit(`{"requests_per_unit": 1}`):                              "descriptors: descriptor 1: limit: want a unit",
		limit(`{"requests_per_unit": 1, "unit": "UNKNOWN"}`):           "descriptors: descriptor 1: limit: unit: want second, minute, hour, day, week, month or year",
		limit(`{"unit": "DAY"}`):                                       "descriptors: descriptor 1: limit: want requests_per_unit",
		limit(`{"unit": "DAY", "requests_per_unit": 1e-3}`):            "descriptors: descriptor 1: limit: requests_per_unit: want a whole number, have 1e-3",
		limit(`{"unit": "day", "requests_per_unit": 4294967296}`):      "descriptors: descriptor 1: limit: requests_per_unit: 4294967296: must be at most 4294967295",
		`{"operation": "o", ` + one(`{"entries": [{"key": "k"}]}`)[1:]: "domain: operation and attrs come from Envoy's call; leave them out",
		`{"attrs": {}, ` + one(`{"entries": [{"key": "k"}]}`)[1:]:      "domain: operation and attrs come from Envoy's call; leave them out",
	} {
		_, err := ReadInput([]byte(body))
		if !errors.Is(err, stint.ErrRequest) || !strings.HasPrefix(strings.TrimPrefix(err.Error(), stint.ErrRequest.Error()+": "), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}
