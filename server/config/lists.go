package config

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// List says where a named list of networks comes from. Expressions look into it by list("name").
type List struct {
	// Name is what expressions say.
	Name string
	// Exactly one of File and URL is given. File is read again when it changes. URL is fetched every Reload.
	File, URL string
	// Pointer is a JSON pointer (RFC 6901) to the array with the networks. It is only for JSON. Empty: the
	// root.
	Pointer string
	// Reload is the time between two fetches of URL, at least a minute. 0: there is no URL.
	Reload time.Duration
}

const (
	maxLists  = 100 // of an instance
	maxReload = 7 * 24 * time.Hour
)

func (l *List) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "file", Value: schema.Text(r, &l.File, "file"), Example: "/etc/stint/bad.cidr", Reread: true, Instead: []string{"url"}, Not: []string{"url"},
			Says: "File with networks, one a line, or in JSON."},
		{Name: "url", Value: schema.Parsed(r, &l.URL, parseListURL, webURL).Expanding(r), Example: "https://lists.example.com/bots.json", Secret: true,
			Says: "URL of such a file."},
		{Name: "pointer", Value: schema.Parsed(r, &l.Pointer, parsePointer, schema.Scalar("JSON pointer", `^(/([^~]|~[01])*)?$`)), Example: "/prefixes",
			Says: "JSON pointer to the array with the networks. Without it, the whole JSON is the array."},
		{Name: "reload", Value: schema.Duration(r, "reload", &l.Reload, time.Minute, maxReload), Default: "1h", Needs: []string{"url"},
			Says: "How often the URL is fetched."},
	}
}

// readLists is a mapping of names of lists.
func readLists(r *yamlnode.Reader, to *[]List) schema.Value {
	rowsOf := func(l *List) schema.Rows { return l.rows(r) }
	item := schema.Shape{Kind: schema.KindMapping, Rows: func() schema.Rows { return rowsOf(new(List)) }}
	return schema.Custom(schema.Shape{Kind: schema.KindNames, What: "name", Item: &item, Names: schema.Name}, func(n *yamlnode.Node) {
		if len(n.Content) > 2*maxLists {
			r.Report(n, "%d lists: at most %d", len(n.Content)/2, maxLists)
			return
		}
		r.Named(n, func(name, value *yamlnode.Node) {
			if value.Value != "" { // it may be a URL with a token, which must not be shown
				r.Report(value, "want a mapping with file or url, such as {file: /etc/stint/bad.cidr}")
				return
			}
			l := schema.New(rowsOf)
			l.Name = name.Value
			if !rules.IsName(l.Name) {
				r.Report(name, "name %.70q of a list: must be 1 to 64 of A-Z a-z 0-9 _ . : / -", l.Name)
			}
			if fields := r.Mapping(value, rowsOf(l).Fields()); fields != nil {
				l.check(r, value, fields)
				*to = append(*to, *l)
			}
		})
	})
}

func (l *List) check(r *yamlnode.Reader, n *yamlnode.Node, fields map[string]*yamlnode.Node) {
	if (l.File == "") == (fields["url"] == nil) {
		r.Report(n, "a list needs one of file and url, where its networks are")
	}
	if fields["url"] == nil {
		l.Reload = 0
		if fields["reload"] != nil {
			r.Report(fields["reload"], "reload needs url: a file is read again when it changes")
		}
	}
}

// parseListURL checks the URL of a list. The error does not contain it, because it may have a token in its
// query.
func parseListURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case !isWebURL(u, err):
		return "", errors.New("want the URL of a list of networks, such as https://lists.example.com/bots.json, without user and password")
	case u.Fragment != "":
		return "", errors.New("the URL of a list has a fragment (#), which is never sent: to choose a part of JSON, use pointer")
	}
	return text, nil
}

// isWebURL reports whether a parsed URL can be fetched. Users and passwords in it would be shown.
func isWebURL(u *url.URL, err error) bool {
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// isInTheClear reports whether what a URL names comes from another machine unencrypted, so that an attacker
// on the network could replace it.
func isInTheClear(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "http" && !httpfield.IsLoopback(u.Hostname())
}

// InTheClear reports whether l is fetched from another machine unencrypted.
func (l *List) InTheClear() bool { return isInTheClear(l.URL) }

func parsePointer(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if text[0] != '/' {
		return "", errors.New("want a JSON pointer, which begins with a slash, such as /prefixes")
	}
	for _, rest := range strings.Split(text, "~")[1:] {
		if rest == "" || rest[0] != '0' && rest[0] != '1' {
			return "", errors.New("in a JSON pointer, write ~0 for ~ and ~1 for /")
		}
	}
	return text, nil
}

// KnownLists returns the names of the settings' lists, without their networks, so that the names in rules can
// be checked.
func (s *Settings) KnownLists() *rules.Lists {
	names := make([]string, len(s.Lists))
	for i := range s.Lists {
		names[i] = s.Lists[i].Name
	}
	return rules.NewLists(names...)
}
