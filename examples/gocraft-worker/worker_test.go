package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// TestMain lets the test binary play the worker, so that the tests run the program itself in processes of its own.
func TestMain(m *testing.M) {
	if os.Getenv("GOCRAFT_WORKER_TEST_MAIN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is a running worker, whose lines arrive on a channel that is closed at its end.
type process struct {
	cmd   *exec.Cmd
	lines chan line
}

func program(redisURL string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GOCRAFT_WORKER_TEST_MAIN=1", "REDIS_URL="+redisURL, "WORK_NAMESPACE=work",
		"WORK_JOBS=send_email:2,report:0", "WORK_CONCURRENCY=3", "WORK_MAX_FAILS=1")
	return cmd
}

func startWorker(t *testing.T, redisURL string) process {
	t.Helper()
	p := process{cmd: program(redisURL), lines: make(chan line, 100)}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			var l line
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				l.Error = fmt.Sprintf("not JSON: %s", s.Bytes())
			}
			p.lines <- l
		}
	}()
	return p
}

// next waits for the next line, which must be the event.
func (p process) next(t *testing.T, event string) line {
	t.Helper()
	select {
	case l := <-p.lines:
		if l.Event != event {
			t.Fatalf("want %s, got %+v", event, l)
		}
		return l
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s within 20 s", event)
	}
	return line{}
}

// startRedis starts a server of this test's own and waits until it answers.
func startRedis(t *testing.T) (url string, conn redis.Conn) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	server := exec.Command("redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	url = fmt.Sprintf("redis://127.0.0.1:%d/0", port)
	eventually(t, "an answer of redis-server", func() bool {
		if conn, err = redis.DialURL(url); err != nil {
			return false
		}
		_, err = conn.Do("PING")
		return err == nil
	})
	return url, conn
}

// eventually waits until the condition holds, 20 s at most.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); !holds(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 20 s", what)
		}
	}
}

func enqueueJob(t *testing.T, redisURL string, args ...string) []string {
	t.Helper()
	cmd := program(redisURL, append([]string{"enqueue"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return strings.Fields(string(out))
}

func TestEventsNameTheRealPoolAndSIGTERMLetsTheJobFinish(t *testing.T) {
	url, conn := startRedis(t)
	p := startWorker(t, url)
	begin := p.next(t, "process-start")
	ids := enqueueJob(t, url, "send_email", "-args", `{"ms":300,"n":7}`)
	start := p.next(t, "start")
	if start.JobID != ids[0] || start.Job != "send_email" || start.N != 7.0 || start.Pool != begin.Pool {
		t.Errorf("%+v", start)
	}
	running, err := redis.Strings(conn.Do("LRANGE", "work:jobs:send_email:"+start.Pool+":inprogress", 0, -1))
	if err != nil || len(running) != 1 || !strings.Contains(running[0], ids[0]) {
		t.Errorf("in progress under the reported pool: %v, %v", running, err)
	}
	var beat map[string]string // the library takes jobs before it first beats
	eventually(t, "a heartbeat", func() bool {
		beat, err = redis.StringMap(conn.Do("HGETALL", "work:worker_pools:"+start.Pool))
		return err != nil || len(beat) > 0
	})
	if err != nil || beat["host"] != start.Host || beat["pid"] != fmt.Sprint(start.PID) {
		t.Errorf("heartbeat %v, %v; line %+v", beat, err, start)
	}
	if limit, err := redis.Int(conn.Do("GET", "work:jobs:send_email:max_concurrency")); err != nil || limit != 2 {
		t.Errorf("cap %d, %v", limit, err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.next(t, "process-stopping")
	p.next(t, "end")
	p.next(t, "process-stop")
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left, err := redis.Int(conn.Do("EXISTS", "work:worker_pools:"+start.Pool)); err != nil || left != 0 {
		t.Errorf("the heartbeat is left: %d, %v", left, err)
	}
}

func TestACrashLeavesTheJobInProgress(t *testing.T) {
	url, conn := startRedis(t)
	p := startWorker(t, url)
	pool := p.next(t, "process-start").Pool
	enqueueJob(t, url, "report", "-args", `{"crash":true}`)
	p.next(t, "start")
	if l, more := <-p.lines; more {
		t.Errorf("a line after the crash: %+v", l)
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != crashStatus {
		t.Errorf("ended with %v", err)
	}
	if n, err := redis.Int(conn.Do("LLEN", "work:jobs:report:"+pool+":inprogress")); err != nil || n != 1 {
		t.Errorf("in progress: %d, %v", n, err)
	}
}

func TestAFailureReachesTheDeadSetAfterMaxFails(t *testing.T) {
	url, conn := startRedis(t)
	p := startWorker(t, url)
	p.next(t, "process-start")
	enqueueJob(t, url, "report", "-args", `{"fail":"no such report"}`)
	p.next(t, "start")
	if fail := p.next(t, "fail"); fail.Error != "no such report" {
		t.Errorf("%+v", fail)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
	dead, err := redis.Strings(conn.Do("ZRANGE", "work:dead", 0, -1))
	if err != nil || len(dead) != 1 || !strings.Contains(dead[0], "no such report") {
		t.Errorf("dead set %v, %v", dead, err)
	}
}

func TestEnqueueWritesTheLibrarysBytesAndKeepsDigits(t *testing.T) {
	url, conn := startRedis(t)
	ids := enqueueJob(t, url, "-n", "2", "-args", `{"big":12345678901234567890}`, "report")
	jobs, err := redis.Strings(conn.Do("LRANGE", "work:jobs:report", 0, -1))
	if err != nil || len(ids) != 2 || len(jobs) != 2 {
		t.Fatalf("%v %v %v", ids, jobs, err)
	}
	if prefix := `{"name":"report","id":"` + ids[1] + `","t":`; !strings.HasPrefix(jobs[0], prefix) {
		t.Errorf("%s does not begin with %s", jobs[0], prefix)
	}
	if !strings.HasSuffix(jobs[0], `,"args":{"big":12345678901234567890}}`) {
		t.Errorf("args of %s", jobs[0])
	}
	if first, second := enqueueJob(t, url, "report", "-unique"), enqueueJob(t, url, "report", "-unique"); len(first) != 1 || len(second) != 0 {
		t.Errorf("unique: %v, then %v", first, second)
	}
	enqueueJob(t, url, "report", "-in", "60")
	if n, err := redis.Int(conn.Do("ZCARD", "work:scheduled")); err != nil || n != 1 {
		t.Errorf("scheduled: %d, %v", n, err)
	}
}

func TestBadEnvironmentIsOneSentenceAndExit2(t *testing.T) {
	cmd := program("redis://:secret@no port/x")
	cmd.Dir = filepath.Dir(os.Args[0])
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || strings.Count(string(out), "\n") != 1 || strings.Contains(string(out), "secret") {
		t.Errorf("%v: %s", err, out)
	}
}
