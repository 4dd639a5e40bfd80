package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/server/internal/offenders"
	"github.com/stintdev/stint/server/rules"
)

// OffendersQuery asks for offenders.
type OffendersQuery struct {
	offenders.Query
	Rule string // only keys of this rule; empty: of all
	// Contains is a part of the keys or names, as shown; empty: all.
	Contains string
	Limit    int
}

// HistoryQuery asks for the history of one offender: of a Key under a Rule, or of a Name. For rules without a
// Name, it asks for all rules together.
type HistoryQuery struct {
	Of   offenders.Dimension
	By   offenders.Weight
	Rule string
	Key  rules.Key
	Name string
}

// mostOffenders is the most offenders in an answer.
const mostOffenders = 10_000

// mostContained bounds the parameter contains.
const mostContained = 256

func (a *API) showOffenders(c *call) (int, any, error) {
	var q OffendersQuery
	var err error
	if q.Of, q.By, err = c.kind(); err != nil {
		return 0, nil, err
	}
	if q.Since, err = c.since(a.Control.Now()); err != nil {
		return 0, nil, err
	}
	if q.Limit, err = c.number("limit", 50, mostOffenders); err != nil {
		return 0, nil, err
	}
	if q.Rule = c.URL.Query().Get("rule"); q.Rule != "" && q.Of != offenders.Keys {
		return 0, nil, badCall("The parameter rule is for of=keys.")
	}
	if q.Contains = c.URL.Query().Get("contains"); len(q.Contains) > mostContained {
		return 0, nil, badCall("The parameter contains must be at most %d bytes long.", mostContained)
	}
	found, err := a.Offenders(c.Context(), q)
	switch {
	case err != nil:
		return 0, nil, err
	case found == nil:
		return 0, nil, errNoOffenders
	case q.Rule != "" && len(found.Offenders) == 0:
		if _, err := a.rule(q.Rule); err != nil { // otherwise it may be a former rule
			return 0, nil, err
		}
	}
	return http.StatusOK, found, nil
}

func (a *API) showOffenderHistory(c *call) (int, any, error) {
	var q HistoryQuery
	var err error
	if q.Of, q.By, err = c.kind(); err != nil {
		return 0, nil, err
	}
	in := c.URL.Query()
	q.Rule, q.Name = in.Get("rule"), in.Get("name")
	if q.Key, err = keyText(in.Get("key")); err != nil {
		return 0, nil, badCall("The parameter key: %s.", err)
	}
	byKey, byName := q.Rule != "" && q.Key != "" && q.Name == "", q.Rule == "" && q.Key == "" && q.Name != ""
	if q.Of == offenders.Keys && !byKey {
		return 0, nil, badCall("The parameters rule and key must be given for of=keys, and name must not.")
	}
	all := q.Of == offenders.Rules && q.Rule == "" && q.Key == "" // of all rules together, without a name
	if q.Of != offenders.Keys && !byName && !all {
		return 0, nil, badCall("The parameter name must be given for of=%s, and rule and key must not.", offenders.Dimensions[q.Of])
	}
	found, err := a.OffenderHistory(c.Context(), q)
	switch {
	case err != nil:
		return 0, nil, err
	case found == nil:
		return 0, nil, errNoOffenders
	}
	return http.StatusOK, found, nil
}

var errNoOffenders = notFound("This instance does not count offenders: server.offenders is 0.")

// kind reads the parameters of and by.
func (c *call) kind() (of offenders.Dimension, by offenders.Weight, err error) {
	i, err := c.oneOf("of", offenders.Dimensions[:])
	if err != nil {
		return 0, 0, err
	}
	j, err := c.oneOf("by", offenders.Weights[:])
	return offenders.Dimension(i), offenders.Weight(j), err
}

// oneOf is the index of a parameter's value in all; of one that is not given, 0.
func (c *call) oneOf(name string, all []string) (int, error) {
	in := c.URL.Query()
	if !in.Has(name) {
		return 0, nil
	}
	for i, known := range all {
		if in.Get(name) == known {
			return i, nil
		}
	}
	return 0, badCall("The parameter %s must be one of %s.", name, strings.Join(all, ", "))
}

// since reads the parameter since.
func (c *call) since(now time.Time) (time.Time, error) {
	text := "1h"
	if in := c.URL.Query(); in.Has("since") {
		text = in.Get("since")
	}
	d, err := limittext.Period(text)
	if err != nil || d <= 0 || d > offenders.Keeps {
		return now, badCall("The parameter since must be a duration such as 1h or 7d, of at most 14d.")
	}
	return now.Add(-d), nil
}

// keyText reads a key in a parameter: JSON if it begins as a list or a string of JSON does, else
// the key itself.
func keyText(text string) (k rules.Key, err error) {
	if strings.HasPrefix(text, "[") || strings.HasPrefix(text, `"`) {
		err = json.Unmarshal([]byte(text), &k)
		return k, err
	}
	return rules.Key(text), nil
}
