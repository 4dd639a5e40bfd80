module github.com/stintdev/stint/connectlimit

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/stintdev/stint v0.0.0
	github.com/stintdev/stint/rpclimit v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/andybalholm/brotli v1.3.0 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
