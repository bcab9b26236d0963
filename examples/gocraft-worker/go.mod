module poolkeeper.dev/examples/gocraft-worker

go 1.23

require (
	github.com/gocraft/work v0.5.1
	github.com/gomodule/redigo v1.9.3
)

require github.com/robfig/cron v1.2.0 // indirect
