package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"syscall"
	"time"

	"github.com/gocraft/work"
)

// crashStatus is what a shell and a container runtime report for a process ended by SIGKILL. A container's first process
// cannot send itself that signal, so a crash is an exit with this status: just as abrupt, without any clean-up.
const crashStatus = 137

// runWorker runs one worker pool until SIGTERM or SIGINT, then lets the running jobs finish. A second signal ends the process
// at once.
func runWorker(cfg config, stdout *os.File) error {
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer restore()

	pool, err := newWorkerPool(cfg, stdout)
	if err != nil {
		return err
	}
	pool.report.process("process-start", cfg)
	pool.Start()
	<-ctx.Done()
	restore()
	pool.report.process("process-stopping", cfg)
	pool.Stop()
	pool.report.process("process-stop", cfg)
	return nil
}

type workerPool struct {
	*work.WorkerPool
	report *reporter
}

func newWorkerPool(cfg config, stdout *os.File) (workerPool, error) {
	// At once: each worker and its observer, the heartbeat, two requeuers, the reaper, the cron, and the start's writes.
	connections := 2*int(cfg.concurrency) + 8
	pool := work.NewWorkerPool(struct{}{}, cfg.concurrency, cfg.namespace, newRedisPool(cfg.redisURL, connections))
	id, err := poolID(pool)
	if err != nil {
		return workerPool{}, err
	}
	report, err := newReporter(stdout, id)
	if err != nil {
		return workerPool{}, err
	}
	for _, job := range cfg.jobs {
		pool.JobWithOptions(job.name, work.JobOptions{
			MaxConcurrency: job.maxConcurrency,
			MaxFails:       cfg.maxFails,
		}, func(job *work.Job) error { return handle(job, report) })
	}
	return workerPool{pool, report}, nil
}

var poolIDForm = regexp.MustCompile(`^[0-9a-f]{24}$`)

// poolID reads the pool's id, which the library keeps to itself (worker_pool.go, field workerPoolID). Looking for our host
// and pid among the heartbeats in Redis would be the other way, but that finds several pools where containers share a host
// name (every container's first process has pid 1), and nothing at all before the first heartbeat, which comes after the
// first job was taken. The field is there from the start and certain; go.mod pins the version in which it was read.
func poolID(pool *work.WorkerPool) (string, error) {
	field := reflect.ValueOf(pool).Elem().FieldByName("workerPoolID")
	if !field.IsValid() || field.Kind() != reflect.String || !poolIDForm.MatchString(field.String()) {
		return "", errors.New("this version of gocraft/work keeps no pool id in WorkerPool.workerPoolID; go back to v0.5.1")
	}
	return field.String(), nil
}

// handle runs one job: it takes `ms`, then crashes the process, fails, or ends well, as the job's arguments say.
func handle(job *work.Job, report *reporter) error {
	report.job("start", job, nil)
	err := perform(job)
	if err != nil {
		report.job("fail", job, err)
		return err
	}
	report.job("end", job, nil)
	return nil
}

func perform(job *work.Job) error {
	duration, err := duration(job.Args["ms"])
	if err != nil {
		return err
	}
	time.Sleep(duration) // the job's work
	if job.Args["crash"] == true {
		os.Exit(crashStatus)
	}
	switch fail := job.Args["fail"].(type) {
	case bool:
		if fail {
			return errors.New("this job was told to fail")
		}
	case string:
		return errors.New(fail)
	}
	return nil
}

// duration is the job's `ms`; no such argument means that the job takes no time.
func duration(ms any) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	n, ok := ms.(float64)
	if !ok || n < 0 || n > 24*60*60*1000 {
		return 0, fmt.Errorf("the job's argument ms is %v; want milliseconds, at most a day", ms)
	}
	return time.Duration(n * float64(time.Millisecond)), nil
}
