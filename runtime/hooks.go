// This file owns hooks: which a config has, where in a container's life each kind
// runs, and the ones that run in the runtime's own namespaces (OCI runtime-spec,
// config.md#posix-platform-hooks, runtime.md#lifecycle).
//
//	create   prestart, createRuntime   here, all namespaces made, before pivot_root
//	         createContainer           in the container (init/hook.go), before pivot_root
//	start    startContainer            in the container, right before the program
//	         poststart                 here, the program runs
//	delete   poststop                  here, nothing is left of the container

package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

// hookSet are the hooks of one kind.
type hookSet struct {
	kind  string
	hooks []specs.Hook
}

// hookSets lists a config's hooks by kind.
func hookSets(h *specs.Hooks) []hookSet {
	if h == nil {
		return nil
	}
	return []hookSet{
		{"prestart", h.Prestart}, //nolint:staticcheck // deprecated, and what Docker uses
		{"createRuntime", h.CreateRuntime}, {"createContainer", h.CreateContainer},
		{"startContainer", h.StartContainer}, {"poststart", h.Poststart}, {"poststop", h.Poststop},
	}
}

// hooksOf gives the hooks of one kind.
func hooksOf(sp *specs.Spec, kind string) []specs.Hook {
	for _, set := range hookSets(sp.Hooks) {
		if set.kind == kind {
			return set.hooks
		}
	}
	return nil
}

// checkHooks refuses hooks that could not run.
func checkHooks(sp *specs.Spec) error {
	for _, set := range hookSets(sp.Hooks) {
		for i, h := range set.hooks {
			field := fmt.Sprintf("hooks.%s[%d]", set.kind, i)
			if !path.IsAbs(h.Path) {
				return fmt.Errorf("%s.path: %q is not an absolute path", field, h.Path)
			}
			if h.Timeout != nil && *h.Timeout <= 0 {
				return fmt.Errorf("%s.timeout: %d is not greater than zero", field, *h.Timeout)
			}
		}
	}
	return nil
}

// createHooks plans what "create" runs before pivot_root.
func (b *blueprint) createHooks() {
	if len(hooksOf(b.spec, "prestart"))+len(hooksOf(b.spec, "createRuntime")) > 0 {
		b.plan.Add(sbxinit.OpHooks, nil)
	}
	b.insideHooks("createContainer")
}

// insideHooks plans the hooks that init runs.
func (b *blueprint) insideHooks(kind string) {
	for _, h := range hooksOf(b.spec, kind) {
		var ms uint64
		if h.Timeout != nil {
			ms = uint64(*h.Timeout) * 1000
		}
		strs := append([]string{"", h.Path}, h.Args...)
		b.plan.Add(sbxinit.OpHook, []uint64{uint64(len(h.Args)), ms}, append(strs, h.Env...)...)
	}
}

// tellHooks writes the container's state into the steps that run hooks: those before
// the barrier belong to "create".
func (b *blueprint) tellHooks(state specs.State) error {
	state.Status = specs.StateCreating
	for _, step := range b.plan {
		switch step.Op {
		case sbxinit.OpReady:
			state.Status = specs.StateCreated
		case sbxinit.OpHook:
			text, err := json.Marshal(state)
			if err != nil {
				return fmt.Errorf("encode the state for hooks: %w", err)
			}
			step.Strs[0] = string(text)
		}
	}
	return nil
}

// runHooks calls the hooks of one kind, in their order, up to the first that fails.
func runHooks(sp *specs.Spec, kind string, state specs.State) error {
	for i, h := range hooksOf(sp, kind) {
		if err := runHook(h, state); err != nil {
			return hookError(kind, i, err)
		}
	}
	return nil
}

// hookError has the words that people look for in runc's log.
func hookError(kind string, i int, err error) error {
	return fmt.Errorf("error running hook #%d (%s): %w", i, kind, err)
}

// createHooks are those that init waits for with its namespaces made.
func createHooks(sp *specs.Spec, state specs.State) error {
	state.Status = specs.StateCreating
	if err := runHooks(sp, "prestart", state); err != nil {
		return err
	}
	return runHooks(sp, "createRuntime", state)
}

// warnHooks calls all hooks of a kind whose failures undo nothing any more, and
// reports each failure to warn.
func warnHooks(sp *specs.Spec, kind string, state specs.State, warn func(error)) {
	for i, h := range hooksOf(sp, kind) {
		if err := runHook(h, state); err != nil {
			warn(hookError(kind, i, err))
		}
	}
}

// runHook runs one hook in sbxrun's own namespaces, the state on its stdin. Without
// an environment of its own it gets sbxrun's, as with runc.
func runHook(h specs.Hook, state specs.State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	ctx, cancel := context.Background(), func() {}
	if h.Timeout != nil {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*h.Timeout)*time.Second)
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, h.Path)
	if len(h.Args) > 0 {
		cmd.Args = h.Args
	}
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Dir = h.Env, state.Bundle
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &stdout, &stderr
	// Its own group, so that what it started dies with it; and what escapes even
	// that cannot hold its output against the runtime.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("hook ran past specified timeout of %.1fs", float64(*h.Timeout))
	case err == nil || errors.Is(err, exec.ErrWaitDelay): // it ended well and left something in the background
		return nil
	}
	return fmt.Errorf("%w, stdout: %s, stderr: %s", err, stdout.String(), stderr.String())
}
