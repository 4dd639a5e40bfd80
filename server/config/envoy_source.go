package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// EnvoySource is where descriptors of Envoy's form come from.
type EnvoySource struct {
	// Directory has files of descriptors. Empty, and no XDS: there are none, and only external authorization
	// has rules.
	Directory string
	// DirectoryLink is a symbolic link above the files, or Directory itself: the files are read again when it
	// points elsewhere. Empty, or not a link: they are read again when one changes.
	DirectoryLink string
	// DirectoryMayBeEmpty allows a Directory without a file. DotFiles includes files and directories whose
	// names begin with a dot.
	DirectoryMayBeEmpty, DotFiles bool
	// MergeDomains lets several files have one domain.
	MergeDomains bool
	// XDS is a management server that has the descriptors; nil: there is none.
	XDS *XDS
	// StartWithoutDescriptors lets the service start before it has descriptors. Calls fail until then.
	StartWithoutDescriptors bool
}

// Files is where the files are; nil: there is no Directory.
func (s *EnvoySource) Files() *rules.EnvoyFiles {
	if s.Directory == "" {
		return nil
	}
	return &rules.EnvoyFiles{Path: s.Directory, Link: s.DirectoryLink, IgnoreDotFiles: !s.DotFiles, MergeDomains: s.MergeDomains, MayBeEmpty: s.DirectoryMayBeEmpty}
}

// XDS is a management server of the aggregated discovery service.
type XDS struct {
	// Server is the target of gRPC, such as host:port.
	Server string
	// NodeID identifies this instance to the server, and NodeMetadata is sent in addition, as texts.
	NodeID       string
	NodeMetadata map[string]string
	// Headers are sent with each stream; their names are in lower case.
	Headers map[string]string
	// TLS has the certificates; nil: plain text. They are read for each connection.
	TLS *UpstreamTLS
	// Retry is how long to wait after a connection that failed, give or take a half.
	Retry time.Duration
	// Backoff is how long to wait after a stream that ended. Each further failure doubles it, up to
	// MaxBackoff. Up to BackoffJitter of the wait, a share from 0 to 1, is added or taken off.
	Backoff, MaxBackoff time.Duration
	BackoffJitter       float64
	// MaxMessage bounds a message of the server, in bytes. 0: 4 MiB.
	MaxMessage int
}

func (s *EnvoySource) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "directory", Value: schema.Text(r, &s.Directory, "directory"), Example: "/etc/ratelimit/config", Flag: "envoy", Reread: true, See: "envoy.md#descriptors",
			Says: "Directory of descriptor files for Envoy's rate limit service. Without it and xds, only external authorization has rules."},
		{Name: "directory_link", Value: schema.Text(r, &s.DirectoryLink, "link"), Example: "/data/current", See: "envoy-reference.md#files",
			Says: "A symbolic link above the files, or directory itself: files are reread only when it points elsewhere. If it is not a link, they are reread when one changes."},
		{Name: "directory_may_be_empty", Value: schema.Bool(r, &s.DirectoryMayBeEmpty), Default: "false", See: "envoy-reference.md#files",
			Says: "Allows an empty directory, which limits nothing; otherwise it is an error."},
		{Name: "dot_files", Value: schema.Bool(r, &s.DotFiles), Default: "false", See: "envoy-reference.md#files",
			Says: "Also reads files and directories whose names begin with a dot."},
		{Name: "merge_domains", Value: schema.Bool(r, &s.MergeDomains), Default: "false", See: "envoy.md#descriptors",
			Says: "Lets several files have one domain."},
		{Name: "xds", Value: readXDS(r, &s.XDS), Example: `{server: "envoy-gateway:18001"}`, Not: []string{"directory"}, See: "envoy-reference.md#environment-variables",
			Says: "A management server with the descriptors."},
		{Name: "start_without_descriptors", Value: schema.Bool(r, &s.StartWithoutDescriptors), Default: "false", See: "envoy-reference.md#environment-variables",
			Says: "Lets the service start before directory or xds has valid descriptors. Calls fail until then."},
	}
}

