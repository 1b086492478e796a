// Tests of runs through the Go package.

package runtime

import (
	"context"
	"errors"
	"os"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/spec"
)

// compiled is the config of a policy that any user can run.
func compiled(t testing.TB, level spec.Level, change func(*spec.Policy), argv ...string) *specs.Spec {
	t.Helper()
	p := spec.Preset(level)
	p.Cgroup, p.Limits.Memory, p.Limits.Wall = spec.CgroupOff, 0, time.Minute
	if change != nil {
		change(&p)
	}
	sp, err := spec.Compile(p, ThisHost(), spec.Process{Args: argv, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestRunsLeaveNoDescriptorAndNoGoroutine(t *testing.T) {
	run := func(level spec.Level) {
		for _, argv := range [][]string{{"/bin/true"}, {"/no/such/program"}, {"/bin/sh", "-c", "sleep 9 & exit 1"}} {
			if res, _ := Run(context.Background(), compiled(t, level, nil, argv...), Options{}); res == nil {
				t.Fatal("no Result")
			}
		}
	}
	run(spec.L5) // what is made once is made now
	files, routines := openFiles(t), goruntime.NumGoroutine()
	for range 5 {
		for _, level := range []spec.Level{spec.L0, spec.L2, spec.L5} {
			run(level)
		}
	}
	if now := goroutines(t, routines); now > routines {
		t.Errorf("%d goroutines, there were %d", now, routines)
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d descriptors, there were %d", now, files)
	}
}

func TestRunsBesideEachOtherInOneProcess(t *testing.T) {
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			res, err := Run(context.Background(), compiled(t, spec.L5, nil, "/bin/echo", "beside"), Options{})
			if err != nil || res.Reason != Exited || res.Stdout.Text != "beside\n" {
				t.Errorf("%v: %+v", err, res)
			}
		})
	}
	wg.Wait()
}

func TestCancelingEndsTheRunAndSaysSo(t *testing.T) {
	why := errors.New("the caller has other plans")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	start := time.Now()
	res, err := Run(ctx, compiled(t, spec.L5, nil, "/bin/sleep", "50"), Options{})
	if err != nil || res.Reason != Canceled || res.Evidence[0].Detail != why.Error() || res.ExitStatus() != 137 {
		t.Errorf("%v: %+v", err, res)
	}
	if took := time.Since(start); took > 40*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestErrorsAreTypedForCallers(t *testing.T) {
	_, err := Run(context.Background(), &specs.Spec{}, Options{})
	if !errors.Is(err, spec.ErrNotCompiled) {
		t.Errorf("a config without a policy: %v", err)
	}
	_, err = Run(context.Background(), compiled(t, spec.L5, nil, "true"), Options{ID: "../x"})
	if !errors.Is(err, ErrID) {
		t.Errorf("a bad id: %v", err)
	}
	sp := compiled(t, spec.L1, nil, "true")
	_, err = Run(context.Background(), sp, Options{Put: func(*rootfs.Gateway) error { return nil }})
	if err == nil {
		t.Error("files without a directory for them")
	}
	gone := &UnavailableError{Layer: "network", Mechanism: "network namespace", Err: os.ErrPermission}
	if !errors.Is(gone, ErrUnavailable) || !errors.Is(gone, os.ErrPermission) {
		t.Error("a refusal is not recognised")
	}
}
