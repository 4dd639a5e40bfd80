package door

import "net/http"

// Page is a response's body.
type Page struct {
	Headers http.Header
	Text    []byte
}

func (p *Page) Header() http.Header { return p.Headers }

func (p *Page) WriteHeader(int) {}

func (p *Page) Write(b []byte) (int, error) {
	p.Text = append(p.Text, b...)
	return len(b), nil
}
