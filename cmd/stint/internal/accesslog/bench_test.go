package accesslog

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// manyLines is a log of about a million bytes per 5,000 lines, with a few clients, paths and lines in a second.
func manyLines(n int, line func(i int, when time.Time) string) string {
	var b strings.Builder
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		b.WriteString(line(i, begin.Add(time.Duration(i)*20*time.Millisecond)))
		b.WriteByte('\n')
	}
	return b.String()
}

const browser = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"

func combinedLine(i int, when time.Time) string {
	return fmt.Sprintf(`192.0.2.%d - - [%s] "GET /shop/item/%d?page=%d HTTP/1.1" 200 %d "https://www.example.com/shop" "%s"`,
		i%251, when.Format("02/Jan/2006:15:04:05 -0700"), i*7919%100_000, i%9, 500+i%4000, browser)
}

var benchForms = []struct {
	name string
	line func(i int, when time.Time) string
}{
	{"combined", combinedLine},
	{"combined IPv6 escaped", func(i int, when time.Time) string {
		return fmt.Sprintf(`2001:db8::%x - - [%s] "GET /shop/\x22item%d HTTP/1.1" 200 %d "-" "%s"`, i%251, when.Format("02/Jan/2006:15:04:05 -0700"), i, 500, browser)
	}},
	{"haproxy", func(i int, when time.Time) string {
		return fmt.Sprintf(`Mar  1 00:00:00 lb haproxy[14389]: 192.0.2.%d:33317 [%s] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {shop.example} {} "GET /item/%d HTTP/1.1"`,
			i%251, when.Format("02/Jan/2006:15:04:05.000"), i)
	}},
	{"alb", func(i int, when time.Time) string {
		stamp := when.Format("2006-01-02T15:04:05.000000Z")
		return fmt.Sprintf(`h2 %s app/lb/50dc6c495c0c9188 192.0.2.%d:2817 198.51.100.66:9000 0.000 0.002 0.000 200 200 5 257 "GET https://www.example.com:443/item/%d HTTP/2.0" "%s" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:targetgroup/t/73e2 "Root=1-58337327-72bd" "www.example.com" "-" 1 %s "forward" "-" "-" "198.51.100.66:9000" "200" "-" "-"`,
			stamp, i%251, i, browser, stamp)
	}},
	{"envoy", func(i int, when time.Time) string {
		return fmt.Sprintf(`[%s] "GET /item/%d HTTP/2" 204 - 154 0 226 100 "192.0.2.%d" "%s" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "shop.example" "tcp://198.51.100.1:80"`,
			when.Format("2006-01-02T15:04:05.000Z"), i, i%251, browser)
	}},
	{"stint", func(i int, when time.Time) string {
		return fmt.Sprintf(`time=%s level=INFO msg=request method=GET host=shop.example path=/item/%d proto=HTTP/1.1 status=200 bytes=5120 seconds=0.000250 outcome=allowed rule=client upstream=198.51.100.7:9001 client=192.0.2.%d decision=09bd64e1c22f7a85 limit="100 per 1m" remaining=41 used=59`,
			when.Format("2006-01-02T15:04:05.000Z"), i, i%251)
	}},
	{"caddy", func(i int, when time.Time) string {
		return fmt.Sprintf(`{"level":"info","ts":%.7f,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.%d","remote_port":"41342","client_ip":"192.0.2.%d","proto":"HTTP/2.0","method":"GET","host":"shop.example","uri":"/item/%d","headers":{"User-Agent":["%s"],"Accept":["*/*"],"Accept-Encoding":["gzip"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Type":["text/html; charset=utf-8"],"Date":["Wed, 09 Mar 2022 21:30:01 GMT"]}}`,
			float64(when.UnixMicro())/1e6, i%251, i%251, i, browser)
	}},
	{"json", func(i int, when time.Time) string {
		return fmt.Sprintf(`{"time":"%s","ip":"192.0.2.%d","method":"GET","path":"/item/%d","host":"shop.example","status":200,"user_agent":"%s"}`,
			when.Format(time.RFC3339Nano), i%251, i, browser)
	}},
	{"csv", func(i int, when time.Time) string {
		if i == 0 {
			return "time,ip,method,path,status,user_agent"
		}
		return fmt.Sprintf(`%s,192.0.2.%d,GET,/item/%d,200,"%s"`, when.Format("2006-01-02 15:04:05"), i%251, i, browser)
	}},
}

// BenchmarkOrder reads one log, whose lines are in order or not, from one file or from several.
func BenchmarkOrder(b *testing.B) {
	const n = 100_000
	inOrder := func(i int, when time.Time) string { return combinedLine(i, when) }
	for name, paths := range map[string][]string{
		"in order": {write(b, "a", manyLines(n, inOrder))},
		"out of order": {write(b, "a", manyLines(n, func(i int, when time.Time) string {
			return combinedLine(i, when.Add(-time.Duration(i*i%5_000)*time.Millisecond))
		}))},
		"four files": {write(b, "a", manyLines(n/4, inOrder)), write(b, "b", manyLines(n/4, inOrder)), write(b, "c", manyLines(n/4, inOrder)), write(b, "d", manyLines(n/4, inOrder))},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if read := drain(b, openLog(b, Options{}, paths...)); read != n {
					b.Fatal(read)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

func drain(b *testing.B, l *Log) (read int) {
	defer l.Close()
	for {
		some, err := l.Next()
		if err == io.EOF {
			return read
		}
		if err != nil {
			b.Fatal(err)
		}
		read += len(some)
	}
}

func BenchmarkRead(b *testing.B) {
	const n = 100_000
	for _, f := range benchForms {
		b.Run(f.name, func(b *testing.B) {
			text := manyLines(n, f.line)
			path := write(b, "access.log", text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			read := 0
			for b.Loop() {
				read += drain(b, openLog(b, Options{}, path))
			}
			b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "lines/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(read), "ns/line")
			b.ReportMetric(0, "ns/op")
		})
	}
}
