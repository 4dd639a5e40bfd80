package expr

import "testing"

// Which expressions are counted: those whose work a request could multiply.
func TestIsCounted(t *testing.T) {
	for source, want := range map[string]bool{
		`request.method == "POST" && request.path == "/login"`:        false,
		`request.path.startsWith("/api/")`:                            false,
		`request.headers["user-agent"].contains("badbot")`:            false,
		`request.headers["user-agent"].lowerAscii().contains("bot")`:  false,
		`request.path.matches("^/v[0-9]+/items$")`:                    false,
		`client.ip in cidr("10.0.0.0/8")`:                             false,
		`attrs.plan == "free"`:                                        false,
		`int(attrs.size) > 5`:                                         false,
		`attrs.a == attrs.b`:                                          true,
		`request.headers.exists(n, n.startsWith("x-"))`:               true,
		`request.path.contains(request.query["q"])`:                   true,
		`request.path.replace("a", request.path) == ""`:               true,
		`attrs.roles.exists(r, r == "admin")`:                         true,
		`request.path.split("/")[1] == "a"`:                           false,
		`(request.path + request.path + request.path).contains("ab")`: false,
	} {
		checked, issues := language().Compile(source)
		if issues.Err() != nil {
			t.Errorf("%s: %v", source, issues.Err())
			continue
		}
		if got := isCounted(checked); got != want {
			e, _ := language().EstimateCost(checked, shortTexts{})
			t.Errorf("%s: counted %t, want %t (%+v)", source, got, want, e)
		}
	}
}
