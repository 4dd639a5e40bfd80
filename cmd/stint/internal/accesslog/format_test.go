package accesslog

import "testing"

// A format is taken as it stands in a configuration, or without what is around it there.
func TestFormats(t *testing.T) {
	const line = `192.0.2.7 [10/Oct/2000:13:55:36 +0000] "GET /a?b HTTP/1.1" 200` + "\t" + `"curl"`
	for _, format := range []string{
		`log_format main '$remote_addr [$time_local] "$request" $status	"$http_user_agent"';`,
		`log_format  main  escape=default  '$remote_addr [$time_local] '` + "\n\t\t" + `'"$request" ' '$status\t"$http_user_agent"' ;`,
		`log_format main "$remote_addr [$time_local] \"$request\" $status\t\"$http_user_agent\""`,
		`'$remote_addr [$time_local] "$request" '` + "\n" + `'$status	"$http_user_agent"'`,
		`escape=json '$remote_addr [$time_local] "$request" $status	"$http_user_agent"'`,
		`$remote_addr [$time_local] "$request" $status	"$http_user_agent"`,
		`${remote_addr} [${time_local}] "${request_method} ${request_uri} HTTP/1.1" $status	"$http_user_agent"`,
		`$remote_addr [$time_local] "$request_method $uri?$args $server_protocol" $status	"$http_user_agent"`,
		`LogFormat "%h %t \"%r\" %>s\t\"%{User-agent}i\"" mine`,
		`LogFormat "%a [%{%d/%b/%Y:%H:%M:%S %z}t] \"%m %U%q %H\" %s\t\"%400,501{User-Agent}i\""`,
		`CustomLog "logs/access_log" "%h %t \"%r\" %>s\t\"%{User-agent}i\""`,
		`CustomLog logs/access_log "%h %t \"%r\" %>s\t\"%{User-agent}i\"" env=!local`,
		`"%h %t \"%r\" %>s\t\"%{User-agent}i\""`,
		`%h %t "%r" %>s	"%{User-agent}i"`,
		`%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% [%START_TIME(%d/%b/%Y:%H:%M:%S %z)%] "%REQ(:METHOD)% %REQ(:PATH)% %PROTOCOL%" %RESPONSE_CODE%	"%REQ(USER-AGENT)%"`,
	} {
		got := readText(t, Options{Format: format}, line)
		if len(got) != 1 || got[0].At != at("2000-10-10T13:55:36Z") || got[0].Client != addr("192.0.2.7") || got[0].Method != "GET" || got[0].Target != "/a?b" ||
			got[0].Status != 200 || got[0].header("User-Agent") != "curl" {
			t.Errorf("%s: %+v", format, got)
		}
	}
	// A plain format may begin with a quote.
	for _, format := range []string{`"$request" "$status" [$time_local]`, `"%r" "%s" %t`} {
		if got := readText(t, Options{Format: format}, `"GET / HTTP/1.1" "200" [10/Oct/2000:13:55:36 +0000]`); len(got) != 1 || got[0].Target != "/" || got[0].Status != 200 {
			t.Errorf("%s: %+v", format, got)
		}
	}
}
