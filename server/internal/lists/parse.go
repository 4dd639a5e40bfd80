package lists

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/server/internal/strictjson"
	"github.com/stintdev/stint/server/rules"
)

const (
	// maxBytes and maxEntries bound the content of one list.
	maxBytes   = 64 << 20
	maxEntries = 2_000_000
	// shownProblems is how many wrong entries an error shows.
	shownProblems = 5
)

// contentError is what is wrong with a list, at up to shownProblems places.
type contentError struct {
	places, texts []string
	more          int // further problems
}

func (e *contentError) Error() string {
	var b strings.Builder
	for i := range e.texts {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(e.places[i] + ": " + e.texts[i])
	}
	if e.more > 0 {
		fmt.Fprintf(&b, "; and %d more", e.more)
	}
	return b.String()
}

// parser collects the networks of one list.
type parser struct {
	name     string // of the file, for errors
	networks *rules.Networks
	entries  int
	wrong    contentError
}

// parse reads the networks in data: in JSON if there is a pointer, or data begins with [ or {, else one a line.
// name is in the errors.
func parse(name, pointer string, data []byte) (*rules.Networks, error) {
	p := &parser{name: name, networks: rules.NewNetworks()}
	text := strings.TrimPrefix(string(data), "\ufeff")
	begins := strings.TrimLeft(text, " \t\r\n")
	var err error
	if pointer != "" || begins != "" && (begins[0] == '[' || begins[0] == '{') {
		err = p.json(text, pointer)
	} else {
		err = p.lines(text)
	}
	switch {
	case err != nil && len(p.wrong.texts) == 0: // else err may only follow from what is wrong
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(p.wrong.texts) > 0:
		return nil, &p.wrong
	}
	return p.networks, nil
}

var errTooMany = fmt.Errorf("more than %d networks", maxEntries)

// add adds the network in text. If it is wrong, place returns where it is.
func (p *parser) add(text string, place func() string) error {
	if p.entries++; p.entries > maxEntries {
		return errTooMany
	}
	network, err := networkOf(text)
	if err != nil {
		p.report(fmt.Sprintf("%.60q %s", text, err), place)
		return nil
	}
	p.networks.Add(network)
	return nil
}

func (p *parser) report(text string, place func() string) {
	if len(p.wrong.texts) == shownProblems {
		p.wrong.more++
		return
	}
	p.wrong.places, p.wrong.texts = append(p.wrong.places, place()), append(p.wrong.texts, text)
}

// networkOf is ParseNetwork, and fast for addresses, too, of which lists have many.
func networkOf(text string) (netip.Prefix, error) {
	if strings.IndexByte(text, '/') < 0 {
		if a, err := netip.ParseAddr(text); err == nil {
			a = address.Plain(a)
			return netip.PrefixFrom(a, a.BitLen()), nil
		}
	}
	return address.NAT64(nil).ParseNetwork(text)
}

// lines reads one network a line. What follows # or ; is a comment.
func (p *parser) lines(text string) error {
	n := 0
	place := func() string { return p.name + ":" + strconv.Itoa(n) }
	for line := range strings.Lines(text) {
		n++
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := p.add(line, place); err != nil {
			return err
		}
	}
	return nil
}

// members are the members in which published lists have a network: of Google, of AWS, and of others. Those
// of Atlassian have both network and cidr.
var members = []string{"ipv4Prefix", "ipv6Prefix", "ip_prefix", "ipv6_prefix", "prefix", "cidr", "network"}

// json reads the array at pointer.
func (p *parser) json(text, pointer string) error {
	r, err := strictjson.New(text)
	if err != nil {
		return err
	}
	if err := r.Valid(); err != nil { // from here on, values can be skipped
		return err
	}
	found, err := p.find(&r, "", pointer)
	if err == nil && !found {
		err = fmt.Errorf("there is nothing at the pointer %q", pointer)
	}
	return err
}

// find reads the array at pointer, which is below at, and reports whether it is there.
func (p *parser) find(r *strictjson.Reader, at, pointer string) (found bool, err error) {
	if pointer == "" {
		return true, p.array(r, at)
	}
	token, rest, deeper := strings.Cut(pointer[1:], "/")
	if deeper {
		rest = "/" + rest
	}
	member := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	visit := func(is bool) error {
		if !is {
			r.SkipFrom(r.Mark())
			return nil
		}
		if found {
			return fmt.Errorf("%s/%s is given twice", at, token)
		}
		found = true
		there, err := p.find(r, at+"/"+token, rest)
		found = found && there
		return err
	}
	switch r.Peek() {
	case '{':
		err = r.Object(func(name string) error { return visit(name == member) })
	case '[':
		i := 0
		err = r.List(func() error {
			i++
			return visit(strconv.Itoa(i-1) == member)
		})
	default:
		r.SkipFrom(r.Mark())
	}
	return found, err
}

// array reads the networks of an array.
func (p *parser) array(r *strictjson.Reader, at string) error {
	if r.Peek() != '[' {
		return p.noArray(r, at)
	}
	i := -1
	place := func() string { return fmt.Sprintf("%s: %s/%d", p.name, at, i) }
	return r.List(func() error {
		i++
		switch r.Peek() {
		case '"':
			text, err := r.Text()
			if err != nil {
				return err
			}
			return p.add(text, place)
		case '{':
			return p.object(r, place)
		}
		p.report("want a text with a network, or an object with one", place)
		r.SkipFrom(r.Mark())
		return nil
	})
}

// object adds the networks in the members of an element.
func (p *parser) object(r *strictjson.Reader, place func() string) error {
	has := false
	err := r.Object(func(name string) error {
		for _, m := range members {
			if name != m || r.Peek() != '"' {
				continue
			}
			has = true
			text, err := r.Text()
			if err != nil {
				return err
			}
			return p.add(text, place)
		}
		r.SkipFrom(r.Mark())
		return nil
	})
	if err == nil && !has {
		p.report("want an object with a text "+strings.Join(members[:len(members)-1], ", ")+" or "+members[len(members)-1], place)
	}
	return err
}

// noArray is the error for a value that is not an array. It names the arrays in it.
func (p *parser) noArray(r *strictjson.Reader, at string) error {
	if r.Peek() != '{' {
		return fmt.Errorf("want an array at %q", at)
	}
	const most = 10
	var arrays []string
	err := r.Object(func(name string) error {
		if r.Peek() == '[' && len(arrays) < most {
			arrays = append(arrays, fmt.Sprintf("%.70q", at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name)))
		}
		r.SkipFrom(r.Mark())
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(arrays) == 0:
		return fmt.Errorf("want an array at %q, and there is an object without arrays", at)
	case at == "":
		return errors.New("it is a JSON object: set pointer to the array with the networks: " + strings.Join(arrays, " or "))
	}
	return fmt.Errorf("want an array at %q, and there is an object: pointer may be %s", at, strings.Join(arrays, " or "))
}
