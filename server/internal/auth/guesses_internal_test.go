package auth

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stintdev/stint/server/config"
)

// Wrong tokens from many addresses, or many of them from few, do not let others guess without being
// counted; who has the right token is let in, as long as its address can be counted.
func TestGuessesWhereTheTableIsFull(t *testing.T) {
	for name, fill := range map[string]func(guess func(address, token string) bool){
		"many tokens": func(guess func(string, string) bool) {
			for i := range 2 * config.MaxWrongTokens {
				guess(fmt.Sprintf("192.0.2.%d:1", i%200), fmt.Sprint("token ", i))
			}
		},
		"many addresses": func(guess func(string, string) bool) {
			for i := range config.MaxWrongTokens + 100 {
				for j := range 31 {
					guess(fmt.Sprintf("[2001:db8:%x::1]:1", i), fmt.Sprint("token ", i, " ", j))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, none := newGuesses(nil), (*Tokens)(nil) // there are no right ones
			guess := func(address, token string) bool {
				_, ok, wait := g.find(&http.Request{RemoteAddr: address}, none, token)
				return !ok && wait == 0 // it was looked up
			}
			fill(guess)
			looked := 0
			for i := range 300 {
				if guess("198.51.100.1:1", fmt.Sprint("guess ", i)) {
					looked++
				}
			}
			if looked > 30 {
				t.Errorf("%d of 300 guesses of a new address were looked up", looked)
			}
		})
	}
}
