package admin

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/rules"
)

// versionOf is v without its text.
func versionOf(v *control.Version) adminapi.Version {
	return adminapi.Version{Number: v.Number, Version: rules.VersionOf(v.Text), Author: v.Author, Note: v.Note, At: v.At}
}

func (a *API) showRules(*call) (int, any, error) {
	now := a.Control.Status()
	all := adminapi.Rules{Source: sourceOf(&now), Version: now.Set.Version, Number: now.Number, Newest: now.Newest, Pushable: a.PushedRules, Rules: []adminapi.Rule{}}
	for _, r := range now.Set.Rules {
		j := adminapi.Rule{Name: r.Name, Mode: r.Mode.String(), Match: r.Match, Key: r.Key, Cost: r.Cost, CostAfter: r.After, Unit: r.Unit, Holds: r.Holds(), Limits: []string{}, Settings: r.Settings, Descriptor: r.Descriptor != nil}
		if r.Tokens.API != rules.NoTokens {
			j.Tokens = r.Tokens.API.String()
		}
		for _, l := range r.Limits {
			j.Limits = append(j.Limits, l.Terms())
		}
		all.Rules = append(all.Rules, j)
	}
	return http.StatusOK, all, nil
}

// sourceOf is the source of the current rules.
func sourceOf(now *control.Status) string {
	if now.Number > 0 {
		return "fleet"
	}
	return "file"
}

func (a *API) checkRules(c *call) (int, any, error) {
	var in adminapi.CheckRequest
	if err := c.read(&in); err != nil {
		return 0, nil, err
	}
	set, err := a.pushable(c, in.Text)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, adminapi.Checked{Version: set.Version, Count: len(set.Rules), Findings: append([]rules.Finding{}, set.Findings...)}, nil
}

func (a *API) previewRules(c *call) (int, any, error) {
	var in adminapi.PreviewRequest
	if err := c.read(&in); err != nil {
		return 0, nil, err
	}
	// Compiled rules take much memory, so only one call at a time may have them.
	done, err := a.turn(c)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	set, err := a.compile(c, in.Text)
	if err != nil {
		return 0, nil, err
	}
	preview, err := a.Preview(c.Context(), set, in.Text)
	switch {
	case err != nil && c.Context().Err() != nil:
		return 0, nil, busy()
	case err != nil:
		return 0, nil, err
	case preview == nil:
		return 0, nil, &callError{status: http.StatusConflict, detail: "This instance does not record requests: its setting server.recent_requests is off."}
	}
	return http.StatusOK, preview, nil
}

// turn waits until no other call of the same scope compiles expressions. The caller must call done. Compiling
// takes a processor and memory. Read calls wait separately, so that they do not hold up a push. Rules files
// do not wait for calls at all.
func (a *API) turn(c *call) (done func(), err error) {
	turn := a.writing
	if c.who.Scope == config.ReadScope {
		turn = a.reading
	}
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-c.Context().Done():
		return nil, busy()
	}
}

// busy is the answer to a call that timed out before its expressions were compiled.
func busy() error {
	return &callError{status: http.StatusServiceUnavailable, detail: fmt.Sprintf("Compiling the rules, including the wait for other calls that compile, took more than %s. Nothing was changed.", callTimeout)}
}

// pushable compiles rules for the fleet when no other call does.
func (a *API) pushable(c *call, text string) (*rules.Set, error) {
	done, err := a.turn(c)
	if err != nil {
		return nil, err
	}
	defer done()
	return a.compile(c, text)
}

// compile compiles rules for the fleet. Settings belong to each instance, and may contain
// passwords. Secrets that the rules name must exist here. The caller must have a turn.
func (a *API) compile(c *call, text string) (*rules.Set, error) {
	set, err := a.Control.Parse(c.Context(), text)
	var wrong *yamlnode.Error
	switch {
	case c.Context().Err() != nil:
		return nil, busy()
	case errors.As(err, &wrong):
		e := impossible("", "").(*callError)
		e.detail, e.problems = "The rules are wrong; nothing was changed.", nil
		for _, p := range wrong.Problems {
			e.problems = append(e.problems, adminapi.Problem{Where: fmt.Sprintf("%d:%d", p.Line, p.Column), Text: p.Text})
		}
		return nil, e
	case err != nil:
		return nil, impossible("text", "%s", err)
	}
	if set.HasServer {
		return nil, impossible("text", "it has a section server, which is each instance's own and may hold passwords: push the rules without it")
	}
	return set, nil
}

func (a *API) pushRules(c *call) (int, any, error) {
	in := adminapi.PushRequest{After: -1}
	err := c.read(&in)
	if err == nil && (in.After < 0 || in.After == math.MaxInt64) {
		err = badCall("after is missing, or no version's: the number of the version that this one replaces, 0 if there is none.")
	}
	if err != nil {
		return 0, nil, err
	}
	return a.push(c, "push rules", control.Version{Author: c.who.Name, Note: in.Note, Text: in.Text}, in.After)
}

