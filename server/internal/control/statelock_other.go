//go:build !unix || solaris || aix

package control

import "os"

// lockFile does nothing here: two instances in one directory are not detected.
func lockFile(*os.File) error { return nil }
