package config_test

import (
	"fmt"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// A file has settings and rules. What it leaves out is as in Default.
func Example() {
	settings, set, err := config.Read([]rules.File{{Name: "stint.yaml", Data: []byte(`
server:
  store: redis://localhost:6379
  decision_timeout: 50ms
rules:
  - {name: login, key: client.ip, limits: [5 per 1m]}
`)}}, nil)
	if err != nil {
		fmt.Println(err) // a line for each problem: stint.yaml:4:3: …
		return
	}
	fmt.Println(settings.Store, settings.DecisionTimeout, settings.UpstreamTimeout)
	fmt.Println(set.Rules[0].Name)
	// Output:
	// redis://localhost:6379 50ms 1m0s
	// login
}