func (a *API) rollbackRules(c *call) (int, any, error) {
	in := adminapi.RollbackRequest{After: -1}
	err := c.read(&in)
	if err == nil && (in.After < 0 || in.After == math.MaxInt64 || in.To < 1) {
		err = badCall("to and after must be given: the numbers of the version to go back to and of the one that is replaced.")
	}
	if err != nil {
		return 0, nil, err
	}
	old, err := a.Control.RulesVersion(c.Context(), in.To)
	switch {
	case err != nil:
		return 0, nil, unavailable(err)
	case old == nil:
		return 0, nil, notFound("There is no version %d, or it is no longer kept.", in.To)
	}
	note := cmp.Or(in.Note, fmt.Sprintf("back to version %d", in.To))
	return a.push(c, "roll rules back", control.Version{Author: c.who.Name, Note: note, Text: old.Text}, in.After)
}

// push makes v the fleet's next version after the version after.
func (a *API) push(c *call, action string, v control.Version, after int64) (int, any, error) {
	if !a.PushedRules {
		detail := "This instance takes its rules from its file. To share rules, start the fleet with server: {rules: fleet}, and a Redis as its store."
		if slices.ContainsFunc(a.Control.Status().Set.Rules, func(r *rules.Rule) bool { return r.Descriptor != nil }) {
			detail = "Rules cannot be pushed to this instance, because some of its rules are in Envoy's files. Change those files, or its rules file: it reads them again within a second."
		}
		return 0, nil, &callError{status: http.StatusConflict, detail: detail}
	}
	if _, err := a.pushable(c, v.Text); err != nil {
		return 0, nil, err
	}
	pushed, err := a.Control.PushRules(c.Context(), v, after)
	if err != nil {
		if errors.Is(err, control.ErrUnknown) {
			a.Audit.unknown(c, action, v.Note, err)
		}
		return 0, nil, callErrorOf(err, "text")
	}
	a.Audit.change(c, action, fmt.Sprintf("version %d", pushed.Number), v.Note, after, versionOf(pushed), nil)
	return http.StatusOK, versionOf(pushed), nil
}

func (a *API) listVersions(c *call) (int, any, error) {
	limit, err := c.number("limit", 20, control.Versions)
	if err != nil {
		return 0, nil, err
	}
	versions, err := a.Control.RulesVersions(c.Context(), limit)
	if err != nil {
		return 0, nil, unavailable(err)
	}
	all := []adminapi.Version{}
	for _, v := range versions {
		all = append(all, versionOf(v))
	}
	return http.StatusOK, adminapi.Versions{Versions: all}, nil
}

func (a *API) showVersion(c *call) (int, any, error) {
	number, err := strconv.ParseInt(c.PathValue("number"), 10, 64)
	if err != nil || number < 1 {
		return 0, nil, notFound("There is no version %.40q: versions are numbers from 1.", c.PathValue("number"))
	}
	v, err := a.Control.RulesVersion(c.Context(), number)
	switch {
	case err != nil:
		return 0, nil, unavailable(err)
	case v == nil:
		return 0, nil, notFound("There is no version %d, or it is no longer kept.", number)
	}
	j := versionOf(v)
	j.Text = v.Text
	return http.StatusOK, j, nil
}

func (a *API) source() adminapi.Source {
	now := a.Control.Status()
	return adminapi.Source{Source: sourceOf(&now), Version: now.Set.Version, Number: now.Number, Ordered: (*adminapi.Order)(now.Order)}
}

func (a *API) showSource(*call) (int, any, error) { return http.StatusOK, a.source(), nil }

// setSource makes this instance take the rules of its file although the fleet has rules, or the
// fleet's again. It does not call the store, because it is used when the store is down or has wrong rules.
func (a *API) setSource(c *call) (int, any, error) {
	var in adminapi.SourceRequest
	if err := c.read(&in); err != nil {
		return 0, nil, err
	}
	from, err := config.ParseRulesFrom(in.Source)
	if err != nil {
		return 0, nil, impossible("source", "%s", err)
	}
	if !a.PushedRules {
		return 0, nil, &callError{status: http.StatusConflict, detail: "This instance takes its rules from its file in any case: it was not started with server: {rules: fleet}."}
	}
	before := a.source()
	if from == config.FromFile {
		a.Control.UseFile(control.Order{At: time.Now().UTC(), Who: c.who.Name, Reason: in.Reason})
	} else {
		a.Control.UsePushed()
	}
	after := a.source()
	a.Audit.change(c, "take rules of the "+from.String(), "this instance", in.Reason, before, after, nil)
	return http.StatusOK, after, nil
}

func (a *API) explainRequest(c *call) (int, any, error) {
	body, err := c.bytes()
	if err != nil {
		return 0, nil, err
	}
	done, err := a.turn(c)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	x, err := a.Explain(c.Context(), body)
	if err != nil && c.Context().Err() != nil {
		err = busy()
	}
	return http.StatusOK, x, err
}
