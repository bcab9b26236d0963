package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/gocraft/work"
)

// reporter writes one JSON object a line. Each line is one write, unbuffered: a crash loses none that was written, and
// lines of several workers never mix.
type reporter struct {
	out  *os.File
	pool string
	host string
	pid  int
}

func newReporter(out *os.File, pool string) (*reporter, error) {
	host, err := os.Hostname() // as the library's heartbeat
	if err != nil {
		return nil, err
	}
	return &reporter{out: out, pool: pool, host: host, pid: os.Getpid()}, nil
}

// line is one event. README.md describes the fields.
type line struct {
	Event       string          `json:"event"`
	JobID       string          `json:"job_id,omitempty"`
	Job         string          `json:"job,omitempty"`
	Pool        string          `json:"pool"`
	Host        string          `json:"host"`
	PID         int             `json:"pid"`
	Time        string          `json:"time"`
	N           any             `json:"n,omitempty"`
	Args        map[string]any  `json:"args,omitempty"`
	Fails       int64           `json:"fails,omitempty"`
	Error       string          `json:"error,omitempty"`
	Concurrency uint            `json:"concurrency,omitempty"`
	Jobs        map[string]uint `json:"jobs,omitempty"`
}

func (r *reporter) job(event string, job *work.Job, err error) {
	l := line{Event: event, JobID: job.ID, Job: job.Name, N: job.Args["n"], Args: job.Args, Fails: job.Fails}
	if err != nil {
		l.Error = err.Error()
	}
	r.write(l)
}

func (r *reporter) process(event string, cfg config) {
	jobs := map[string]uint{}
	for _, job := range cfg.jobs {
		jobs[job.name] = job.maxConcurrency
	}
	r.write(line{Event: event, Concurrency: cfg.concurrency, Jobs: jobs})
}

func (r *reporter) write(l line) {
	l.Pool, l.Host, l.PID = r.pool, r.host, r.pid
	l.Time = time.Now().UTC().Format(time.RFC3339Nano)
	data, err := json.Marshal(l)
	if err != nil {
		panic(err) // the fields are strings, numbers, and what was JSON before
	}
	// Nobody reading is no reason to stop working.
	_, _ = r.out.Write(append(data, '\n'))
}
