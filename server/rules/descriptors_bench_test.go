package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// manyDescriptors is a file with n descriptors of two levels, a tenth of them with patterns.
func manyDescriptors(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range n {
		star := ""
		if i%10 == 9 {
			star = "*"
		}
		fmt.Fprintf(&b, "  - key: path\n    value: /v1/%d%s\n    descriptors:\n      - key: user\n        rate_limit: {unit: minute, requests_per_unit: 100}\n", i, star)
	}
	b.WriteString("  - key: remote_address\n    rate_limit: {unit: second, requests_per_unit: 10}\n")
	return b.String()
}

// A call costs the same with 10,000 descriptors as with 10.
func BenchmarkDescriptors(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		s := envoy(b, manyDescriptors(n))
		for _, c := range []struct {
			name string
			in   *rules.Input
		}{
			{"one", call("d", "remote_address=192.0.2.1")},
			{"two", call("d", "remote_address=192.0.2.1", fmt.Sprintf("path=/v1/%d user=ann", n-2))},
			{"pattern", call("d", fmt.Sprintf("path=/v1/%d/x user=ann", n-1))},
			{"none", call("d", "path=/v2/x user=ann")},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				var m rules.Plan
				for b.Loop() {
					if err := s.Asks(c.in, &m); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkParseDescriptors(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		files := []rules.File{{Name: "d.yaml", Data: []byte(manyDescriptors(n)), Envoy: true}}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rules.ParseFiles(files); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
