package accesslog

// templateForms are the forms of lines that are read by templates, the longer first.
func templateForms() []form {
	return []form{
		templateForm("alb", alb(albLong+" $more"), alb(albLong), alb(albShort+" $more"), alb(albShort)),
		templateForm("istio", must(compile(istio))),
		templateForm("envoy", must(compile(envoy))),
		templateForm("traefik", must(dollarTemplate(traefik, true, variablesOf(traefikVariables)))),
		templateForm("main", must(compile(mainOfNginx))),
		templateForm("vhost_combined", must(compile(vhostCombined))),
		templateForm("combined", withMore(must(compile(combined)))),
		templateForm("common", must(compile(commonLog))),
	}
}

// These are alike in nginx and Apache. Of combined, more may follow, as people add to it; in mainOfNginx, of the
// configuration that comes with nginx, it is known. The %v of vhostCombined is the name of a virtual host, and
// not the host of the request.
const (
	commonLog     = `%h %l %u %t "%r" %>s %b`
	combined      = commonLog + ` "%{Referer}i" "%{User-Agent}i"`
	vhostCombined = `%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"`
	mainOfNginx   = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for"`
)

// The default of Envoy has no address of the peer. Its last address in X-Forwarded-For is the peer's only under
// some settings, so the client is unknown.
const envoy = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
	`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
	`"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`

const istio = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
	`%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" ` +
	`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
	`"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% ` +
	`%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%`

// traefik is its common format. It escapes nothing.
const traefik = `$client - $user [$time] "$request" $status $size "$referer" "$agent" $count "$router" "$server" ${lasted}ms`

var traefikVariables = map[string]variable{
	"client": {field: field{role: client}, kind: word}, "user": {field: field{role: user}}, "time": {field: field{role: arrived}, kind: common},
	"request": {field: field{role: request}}, "status": {field: field{role: status}, kind: digits}, "size": {kind: digits}, "count": {kind: digits},
	"referer": {field: field{role: header, name: "Referer"}}, "agent": {field: field{role: header, name: "User-Agent"}}, "lasted": {kind: digits},
	"router": {}, "server": {},
}

// Of AWS's Application Load Balancer. The time at the beginning is that of the response, and stands alone in
// old logs; that near the end is of the request.
const (
	albShort = `$type $ended $elb $client $target $wait1 $wait2 $wait3 $status $theirs $received $sent "$request" "$agent" $cipher $tls`
	albLong  = albShort + ` $group "$trace" "$domain" "$certificate" $priority $created`
)

var albVariables = map[string]variable{
	"ended": {field: field{role: ended}, kind: word}, "created": {field: field{role: arrived}, kind: word},
	"client": {field: field{role: peer}, kind: word}, "status": {field: field{role: status}, kind: digits},
	"request": {field: field{role: request}}, "agent": {field: field{role: header, name: "User-Agent"}}, "more": {},
}

func alb(format string) *template {
	return must(dollarTemplate(format, false, variablesOf(albVariables)))
}

// variablesOf are those of a map; others are words that are skipped.
func variablesOf(known map[string]variable) func(string) variable {
	return func(name string) variable {
		if v, ok := known[name]; ok {
			return v
		}
		return variable{kind: word}
	}
}

// must is for formats of ours.
func must(t *template, err error) *template {
	if err != nil {
		panic(err)
	}
	return t
}

func withMore(t *template) *template {
	t.more = true
	return t
}
