// Package container runs programs in tests as the runtime of a container does: with a root folder that they
// cannot write, as a user without capabilities, and with a network of their own if they are to have one. It
// needs Linux and root.
package container
