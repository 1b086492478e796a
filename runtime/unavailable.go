// This file owns the refusal: the error that says which mechanism of which layer
// is missing on this machine, and what would mend it.

package runtime

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	sbxinit "github.com/sbxrun/sbxrun/init"
)

const goarch = goruntime.GOARCH

// ErrUnavailable matches every UnavailableError with errors.Is.
var ErrUnavailable = errors.New("sandbox unavailable")

// UnavailableError refuses a run: a mechanism that its policy asks for cannot be
// had. The program did not run; there is no weaker run in its place.
type UnavailableError struct {
	Layer     string // layer of the policy, e.g. "network"
	Mechanism string // kernel feature, e.g. "network namespace"
	Remedy    string // what would mend it
	Err       error  // the cause, an errno where there is one
}

// Error is the one line that the command line prints.
func (e *UnavailableError) Error() string {
	s := fmt.Sprintf("sandbox unavailable: %s: %s: %v", e.Layer, e.Mechanism, e.Err)
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// Is makes errors.Is(err, ErrUnavailable) hold.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap gives the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// namespace is one row of what clone can be asked for.
type namespace struct {
	flag   uintptr
	layer  string
	name   string
	sysctl string // the file below /proc/sys/user that bounds it
}

var namespaceTable = []namespace{
	{unix.CLONE_NEWUSER, "processes", "user namespace", "max_user_namespaces"},
	{unix.CLONE_NEWPID, "processes", "pid namespace", "max_pid_namespaces"},
	{unix.CLONE_NEWIPC, "processes", "ipc namespace", "max_ipc_namespaces"},
	{unix.CLONE_NEWUTS, "processes", "uts namespace", "max_uts_namespaces"},
	{unix.CLONE_NEWCGROUP, "processes", "cgroup namespace", "max_cgroup_namespaces"},
	{unix.CLONE_NEWNS, "processes", "mount namespace", "max_mnt_namespaces"},
	{unix.CLONE_NEWNET, "network", "network namespace", "max_net_namespaces"},
}

func (n namespace) unavailable(err error) *UnavailableError {
	remedy := "the kernel must allow it: sysctl user." + n.sysctl + " above 0"
	if n.flag == unix.CLONE_NEWUSER {
		remedy += ", kernel.unprivileged_userns_clone=1 and no AppArmor restriction for ordinary users"
	}
	return &UnavailableError{Layer: n.layer, Mechanism: n.name, Remedy: remedy, Err: err}
}

// explainStart turns a failed clone, which does not say what it lacked, into the
// name of the first namespace that cannot be had.
func (b *blueprint) explainStart(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	for _, n := range namespaceTable {
		if n.flag == 0 || b.clone&n.flag == 0 {
			continue
		}
		if probe := probeNamespace(n.flag); probe != nil {
			return n.unavailable(probe)
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && b.clone != 0 && (errno == unix.EPERM || errno == unix.ENOSPC) {
		return &UnavailableError{Layer: "processes", Mechanism: "clone with all namespaces", Err: errno,
			Remedy: "check limits in /proc/sys/user and the id mappings of the config"}
	}
	return fmt.Errorf("start init: %w", err)
}

// probeNamespace tries one kind of namespace for real, inside a user namespace
// when the caller is an ordinary user. The child only exits.
func probeNamespace(flag uintptr) error {
	sys := &syscall.SysProcAttr{Cloneflags: flag}
	if flag == unix.CLONE_NEWUSER || os.Geteuid() != 0 {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	p, err := os.StartProcess("/proc/self/exe", []string{sbxinit.Name}, &os.ProcAttr{Env: []string{}, Sys: sys})
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return errno
		}
		return err
	}
	_, err = p.Wait() // without a channel the init ends at once
	return err
}

// remedies says what mends a step of init that failed, by the step's layer.
var remedies = map[string]string{
	"processes":    "the kernel or an outer sandbox refuses it; see sbxrun doctor",
	"filesystem":   "a mount was refused: an outer container may have masked /proc or lack the mount interface of Linux 5.12; see sbxrun doctor",
	"workdir":      "the private working directory could not be made; see sbxrun doctor",
	"capabilities": "the kernel refuses to give up privileges, an outer sandbox may forbid prctl; see sbxrun doctor",
	"syscalls":     "the kernel needs CONFIG_SECCOMP_FILTER, and an outer sandbox must not forbid seccomp(2)",
	"limits":       "a hard limit of the caller is below it: ask for less or raise the caller's limit",
}

// explainStep turns a failed step of init into the refusal that it means. A step
// of no layer (chdir, execve) is an error of the caller's input, not a refusal.
func explainStep(f *sbxinit.Failure) error {
	if f.Layer == "" {
		return f
	}
	for _, n := range namespaceTable {
		if n.name == f.Step {
			return n.unavailable(f.Errno)
		}
	}
	mechanism, cause := f.Step, *f
	if f.Step == "mount" {
		mechanism = strings.TrimSpace("mount " + f.Path)
	}
	cause.Step = "" // the mechanism says it
	return &UnavailableError{Layer: f.Layer, Mechanism: mechanism, Remedy: remedies[f.Layer], Err: &cause}
}

// unavailableCgroup turns what the cgroup package misses into the refusal.
func unavailableCgroup(err error) error {
	var missing *cgroup.Missing
	if !errors.As(err, &missing) {
		return fmt.Errorf("make the control group: %w", err)
	}
	layer := "limits"
	if missing.Controller == "pids" {
		layer = "processes"
	}
	mechanism := "cgroup " + missing.Controller
	if missing.Controller == "systemd" {
		mechanism = "cgroup scope"
	}
	return &UnavailableError{Layer: layer, Mechanism: mechanism, Remedy: missing.Remedy, Err: err}
}

// failureOf is the JSON form of an error.
func failureOf(err error) *Failure {
	f := &Failure{Message: err.Error()}
	var un *UnavailableError
	if errors.As(err, &un) {
		f.Layer, f.Mechanism, f.Remedy = un.Layer, un.Mechanism, un.Remedy
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = unix.ErrnoName(errno)
	}
	return f
}
