package main

import (
	"encoding/base64"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
)

var update = flag.Bool("update", false, "write the files of server/testdata that are made of deploy/examples anew")

// ingressNginx has the template of nginx.conf and the list of annotations.
var ingressNginx = module{
	Module: "k8s.io/ingress-nginx@v0.0.0-20240708192948-52c50467d67d",
	Hash:   "h1:tZui5g6S4GO1hxLm6yrEoIXLkl4QfeGytlmZqZ+DmdQ=",
}

const nginxAnnotation = "nginx.ingress.kubernetes.io/"

// The configurations in server/testdata are what ingress-nginx writes for deploy/examples/ingress-nginx.yaml.
// TestRealProxiesIngressNginx there runs nginx with them.
func TestIngressNginx(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../deploy/examples/ingress-nginx.yaml")
	if err != nil {
		t.Fatal(err)
	}
	snippets := regexp.MustCompile(`(?m)^    # (nginx\.ingress|  )`).ReplaceAllString(string(data), "    $1")
	if !strings.Contains(snippets, "\n    "+nginxAnnotation+"server-snippet:") {
		t.Fatal("there are no snippets")
	}
	for name, text := range map[string]string{"ingress-nginx.conf": string(data), "ingress-nginx-snippets.conf": snippets} {
		objects, err := documents(name, text)
		if err != nil {
			t.Fatal(err)
		}
		validate(t, objects)
		got, err := nginxConf(objects)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("../../server/testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(want) != got {
			t.Errorf("%s is not what ingress-nginx writes: go test -run TestIngressNginx -update . (%v)", path, err)
		}
	}
}

// nginxConf is the nginx.conf of the first Ingress in objects, with the settings that ingress-nginx has by
// default. What Lua does, mainly to choose a pod, is left out: Debian's nginx has no Lua.
func nginxConf(objects []object) (string, error) {
	folder, err := ingressNginx.folder()
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(folder, "rootfs/etc/nginx/template/nginx.tmpl"))
	if err != nil {
		return "", err
	}
	ingress := objects[slices.IndexFunc(objects, func(o object) bool { return o.kind() == "Ingress" })]
	annotations, err := nginxAnnotations(folder, ingress)
	if err != nil {
		return "", err
	}
	headers := slices.IndexFunc(objects, func(o object) bool {
		return o.kind() == "ConfigMap" && o.name() == annotations["auth-proxy-set-headers"]
	})
	if headers < 0 {
		return "", fmt.Errorf("there is no ConfigMap %s", annotations["auth-proxy-set-headers"])
	}
	auth, err := url.Parse(annotations["auth-url"])
	if err != nil {
		return "", err
	}
	rule := at(ingress.fields, "spec", "rules").([]any)[0].(map[string]any)
	path := at(rule, "http", "paths").([]any)[0].(map[string]any)
	type m = map[string]any
	location := m{
		"Path": path["path"], "PathType": path["pathType"], "BackendProtocol": "HTTP", "Backend": "shop",
		"ExternalAuth": m{"URL": annotations["auth-url"], "Host": auth.Hostname(), "ProxySetHeaders": objects[headers].fields["data"]},
		"Connection":   m{"Enabled": annotations["connection-proxy-header"] != "", "Header": annotations["connection-proxy-header"]},
		"Proxy": m{
			"BodySize": "1m", "BufferSize": "4k", "BuffersNumber": 4, "RequestBuffering": "on", "ProxyBuffering": "off",
			"ConnectTimeout": 5, "ReadTimeout": 60, "SendTimeout": 60, "CookieDomain": "off", "CookiePath": "off", "NextUpstreamTimeout": 0,
			"NextUpstreamTries": 3, "ProxyRedirectFrom": "off", "ProxyRedirectTo": "off", "ProxyHTTPVersion": "1.1", "ProxyMaxTempFileSize": "1024m",
		},
		"ConfigurationSnippet": annotations["configuration-snippet"],
		"Logs":                 m{"Access": true},
		// What is not used.
		"Allowlist": m{"CIDR": ""}, "Denylist": m{"CIDR": ""}, "BasicDigestAuth": m{"Secured": false}, "CorsConfig": m{}, "FastCGI": m{}, "Mirror": m{}, "Opentelemetry": m{},
		"ProxySSL": m{}, "Redirect": m{}, "Rewrite": m{},
	}
	server := m{
		"Hostname": rule["host"], "ServerSnippet": annotations["server-snippet"], "Locations": []any{location},
		"CertificateAuth": m{"MatchCN": ""}, "ProxySSL": m{},
	}
	configuration := m{"GlobalExternalAuth": m{"URL": ""}}
	t, err := template.New("nginx.tmpl").Funcs(nginxFunctions(location)).Parse(string(source))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := t.ExecuteTemplate(&out, "SERVER", m{"First": m{"Cfg": configuration}, "Second": server}); err != nil {
		return "", err
	}
	return fmt.Sprintf(nginxFrame, rule["host"], tidied(out.String())), nil
}

