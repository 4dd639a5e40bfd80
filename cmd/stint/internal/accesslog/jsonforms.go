package accesslog

// caddyKeys are of Caddy's access log. ts is when a request ended.
var caddyKeys = map[string]field{
	"ts": {role: ended}, "msg": {role: required, name: "handled request"}, "duration": {role: took}, "status": {role: status},
	"user_id": {role: user}, "$.request.remote_ip": {role: client}, "$.request.remote_addr": {role: peer}, "$.request.client_ip": {role: client, rank: 1},
	"$.request.method": {role: method}, "$.request.host": {role: host}, "$.request.uri": {role: target}, "$.request.headers": {role: anyHeader},
}

// caddyHides are the header fields whose values Caddy logs only if it is told to.
var caddyHides = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// traefikKeys are of Traefik's JSON. time is when a request ended, in whole seconds.
var traefikKeys = map[string]field{
	"StartUTC": {role: arrived, rank: 1}, "StartLocal": {role: arrived}, "time": {role: ended}, "ClientHost": {role: client, rank: 1}, "ClientAddr": {role: peer},
	"ClientUsername": {role: user}, "RequestMethod": {role: method}, "RequestPath": {role: target}, "RequestHost": {role: host},
	"RequestAddr": {role: host, rank: 1}, "DownstreamStatus": {role: status},
}

// traefikHeaders begins the members that are header fields of requests.
const traefikHeaders = "request_"

// wellKnown are names of members and of columns that mean the same wherever they are found: the variables of
// nginx, which people put into JSON; the keys of examples for Envoy, Istio and Envoy Gateway; and the like.
var wellKnown = func() map[string]field {
	all := map[string]field{}
	for f, names := range map[field][]string{
		{role: arrived, rank: 1}: {"start_time", "StartTime"},
		{role: arrived}:          {"time", "timestamp", "@timestamp", "ts", "datetime", "date_time", "time_iso8601", "time_local"},
		{role: client, rank: 2}:  {"client_ip", "clientip", "clientIp", "client_addr", "real_ip", "c-ip"},
		{role: client, rank: 1}:  {"ip", "client", "remote_addr", "remote_ip", "remoteip", "remoteAddr", "remote_address"},
		{role: peer, rank: 1}:    {"downstream_remote_address"},
		{role: client}:           {"realip_remote_addr", "downstream_direct_remote_address"},
		{role: request}:          {"request", "request_line"},
		{role: method}:           {"method", "request_method", "http_method", "verb", "cs-method"},
		{role: target}:           {"request_uri", "target"},
		{role: place}:            {"path", "uri", "url", "request_path", "cs-uri-stem", "x-envoy-origin-path"},
		{role: query}:            {"query", "query_string", "args", "cs-uri-query"},
		{role: host, rank: 1}:    {"http_host", "authority", ":authority"},
		{role: host}:             {"host", "cs-host"},
		{role: status}:           {"status", "status_code", "response_code", "statusCode", "http_status", "sc-status"},
		{role: user}:             {"user", "username", "remote_user", "user_id", "cs-username"},

		{role: header, name: "User-Agent"}:      {"user_agent", "user-agent", "useragent", "userAgent", "http_user_agent", "agent", "cs(User-Agent)"},
		{role: header, name: "Referer"}:         {"referer", "referrer", "http_referer", "http_referrer", "cs(Referer)"},
		{role: header, name: "X-Forwarded-For"}: {"x_forwarded_for", "x-forwarded-for", "http_x_forwarded_for", "xff"},
	} {
		for _, name := range names {
			all[name] = f
		}
	}
	return all
}()
