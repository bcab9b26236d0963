package main

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	dialTimeout    = 5 * time.Second
	commandTimeout = 10 * time.Second
	keepAlive      = 30 * time.Second
	idleTimeout    = 4 * time.Minute
)

// target is where jobs are: a Redis and the namespace in it.
type target struct {
	redisURL  string
	namespace string
}

// config is what a worker process needs to know.
type config struct {
	target
	concurrency uint
	maxFails    uint
	jobs        []jobType
}

// jobType is one kind of job and its compiled-in cap, as the library's MaxConcurrency: 0 means none.
type jobType struct {
	name           string
	maxConcurrency uint
}

type lookup func(name string) (string, bool)

func targetConfig(env lookup) (target, error) {
	t := target{}
	var set bool
	if t.redisURL, set = env("REDIS_URL"); !set || t.redisURL == "" {
		return t, badUsage("REDIS_URL is not set; give redis://[user:password@]host:port/database")
	}
	if !validRedisURL(t.redisURL) { // the value may hold a password: it is not repeated
		return t, badUsage("REDIS_URL is not of the form redis://[user:password@]host:port/database, or rediss:// for TLS")
	}
	if t.namespace, set = env("WORK_NAMESPACE"); !set {
		return t, badUsage("WORK_NAMESPACE is not set; give the gocraft/work namespace, such as work")
	}
	return t, nil
}

func validRedisURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" {
		return false
	}
	database := strings.TrimPrefix(u.Path, "/")
	if database == "" {
		return true
	}
	_, err = strconv.ParseUint(database, 10, 16)
	return err == nil
}

func workerConfig(env lookup) (config, error) {
	t, err := targetConfig(env)
	if err != nil {
		return config{}, err
	}
	c := config{target: t}
	if c.concurrency, err = positive(env, "WORK_CONCURRENCY", 10); err != nil {
		return c, err
	}
	if c.maxFails, err = positive(env, "WORK_MAX_FAILS", 4); err != nil {
		return c, err
	}
	jobs, _ := env("WORK_JOBS")
	c.jobs, err = parseJobs(jobs)
	return c, err
}

// positive reads a number from 1 to 10000: the library takes 0 as its own default, or as no workers at all.
func positive(env lookup, name string, otherwise uint) (uint, error) {
	value, set := env(name)
	if !set || value == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n < 1 || n > 10000 {
		return 0, badUsage("%s=%q is not a number from 1 to 10000", name, value)
	}
	return uint(n), nil
}

func parseJobs(value string) ([]jobType, error) {
	if value == "" {
		return nil, badUsage("WORK_JOBS is not set; give job types and their caps, such as send_email:4,report:0")
	}
	var jobs []jobType
	seen := map[string]bool{}
	for _, item := range strings.Split(value, ",") {
		i := strings.LastIndexByte(item, ':')
		if i < 1 {
			return nil, badUsage("WORK_JOBS has %q, which is not NAME:CAP (0 for no cap)", item)
		}
		limit, err := strconv.ParseUint(item[i+1:], 10, 31)
		if err != nil {
			return nil, badUsage("WORK_JOBS has %q, whose cap is not a number (0 for no cap)", item)
		}
		name := item[:i]
		if seen[name] {
			return nil, badUsage("WORK_JOBS names %q twice; name each job type once", name)
		}
		seen[name] = true
		jobs = append(jobs, jobType{name: name, maxConcurrency: uint(limit)})
	}
	return jobs, nil
}
