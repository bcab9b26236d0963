// Command gocraft-worker is an ordinary job worker made with gocraft/work, as its users write them. It knows nothing of
// poolkeeper. What a job does comes from the job's own arguments, so that one program plays every kind of job: short,
// long, failing, and one that takes its process down.
//
//	gocraft-worker                     work on jobs until SIGTERM
//	gocraft-worker enqueue JOB [...]   put jobs into the queue
//
// README.md beside this file lists the environment variables, the arguments of jobs and the lines on stdout.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/gomodule/redigo/redis"
)

// errUsage marks errors that the caller of the program has to mend: exit code 2, as for a bad environment.
var errUsage = errors.New("usage")

const usage = `usage: gocraft-worker                      work on jobs until SIGTERM
       gocraft-worker enqueue JOB [-n COUNT] [-args JSON] [-in SECONDS] [-unique]
`

func main() {
	// The library prints its errors with fmt.Printf. On stderr they don't mix with the JSON lines.
	stdout := os.Stdout
	os.Stdout = os.Stderr

	if err := run(os.Args[1:], stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, usage)
			return
		}
		fmt.Fprintln(os.Stderr, "gocraft-worker:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func run(args []string, stdout *os.File) error {
	switch {
	case len(args) == 0:
		cfg, err := workerConfig(os.LookupEnv)
		if err != nil {
			return err
		}
		return runWorker(cfg, stdout)
	case args[0] == "enqueue":
		order, err := parseEnqueue(args[1:])
		if err != nil {
			return err
		}
		target, err := targetConfig(os.LookupEnv)
		if err != nil {
			return err
		}
		return enqueue(target, order, stdout)
	case args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help":
		return flag.ErrHelp
	default:
		return badUsage("%q is not a command; the only one is enqueue", args[0])
	}
}

// badUsage makes an error of one sentence with exit code 2.
func badUsage(format string, args ...any) error {
	return usageError{fmt.Sprintf(format, args...)}
}

type usageError struct{ text string }

func (e usageError) Error() string   { return e.text }
func (e usageError) Is(t error) bool { return t == errUsage }

// newRedisPool makes connections for `users` goroutines at once. Without timeouts a half-open connection would hold its
// worker for ever, and without enough connections finishing a job could fail, which nothing in the library retries.
func newRedisPool(url string, users int) *redis.Pool {
	return &redis.Pool{
		MaxActive:   users,
		MaxIdle:     users,
		IdleTimeout: idleTimeout,
		Wait:        true,
		Dial: func() (redis.Conn, error) {
			return redis.DialURL(url,
				redis.DialConnectTimeout(dialTimeout),
				redis.DialReadTimeout(commandTimeout),
				redis.DialWriteTimeout(commandTimeout),
				redis.DialKeepAlive(keepAlive))
		},
	}
}