func readXDS(r *yamlnode.Reader, to **XDS) schema.Value {
	return schema.Optional(r, to, func(x *XDS) schema.Rows { return x.rows(r) }, func(x *XDS, n *yamlnode.Node, fields map[string]*yamlnode.Node) {
		if fields["server"] == nil {
			r.Report(n, "xds needs server: the host:port of a management server")
		}
		for name := range x.Headers {
			if !isHeaderName(name) || strings.HasPrefix(name, "grpc-") {
				r.Report(fields["headers"], "%.60q is not the name of a header for gRPC", name)
			}
		}
	})
}

func (x *XDS) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "server", Value: schema.Parsed(r, &x.Server, parseManagement, schema.Scalar("host:port", ".")).Expanding(r), Required: true, Example: `"envoy-gateway:18001"`,
			Says: "Its host:port, or another gRPC target."},
		{Name: "node_id", Value: schema.Text(r, &x.NodeID, "name"), Default: "default", Example: "stint-1",
			Says: "This instance's ID for the server."},
		{Name: "node_metadata", Value: texts(r, &x.NodeMetadata, strings.Clone), Example: "{zone: a}",
			Says: "Metadata about this instance for the server."},
		{Name: "headers", Value: texts(r, &x.Headers, strings.ToLower), Example: "{x-tenant: shop}", Secret: true,
			Says: "Headers sent with each stream."},
		{Name: "tls", Value: schema.Optional(r, &x.TLS, func(t *UpstreamTLS) schema.Rows { return t.rows(r) }, func(t *UpstreamTLS, n *yamlnode.Node, _ map[string]*yamlnode.Node) { t.checkPair(r, n) }),
			Example: "{ca: /etc/stint/xds.pem}",
			Says:    "Certificates for the server, read for each connection; {}: the defaults. Without it, connections are unencrypted."},
		{Name: "retry", Value: schema.Duration(r, "retry", &x.Retry, schema.AboveZero, schema.Endless), Default: "3s",
			Says: "Wait after a failed connection, varied by half at random."},
		{Name: "backoff", Value: schema.Duration(r, "backoff", &x.Backoff, schema.AboveZero, schema.Endless), Default: "10s",
			Says: "Wait after a stream ended; doubles with each failure."},
		{Name: "max_backoff", Value: schema.Duration(r, "max_backoff", &x.MaxBackoff, schema.AboveZero, schema.Endless), Default: "1m",
			Says: "The longest of these waits."},
		{Name: "backoff_jitter", Value: schema.Parsed(r, &x.BackoffJitter, parseRatio, ratio), Default: "0.5",
			Says: "The random part of these waits."},
		{Name: "max_message", Value: schema.Number(r, &x.MaxMessage, 1, 1<<30), Default: "4194304",
			Says: "Largest message from the server, in bytes."},
	}
}

func parseManagement(text string) (string, error) {
	if text == "" {
		return "", errors.New("is empty: want host:port")
	}
	return text, nil
}

var ratio = schema.Shape{Kind: schema.KindFloat, What: "number", Least: "0", Most: "1"}

func parseRatio(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f <= 1) { // not a number, either
		return 0, fmt.Errorf("%.60q: want a number from 0 to 1", text)
	}
	return f, nil
}

// texts is a mapping of names to texts. name converts each name. ${NAME} and ${file:PATH} are
// replaced in the texts.
func texts(r *yamlnode.Reader, to *map[string]string, name func(string) string) schema.Value {
	item := schema.Scalar("text", "")
	item.Expands = true
	return schema.Custom(schema.Shape{Kind: schema.KindNames, What: "name", Item: &item}, func(n *yamlnode.Node) {
		all := map[string]string{}
		r.Named(n, func(key, value *yamlnode.Node) {
			if value, ok := r.Expand(value); ok {
				if text, ok := r.Scalar(value, "text"); ok {
					all[name(key.Value)] = text
				}
			}
		})
		*to = all
	})
}

// isHeaderName reports whether a header may have a name.
func isHeaderName(name string) bool { return httpguts.ValidHeaderFieldName(name) }
