package admin

import (
	"cmp"
	"net/http"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
)

// streamLive answers with a stream of events instead of a body.
func (a *API) streamLive(w http.ResponseWriter, r *http.Request) {
	who, refused := a.authenticate(r, config.ReadScope)
	if refused != nil {
		a.refuseCaller(w, r, who, refused)
		return
	}
	rule, err := a.ruleOf(r)
	if twice := checkQuery(r); twice != nil {
		err = twice
	}
	if err != nil {
		refuse(w, err)
		return
	}
	admitted := func() bool {
		_, refused := a.authenticate(r, config.ReadScope)
		return refused == nil
	}
	if !a.Live.Stream(w, r, who.Name, rule, admitted) {
		w.Header().Set("Retry-After", "5")
		refuse(w, &callError{status: http.StatusServiceUnavailable, detail: "Too many streams are open at this instance, or too many of this caller."})
	}
}

func (a *API) showSeries(c *call) (int, any, error) {
	rule, err := a.ruleOf(c.Request)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, a.Live.Series(rule), nil
}

func (a *API) listInstances(c *call) (int, any, error) {
	return http.StatusOK, adminapi.Instances{Instances: a.Live.Instances(c.Context())}, nil
}

// ruleOf is the parameter rule of a query; empty: it names no rule.
func (a *API) ruleOf(r *http.Request) (string, error) {
	name := r.URL.Query().Get("rule")
	var names []string
	for _, r := range a.Control.Current().Rules {
		if r.Name == name {
			return name, nil
		}
		names = append(names, r.Name)
	}
	if name == "" {
		return "", nil
	}
	return "", notFound("There is no rule %.80q in force%s", name, cmp.Or(didYouMean(name, names), "."))
}
