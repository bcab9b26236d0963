package main

import (
	"slices"
	"strings"
	"testing"
)

// environment is a lookup in "K=V" strings, laid over one that is complete and right.
func environment(changes ...string) lookup {
	all := append([]string{"REDIS_URL=redis://redis:6379/0", "WORK_NAMESPACE=work", "WORK_JOBS=a:1"}, changes...)
	return func(name string) (string, bool) {
		for _, pair := range slices.Backward(all) {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

func TestDefaultsAndValues(t *testing.T) {
	c, err := workerConfig(environment())
	if err != nil || c.concurrency != 10 || c.maxFails != 4 {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = workerConfig(environment("WORK_NAMESPACE=", "WORK_CONCURRENCY=3", "WORK_MAX_FAILS=1", "WORK_JOBS=a:b:4,report:0"))
	if err != nil || c.namespace != "" || c.concurrency != 3 || c.maxFails != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if want := []jobType{{"a:b", 4}, {"report", 0}}; !slices.Equal(c.jobs, want) {
		t.Errorf("jobs %+v", c.jobs)
	}
}

func TestEachBadValueIsRefusedByName(t *testing.T) {
	for _, bad := range []string{
		"REDIS_URL=", "REDIS_URL=redis:6379", "REDIS_URL=http://redis", "REDIS_URL=redis://", "REDIS_URL=redis://redis/x",
		"WORK_CONCURRENCY=0", "WORK_CONCURRENCY=-1", "WORK_CONCURRENCY=many", "WORK_MAX_FAILS=0",
		"WORK_JOBS=", "WORK_JOBS=a", "WORK_JOBS=a:x", "WORK_JOBS=:1", "WORK_JOBS=a:1,a:2", "WORK_JOBS=a:1,",
	} {
		name, _, _ := strings.Cut(bad, "=")
		if _, err := workerConfig(environment(bad)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := targetConfig(func(string) (string, bool) { return "", false }); err == nil {
		t.Error("an empty environment was accepted")
	}
}

func TestEnqueueRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for _, bad := range [][]string{
		{}, {"a", "b"}, {"a", "-n", "0"}, {"a", "-in", "-1"}, {"a", "-args", "[]"}, {"a", "-args", "{} {}"}, {"a", "-args", "{"}, {"a", "-what"},
	} {
		if _, err := parseEnqueue(bad); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}