// nginxAnnotations are the annotations of an Ingress for ingress-nginx, without their prefix. One that its
// documentation does not list is an error.
func nginxAnnotations(folder string, ingress object) (map[string]string, error) {
	page, err := os.ReadFile(filepath.Join(folder, "docs/user-guide/nginx-configuration/annotations.md"))
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{}
	all, _ := at(ingress.fields, "metadata", "annotations").(map[string]any)
	for name, value := range all {
		if !strings.Contains(string(page), "["+name+"](") {
			return nil, fmt.Errorf("ingress-nginx has no annotation %s", name)
		}
		annotations[strings.TrimPrefix(name, nginxAnnotation)] = value.(string)
	}
	return annotations, nil
}

// nginxFrame is what surrounds the server in the template, as far as the server needs it.
const nginxFrame = `# Made by tools/cluster (go test -run TestIngressNginx -update .) of deploy/examples/ingress-nginx.yaml and the
# template of ingress-nginx (Apache License 2.0), without Lua.
events {}

http {
  map $http_upgrade $connection_upgrade {
    default upgrade;
    '' '';
  }
  map $http_x_request_id $req_id {
    default $http_x_request_id;
    "" $request_id;
  }
  upstream upstream_balancer {
    server 127.0.0.1:9000;
    keepalive 320;
  }
  server {
    server_name %s;
%s  }
}
`

// nginxFunctions are those of the template that the server uses, for HTTP and one location, as ingress-nginx
// has them in internal/ingress/controller/template; the others return nothing.
func nginxFunctions(location map[string]any) template.FuncMap {
	f := template.FuncMap{}
	for _, name := range []string{
		"buildAuthResponseHeaders", "buildAuthUpstreamLuaHeaders", "buildCustomErrorDeps", "buildCustomErrorLocationsPerServer",
		"buildRateLimit", "buildRateLimitZones", "filterRateLimits", "serverConfig", "split",
	} {
		f[name] = func(...any) any { return nil }
	}
	for _, name := range []string{
		"buildAuthSignURL", "buildAuthSignURLLocation", "buildAuthUpstreamName", "buildCorsOriginRegex", "buildDenyVariable",
		"buildHTTPSListener", "buildLuaSharedDictionaries", "buildMirrorLocations", "buildModSecurityForLocation", "buildOpentelemetry",
		"buildOpentelemetryForLocation", "buildResolvers", "buildServerName", "changeHostPort", "configForLua", "extractHostPort",
		"formatIP", "getenv", "locationConfigForLua", "luaConfigurationRequestBodySize", "toLower", "toUpper", "trimSpace",
	} {
		f[name] = func(...any) string { return "" }
	}
	for _, name := range []string{
		"contains", "enforceRegexModifier", "hasSuffix", "isLocationInLocationList", "shouldApplyAuthUpstream", "shouldApplyGlobalAuth",
		"shouldLoadAuthDigestModule", "shouldLoadModSecurityModule", "shouldLoadOpentelemetryModule",
	} {
		f[name] = func(...any) bool { return false }
	}
	f["empty"] = func(v any) bool { s, ok := v.(string); return !ok || s == "" }
	f["quote"] = func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) }
	f["hasPrefix"] = strings.HasPrefix
	f["escapeLiteralDollar"] = func(v any) string { return strings.ReplaceAll(fmt.Sprint(v), "$", "${literal_dollar}") }
	f["isLocationAllowed"] = func(any) bool { return true }
	f["isValidByteSize"] = func(v any, _ bool) bool { return v != nil && v != "" }
	f["proxySetHeader"] = func(any) string { return "proxy_set_header" }
	f["buildHTTPListener"] = func(...any) string { return "listen 8080;" }
	f["buildLocation"] = func(...any) any { return location["Path"] }
	f["buildAuthLocation"] = func(...any) string {
		return fmt.Sprintf("/_external-auth-%s-%v", base64.RawURLEncoding.EncodeToString(fmt.Append(nil, location["Path"])), location["PathType"])
	}
	f["buildAuthProxySetHeaders"] = func(headers map[string]any) (lines []string) {
		for name, value := range headers {
			lines = append(lines, fmt.Sprintf("proxy_set_header '%v' '%v';", name, value))
		}
		slices.Sort(lines)
		return lines
	}
	f["buildUpstreamName"] = func(any) string { return "default-shop-80" }
	f["buildForwardedFor"] = func(any) string { return "$http_x_forwarded_for" }
	f["buildNextUpstream"] = func(...any) string { return "error timeout" }
	f["buildProxyPass"] = func(...any) string { return "proxy_pass http://upstream_balancer;" }
	f["getIngressInformation"] = func(...any) map[string]any {
		return map[string]any{"Namespace": "default", "Rule": "shop", "Service": "shop", "ServicePort": "80", "Path": location["Path"]}
	}
	return f
}

// tidied is a part of nginx.conf without Lua, comments and empty lines.
func tidied(conf string) string {
	var out strings.Builder
	lua, depth := 0, 2 // open braces
	for line := range strings.Lines(conf) {
		line = strings.TrimSpace(line)
		braces := strings.Count(line, "{") - strings.Count(line, "}")
		switch {
		case lua > 0:
			lua += braces
		case strings.Contains(line, "_by_lua_block {"):
			lua = braces
		case line != "" && !strings.HasPrefix(line, "#"):
			out.WriteString(strings.Repeat("  ", depth+min(braces, 0)) + line + "\n")
			depth += braces
		}
	}
	return out.String()
}
