package stint

import "context"

type (
	subjectKey struct{}
	clientKey  struct{}
)

// WithSubject returns a copy of ctx that says on whose behalf something is done, such
// as the ID of the user who logged in. A Guard without a Key counts by it. "" says
// nothing. It ends up in the store's keys as it is: hash what is secret.
func WithSubject(ctx context.Context, subject string) context.Context {
	return context.WithValue(ctx, subjectKey{}, subject)
}

// Subject is what WithSubject said last; "" if nothing.
func Subject(ctx context.Context) string {
	s, _ := ctx.Value(subjectKey{}).(string)
	return s
}

// WithClient returns a copy of ctx that says which address a request came from, in the
// text that it counts by. httplimit.Middleware does so where its Clients are set. A Guard
// without a Key counts by it where there is no Subject. "" says nothing.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// Client is what WithClient said last; "" if nothing.
func Client(ctx context.Context) string {
	c, _ := ctx.Value(clientKey{}).(string)
	return c
}

// callerOf is the key of a Guard that has no Key. No subject can pass for a client.
func callerOf(ctx context.Context) string {
	if s := Subject(ctx); s != "" {
		return "subject=" + s
	}
	if c := Client(ctx); c != "" {
		return "client=" + c
	}
	return ""
}
