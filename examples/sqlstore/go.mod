module github.com/stintdev/stint/examples/sqlstore

go 1.26.0

replace github.com/stintdev/stint => ../..

require (
	github.com/jackc/pgx/v5 v5.13.0
	github.com/stintdev/stint v0.0.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
