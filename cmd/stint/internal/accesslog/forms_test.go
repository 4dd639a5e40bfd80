package accesslog

import (
	"reflect"
	"testing"
	"time"
)

// Lines as each server writes them, and all that they say.
var formTests = []struct {
	name    string
	form    string // that is recognised
	options Options
	line    string // maybe after a first line of names
	want    Entry
	has     Fields
}{
	{
		name: "nginx combined", form: "combined",
		line: `192.0.2.7 - alice [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif?a=b HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"`,
		want: Entry{At: at("2000-10-10T20:55:36Z"), Client: addr("192.0.2.7"), Method: "GET", Target: "/apache_pb.gif?a=b", Status: 200, User: "alice",
			Header: headers("Referer", "http://www.example.com/start.html", "User-Agent", "Mozilla/4.08 [en] (Win98; I ;Nav)")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, User: true, Status: true, Headers: []string{"Referer", "User-Agent"}},
	},
	{
		name: "combined of an absolute URL, and more after it", form: "combined",
		line: `2001:db8::7 - - [10/Oct/2000:13:55:36 +0000] "GET http://Shop.example:8080?q HTTP/1.1" 301 0 "-" "-" 0.003 "-" pipe=.`,
		want: Entry{At: at("2000-10-10T13:55:36Z"), Client: addr("2001:db8::7"), Method: "GET", Target: "/?q", Host: "Shop.example:8080", Status: 301},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, User: true, Status: true, Headers: []string{"Referer", "User-Agent"}},
	},
	{
		name: "Apache common", form: "common",
		line: `www.example.com - "" [10/Oct/2000:13:55:36 -0700] "\x16\x03\x01" 400 -`,
		want: Entry{At: at("2000-10-10T20:55:36Z"), Status: 400},
		has:  Fields{Method: true, Path: true, Query: true, User: true, Status: true},
	},
	{
		name: "Apache vhost_combined", form: "vhost_combined",
		line: `www.example.com:443 ::ffff:192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "POST /a\"b\\c HTTP/1.1" 404 492 "-" "say \"hi\""`,
		want: Entry{At: at("2000-10-10T13:55:36Z"), Client: addr("192.0.2.7"), Method: "POST", Target: `/a"b\c`, Status: 404, Header: headers("User-Agent", `say "hi"`)},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, User: true, Status: true, Headers: []string{"Referer", "User-Agent"}},
	},
	{
		name: "nginx's own configuration", form: "main",
		line: `192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET /\x22 HTTP/1.1" 404 153 "-" "curl/8.5.0" "198.51.100.3, 203.0.113.9"`,
		want: Entry{At: at("2000-10-10T13:55:36Z"), Client: addr("192.0.2.7"), Method: "GET", Target: `/"`, Status: 404,
			Header: headers("User-Agent", "curl/8.5.0", "X-Forwarded-For", "198.51.100.3, 203.0.113.9")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, User: true, Status: true, Headers: []string{"Referer", "User-Agent", "X-Forwarded-For"}},
	},
	{
		name: "a log_format of nginx", form: "template",
		options: Options{Format: `log_format timed escape=default '$msec $remote_addr "$http_x_api_key" '` + "\n  '\"$request_method $scheme://$http_host$request_uri\" $status $request_time ${request_length}b';"},
		line:    `1700000000.750 192.0.2.7 "k 1" "PUT https://shop.example:8443/cart?x=1" 201 0.250 77b`,
		want: Entry{At: 1700000000_500000, Client: addr("192.0.2.7"), Method: "PUT", Target: "/cart?x=1", Host: "shop.example:8443", Status: 201,
			Header: headers("X-Api-Key", "k 1")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, Host: true, Status: true, Headers: []string{"X-Api-Key"}},
	},
	{
		name: "a bad request by a log_format of nginx", form: "template",
		options: Options{Format: `$remote_addr [$time_iso8601] "$request_method $http_host$request_uri" $status`},
		line:    `192.0.2.7 [2026-11-30T00:37:22+00:00] "- --" 400`,
		want:    Entry{At: at("2026-11-30T00:37:22Z"), Client: addr("192.0.2.7"), Status: 400},
		has:     Fields{Client: true, Method: true, Path: true, Query: true, Host: true, Status: true},
	},
	{
		name: "a log_format of nginx in JSON", form: "template",
		options: Options{Format: `log_format j escape=json '{"t":"$time_iso8601","ip":"$remote_addr","u":"$remote_user","uri":"$uri$is_args$args","m":"$request_method","h":"$host","s":$status,"ua":"$http_user_agent"}';`},
		line:    `{"t":"2023-11-14T22:13:20+01:00","ip":"192.0.2.7","u":"","uri":"/a\"b?c","m":"GET","h":"shop.example","s":200,"ua":"a\\b\u0007"}`,
		want: Entry{At: at("2023-11-14T21:13:20Z"), Client: addr("192.0.2.7"), Method: "GET", Target: `/a"b?c`, Host: "shop.example", Status: 200,
			Header: headers("User-Agent", "a\\b\a")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, Host: true, User: true, Status: true, Headers: []string{"User-Agent"}},
	},
	{
		name: "a LogFormat of Apache", form: "template",
		options: Options{Format: `LogFormat "%{%Y-%m-%d %H:%M:%S}t %a %{c}a %V \"%m %U%q %H\" %>s %D \"%{X-Forwarded-For}i\" \"%{X-Cache}o\" %u" mine`, Zone: time.FixedZone("", 3600)},
		line:    `2023-11-14 22:13:20 203.0.113.9 192.0.2.7 shop.example "GET /a?b HTTP/1.1" 200 1234 "203.0.113.9" "hit" bob smith`,
		want: Entry{At: at("2023-11-14T21:13:20Z"), Client: addr("203.0.113.9"), Method: "GET", Target: "/a?b", Host: "shop.example", Status: 200, User: "bob smith",
			Header: headers("X-Forwarded-For", "203.0.113.9")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, Host: true, User: true, Status: true, Headers: []string{"X-Forwarded-For"}},
	},
	{
		name: "Caddy", form: "caddy",
		line: `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.1","remote_port":"41342","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"localhost:8443","uri":"/a?b=\"c","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*","text/html"],"Cookie":["REDACTED"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read": 0,"user_id":"alice","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Type":["text/html; charset=utf-8"]}}`,
		want: Entry{At: at("2022-03-09T21:30:01.523172Z"), Client: addr("192.0.2.7"), Method: "GET", Target: `/a?b="c`, Host: "localhost:8443", Status: 200, User: "alice",
			Header: headers("User-Agent", "curl/7.82.0", "Accept", "*/*", "Accept", "text/html")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, Host: true, User: true, Status: true, AllHeadersBut: []string{"Authorization", "Cookie", "Proxy-Authorization"}},
	},
	{
		name: "Caddy before 2.5", form: "caddy",
		line: `{"level":"error","ts":1646861401.5,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_addr":"[2001:db8::7]:41342","proto":"HTTP/1.1","method":"GET","host":"example.com","uri":"/","headers":{}},"duration":0.5,"size":0,"status":502,"resp_headers":{}}`,
		want: Entry{At: at("2022-03-09T21:30:01Z"), Client: addr("2001:db8::7"), Method: "GET", Target: "/", Host: "example.com", Status: 502},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, Host: true, Status: true, AllHeadersBut: []string{"Authorization", "Cookie", "Proxy-Authorization"}},
	},
	{
		name: "Traefik JSON", form: "traefik-json",
		line: `{"ClientAddr":"192.0.2.7:51130","ClientHost":"203.0.113.9","ClientPort":"51130","ClientUsername":"-","DownstreamContentSize":19,"DownstreamStatus":404,"Duration":57300,"RequestAddr":"example.com:8080","RequestContentSize":0,"RequestCount":1,"RequestHost":"example.com","RequestMethod":"GET","RequestPath":"/a?b","RequestPort":"8080","RequestProtocol":"HTTP/1.1","RequestScheme":"http","StartLocal":"2021-03-05T12:58:32.205377+02:00","StartUTC":"2021-03-05T10:58:32.205377251Z","entryPointName":"web","level":"info","msg":"","request_User-Agent":"curl/7.64.1","request_X-Api-Key":"REDACTED","time":"2021-03-05T10:58:33Z"}`,
		want: Entry{At: at("2021-03-05T10:58:32.205377Z"), Client: addr("203.0.113.9"), Method: "GET", Target: "/a?b", Host: "example.com:8080", Status: 404,
			Header: headers("User-Agent", "curl/7.64.1")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, Host: true, User: true, Status: true, Headers: []string{"User-Agent"}},
	},
	{
		name: "Traefik", form: "traefik",
		line: `192.0.2.7 - - [05/Mar/2021:10:58:32 +0000] "GET /a"b" HTTP/1.1" 404 19 "-" "say:"hi"" 5 "web@docker" "http://198.51.100.2:80" 57ms`,
		want: Entry{At: at("2021-03-05T10:58:32Z"), Client: addr("192.0.2.7"), Method: "GET", Target: `/a"b"`, Status: 404, Header: headers("User-Agent", `say:"hi"`)},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, User: true, Status: true, Headers: []string{"Referer", "User-Agent"}},
	},
	{
		name: "Envoy", form: "envoy",
		line: `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations?x HTTP/2" 204 - 154 0 226 100 "203.0.113.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://198.51.100.1:80"`,
		want: Entry{At: at("2016-04-15T20:17:00.310Z"), Method: "POST", Target: "/api/v1/locations?x", Host: "locations", Status: 204,
			Header: headers("X-Forwarded-For", "203.0.113.28", "User-Agent", "nsq2http", "X-Request-Id", "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2")},
		has: Fields{Method: true, Path: true, Query: true, Host: true, Status: true, Headers: []string{"User-Agent", "X-Forwarded-For", "X-Request-Id"}},
	},
	{
		name: "Istio", form: "istio",
		line: `[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "198.51.100.9:80" inbound|8000|| 127.0.0.1:41854 198.51.100.9:80 192.0.2.7:37652 outbound_.8000_._.httpbin.foo.svc.cluster.local default`,
		want: Entry{At: at("2020-11-25T21:26:18.409Z"), Client: addr("192.0.2.7"), Method: "GET", Target: "/status/418", Host: "httpbin:8000", Status: 418,
			Header: headers("User-Agent", "curl/7.73.0-DEV", "X-Request-Id", "84961386-6d84-929d-98bd-c5aee93b5c88")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, Host: true, Status: true, Headers: []string{"User-Agent", "X-Forwarded-For", "X-Request-Id"}},
	},
	{
		name: "Istio's JSON", form: "json",
		line: `{"authority":"httpbin:8000","bytes_received":0,"downstream_local_address":"198.51.100.9:80","downstream_remote_address":"192.0.2.7:36046","duration":2,"method":"GET","path":"/get?a","protocol":"HTTP/1.1","request_id":"2e5e-4c","response_code":200,"response_flags":"-","start_time":"2021-06-18T09:42:30.310Z","upstream_host":null,"user_agent":"curl/7.76","x_forwarded_for":null}`,
		want: Entry{At: at("2021-06-18T09:42:30.310Z"), Client: addr("192.0.2.7"), Method: "GET", Target: "/get?a", Host: "httpbin:8000", Status: 200, Header: headers("User-Agent", "curl/7.76")},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, Host: true, Status: true, Headers: []string{"User-Agent"}},
	},
	{
		name: "a format of Envoy", form: "template",
		options: Options{Format: `[%START_TIME(%s.%6f)%] %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% "%REQ(:METHOD)% %REQ(:PATH)%" %RESPONSE_CODE% "%REQ(X-Api-Key)%"` + `\n`},
		line:    `[1700000000.123456] 2001:db8::7 "GET /a" 200 "k"`,
		want:    Entry{At: 1700000000_123456, Client: addr("2001:db8::7"), Method: "GET", Target: "/a", Status: 200, Header: headers("X-Api-Key", "k")},
		has:     Fields{Client: true, Method: true, Path: true, Query: true, Status: true, Headers: []string{"X-Api-Key"}},
	},
	{
		name: "HAProxy after syslog's prefix", form: "haproxy", options: Options{Zone: time.FixedZone("", -3600)},
		line: `Feb  6 12:14:14 localhost haproxy[14389]: 192.0.2.7:33317 [06/Feb/2009:12:14:14.655] http-in~ static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {shop.example|a b} {} "GET /index.html#23?a=#22 HTTP/1.1"`,
		want: Entry{At: at("2009-02-06T13:14:14.655Z"), Client: addr("192.0.2.7"), Method: "GET", Target: `/index.html#?a="`, Status: 200},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, Status: true},
	},
	{
		name: "HAProxy, a bad request of IPv6", form: "haproxy",
		line: `2001:db8::7:33317 [06/Feb/2009:12:14:14.655] http-in http-in/<NOSRV> -1/-1/-1/-1/+50002 -1 0 - - cR-- 2/2/2/2/+2 0/0 "<BADREQ>"`,
		want: Entry{At: at("2009-02-06T12:14:14.655Z"), Client: addr("2001:db8::7")},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, Status: true},
	},
	{
		name: "ALB", form: "alb",
		line: `h2 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.0.2.7:2817 198.51.100.66:9000 0.000 0.002 0.000 200 200 5 257 "GET https://www.example.com:443/a?b HTTP/2.0" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337327-72bd00b0343d75b906739c42" "-" "-" 1 2018-07-02T22:22:48.364000Z "redirect" "https://example.com:80/" "-" "198.51.100.66:9000" "200" "-" "-" TID_1234abcd`,
		want: Entry{At: at("2018-07-02T22:22:48.364Z"), Client: addr("192.0.2.7"), Method: "GET", Target: "/a?b", Host: "www.example.com", Status: 200, Header: headers("User-Agent", "curl/7.46.0")},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, Status: true, Headers: []string{"User-Agent"}},
	},
	{
		name: "ALB, as it was and malformed", form: "alb",
		line: `http 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.0.2.7:2817 - -1 -1 -1 400 - 34 366 "- http://www.example.com:80- -" "-" - -`,
		want: Entry{At: at("2018-07-02T22:23:00.186641Z"), Client: addr("192.0.2.7"), Status: 400},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, Status: true, Headers: []string{"User-Agent"}},
	},
	{
		name: "stint serve", form: "stint",
		line: `time=2026-11-30T10:00:00.500Z level=INFO msg=request method=GET host=shop.example path=/cart proto=HTTP/1.1 status=200 bytes=5120 seconds=0.25 outcome=allowed rule=client upstream=198.51.100.7:9001 client=192.0.2.7 request_id=7f3c decision=09bd64e1c22f7a85 limit="100 per 1m" remaining=41 used=59`,
		want: Entry{At: at("2026-11-30T10:00:00.250Z"), Client: addr("192.0.2.7"), Method: "GET", Target: "/cart", Host: "shop.example", Status: 200, Header: headers("X-Request-Id", "7f3c")},
		has:  Fields{Client: true, Method: true, Path: true, Host: true, Status: true, Headers: []string{"X-Request-Id"}},
	},
	{
		name: "stint serve, hashed, of a path that is not UTF-8", form: "stint",
		line: `time=2026-11-30T10:00:00.500Z level=INFO msg=request method=GET host=shop.example path="/a\\xff\\\"b" proto=HTTP/1.1 status=404 bytes=0 seconds=0.25 outcome=limited client=h:3e1d70a94bc2f586`,
		want: Entry{At: at("2026-11-30T10:00:00.250Z"), Method: "GET", Target: "/a\xff\"b", Host: "shop.example", Status: 404},
		has:  Fields{Method: true, Path: true, Host: true, Status: true},
	},
	{
		name: "stint serve in JSON", form: "stint-json",
		line: `{"time":"2026-11-30T10:00:01+01:00","level":"INFO","msg":"request","method":"GET","host":"shop.example","path":"/cart","proto":"HTTP/1.1","status":200,"bytes":5120,"seconds":1.5e-1,"outcome":"allowed","client":"192.0.2.7"}`,
		want: Entry{At: at("2026-11-30T09:00:00.850Z"), Client: addr("192.0.2.7"), Method: "GET", Target: "/cart", Host: "shop.example", Status: 200},
		has:  Fields{Client: true, Method: true, Path: true, Host: true, Status: true},
	},
	{
		name: "JSON lines by fields", form: "json",
		options: Options{Fields: `time=$.t, ip=$.net.peers[1], method=$.m, path=$['http.url'], host=$.h, status=$.s, user=$.u, operation=$.op, cost=$.n, header.x-api-key=$.k, attrs.plan=$.a.plan, attrs.beta=$.a.beta`},
		line:    `{"t":1700000000123,"net":{"peers":["198.51.100.1","192.0.2.7",{"x":[1,"]}"]}]},"m":"GET","http.url":"https://shop.example/a?b#c","s":"200","u":"-","op":"search","n":12,"k":"secret","a":{"plan":"pro","beta":true,"gamma":null}}`,
		want: Entry{At: 1700000000_123000, Client: addr("192.0.2.7"), Method: "GET", Target: "/a?b#c", Host: "shop.example", Status: 200, Operation: "search", Cost: 12,
			Header: headers("X-Api-Key", "secret"), Attrs: headers("plan", "pro", "beta", "true")},
		has: Fields{Client: true, Method: true, Path: true, Query: true, User: true, Status: true, Operation: true, Cost: true, Headers: []string{"X-Api-Key"}, Attrs: []string{"beta", "plan"}},
	},
	{
		name: "CSV by well-known names", form: "csv",
		line: "\ufeffTimestamp;Client IP;Method;Path;Query;\"Status\";User-Agent;note\r\n" + `2023-11-14 22:13:20.5;192.0.2.7;GET;/a;b=1;200;"say ""hi"";";x`,
		want: Entry{At: at("2023-11-14T22:13:20.5Z"), Client: addr("192.0.2.7"), Method: "GET", Target: "/a?b=1", Status: 200, Header: headers("User-Agent", `say "hi";`), Line: 2},
		has:  Fields{Client: true, Method: true, Path: true, Query: true, Status: true, Headers: []string{"User-Agent"}},
	},
	{
		name: "CSV by fields, of an operation", form: "csv", options: Options{Fields: "time=when,operation=what,cost=tokens,attrs.plan=plan"},
		line: "what,when,tokens,plan\nchat,1700000000.25,512,",
		want: Entry{At: 1700000000_250000, Operation: "chat", Cost: 512, Attrs: headers("plan", ""), Line: 2},
		has:  Fields{Operation: true, Cost: true, Attrs: []string{"plan"}},
	},
}

func TestForms(t *testing.T) {
	for _, test := range formTests {
		t.Run(test.name, func(t *testing.T) {
			if test.want.Line == 0 {
				test.want.Line = 1
			}
			// With and without the last line's end, and with that of Windows.
			for _, end := range []string{"\n", "", "\r\n"} {
				l := openLog(t, test.options, write(t, "access.log", test.line+end))
				got := readAll(t, l)
				if n, first := l.Unread(); n > 0 {
					t.Fatalf("unread: %+v", first)
				}
				if len(got) != 1 || !reflect.DeepEqual(got[0], test.want) {
					t.Errorf("got  %+v\nwant %+v", got, test.want)
				}
				if form := l.Sources()[0].Form; form != test.form {
					t.Errorf("the form is %s: want %s", form, test.form)
				}
				if has := l.Has(); !reflect.DeepEqual(has, test.has) {
					t.Errorf("it has %+v\nwant   %+v", has, test.has)
				}
			}
		})
	}
}
