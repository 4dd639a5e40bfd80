// Package frameworks puts Stint's limits before the handlers of web frameworks: copy the function of
// yours. Each is tested for what adapters lose: the status and the end of a request, and its headers.
package frameworks
