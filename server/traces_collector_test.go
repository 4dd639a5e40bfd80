package server_test

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// collector is a receiver of OTLP over HTTP. It decodes what it gets.
type collector struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request) // nil: 200

	mu       sync.Mutex
	spans    []*otlp.Span
	requests []*http.Request
	resource map[string]string // of the last request
}

func newCollector(t testing.TB) *collector {
	t.Helper()
	c := new(collector)
	c.Server = httptest.NewServer(http.HandlerFunc(c.receive))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) receive(w http.ResponseWriter, r *http.Request) {
	if c.answer != nil {
		c.answer(w, r)
		return
	}
	spans, resource, err := decodeSpans(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.spans, c.resource = append(c.spans, spans...), resource
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func decodeSpans(r *http.Request) (spans []*otlp.Span, resource map[string]string, err error) {
	if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return nil, nil, fmt.Errorf("not OTLP: %s %s", r.URL, r.Header)
	}
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(r.Body); err != nil {
			return nil, nil, err
		}
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, nil, err
	}
	var request collected.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &request); err != nil {
		return nil, nil, err
	}
	for _, rs := range request.ResourceSpans {
		resource = texts(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			spans = append(spans, ss.Spans...)
		}
	}
	return spans, resource, nil
}

// texts are attributes as text.
func texts(as []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range as {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			m[a.Key] = fmt.Sprint(v.DoubleValue)
		case *common.AnyValue_ArrayValue:
			var all []string
			for _, e := range v.ArrayValue.Values {
				all = append(all, e.GetStringValue())
			}
			m[a.Key] = strings.Join(all, ",")
		default:
			m[a.Key] = fmt.Sprint(a.Value)
		}
	}
	return m
}

// got is what has arrived. Close the server before, which sends the rest.
func (c *collector) got() []*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// sends makes a server send all spans to c.
func (c *collector) sends(changes ...func(*config.Traces)) func(*server.Config) {
	return func(s *server.Config) {
		s.Settings.Traces = &config.Traces{Endpoint: c.URL + "/v1/traces", Sample: 1}
		for _, change := range changes {
			change(s.Settings.Traces)
		}
	}
}

// tree shows spans as a tree: names, attributes of the names wanted, and statuses.
func tree(spans []*otlp.Span, wanted ...string) string {
	known := map[string]bool{}
	for _, s := range spans {
		known[string(s.SpanId)] = true
	}
	slices.SortStableFunc(spans, func(a, b *otlp.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	var b strings.Builder
	var show func(parent string, depth int)
	show = func(parent string, depth int) {
		for _, s := range spans {
			if id := string(s.ParentSpanId); id != parent && (parent != "" || known[id]) {
				continue
			}
			fmt.Fprintf(&b, "%s%s %s", strings.Repeat("  ", depth), s.Name, strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_")))
			as := texts(s.Attributes)
			for _, name := range wanted {
				if v, ok := as[name]; ok {
					fmt.Fprintf(&b, " %s=%s", name[strings.LastIndexByte(name, '.')+1:], v)
				}
			}
			for _, e := range s.Events {
				fmt.Fprintf(&b, " [%s", e.Name)
				as := texts(e.Attributes)
				for _, name := range wanted {
					if v, ok := as[name]; ok {
						fmt.Fprintf(&b, " %s=%s", name[strings.LastIndexByte(name, '.')+1:], v)
					}
				}
				b.WriteByte(']')
			}
			if s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
				b.WriteString(" FAILED")
			}
			if len(s.Links) > 0 {
				b.WriteString(" linked to " + hex.EncodeToString(s.Links[0].TraceId))
			}
			b.WriteByte('\n')
			show(string(s.SpanId), depth+1)
		}
	}
	show("", 0)
	return b.String()
}
