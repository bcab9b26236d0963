package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gocraft/work"
)

// order says which jobs to enqueue.
type order struct {
	job    string
	count  int
	args   map[string]any
	in     int64
	unique bool
}

func parseEnqueue(args []string) (order, error) {
	o := order{}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.job, args = args[0], args[1:]
	}
	fs := flag.NewFlagSet("enqueue", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&o.count, "n", 1, "")
	fs.Int64Var(&o.in, "in", 0, "")
	fs.BoolVar(&o.unique, "unique", false, "")
	fs.Func("args", "", func(s string) (err error) {
		o.args, err = parseArgs(s)
		return err
	})
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, badUsage("%v", err)
	}
	switch {
	case o.job == "" && fs.NArg() == 1:
		o.job = fs.Arg(0)
	case o.job == "" || fs.NArg() > 0:
		return o, badUsage("enqueue wants exactly one JOB; then come -n, -args, -in and -unique")
	}
	if o.count < 1 || o.in < 0 {
		return o, badUsage("-n must be at least 1 and -in must not be negative")
	}
	return o, nil
}

// parseArgs keeps numbers as they are written: as float64, large integers would lose digits.
func parseArgs(s string) (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var args map[string]any
	if err := d.Decode(&args); err != nil {
		return nil, errors.New(`want a JSON object such as {"ms":500}`)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("want one JSON object and nothing after it")
	}
	return args, nil
}

// enqueue puts the jobs into the queue through the library's own Enqueuer and prints the id of each, one a line. Unique
// jobs that are in the queue already are passed over.
func enqueue(t target, o order, stdout *os.File) error {
	pool := newRedisPool(t.redisURL, 2)
	defer pool.Close()
	enqueuer := work.NewEnqueuer(t.namespace, pool)
	for range o.count {
		job, err := enqueueOne(enqueuer, o)
		if err != nil {
			return fmt.Errorf("%s was not enqueued: %w", o.job, err)
		}
		if job != nil {
			fmt.Fprintln(stdout, job.ID)
		}
	}
	return nil
}

func enqueueOne(e *work.Enqueuer, o order) (*work.Job, error) {
	if o.in == 0 {
		if o.unique {
			return e.EnqueueUnique(o.job, o.args)
		}
		return e.Enqueue(o.job, o.args)
	}
	enqueueIn := e.EnqueueIn
	if o.unique {
		enqueueIn = e.EnqueueUniqueIn
	}
	scheduled, err := enqueueIn(o.job, o.in, o.args)
	if scheduled == nil || err != nil {
		return nil, err
	}
	return scheduled.Job, nil
}
