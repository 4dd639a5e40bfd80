package adminapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// A program bans a network for half an hour.
func Example() {
	limits := server.New(server.Config{Settings: config.Default(), Rules: new(rules.Set)})
	defer limits.Close()
	admin := httptest.NewServer(limits.Admin()) // stint serve has it at http://127.0.0.1:8090
	defer admin.Close()

	body, err := json.Marshal(adminapi.BanRequest{
		BanTarget: adminapi.BanTarget{Network: "192.0.2.0/24"},
		Term:      adminapi.Term{For: "30m", Reason: "attack"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := http.Post(admin.URL+"/v1/bans", "application/json", bytes.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	var ban adminapi.Ban
	err = json.NewDecoder(response.Body).Decode(&ban)
	fmt.Println(response.Status, ban.Network, ban.Reason, err)
	// Output: 201 Created 192.0.2.0/24 attack <nil>
}
