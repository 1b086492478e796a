// This file owns the Result: what a run returns, and its JSON form.

package runtime

import (
	"syscall"

	"github.com/sbxrun/sbxrun/spec"
)

// Reason says in one word why a run ended. Exactly one holds for each run.
type Reason string

// The reasons. Exited and Signaled mean that the program ended by itself;
// every other one means that it was stopped, or never started.
const (
	Exited      Reason = "exited"      // the program called exit
	Signaled    Reason = "signaled"    // a signal that no limit explains ended it
	WallClock   Reason = "wall_clock"  // limits.wall was used up
	CPU         Reason = "cpu"         // limits.cpu was used up
	OOM         Reason = "oom"         // limits.memory was reached
	Processes   Reason = "processes"   // processes.max was reached
	FileSize    Reason = "file_size"   // limits.file-size was reached
	Output      Reason = "output"      // the output could not be taken
	Syscall     Reason = "syscall"     // the system call filter ended it
	Canceled    Reason = "canceled"    // the caller gave up (context, interrupt)
	Unavailable Reason = "unavailable" // a mechanism that the policy asks for is missing; nothing ran
	Internal    Reason = "internal"    // sbxrun itself failed; the verdict is not about the program
)

// Result is the verdict on one run. Its JSON form is documented by
// result.schema.json beside this file.
type Result struct {
	ID       string     `json:"id"`
	Level    spec.Level `json:"level"`
	Digest   string     `json:"digest"` // of the config, as "sbxrun compile" prints it; empty when nothing was to run
	Reason   Reason     `json:"reason"`
	Evidence []Evidence `json:"evidence"` // what was seen, strongest first
	// ExitCode is the program's own exit status; null unless it exited by itself.
	ExitCode *int `json:"exit_code"`
	// Signal names the signal that ended the program ("SIGKILL"), empty if none did.
	Signal    string    `json:"signal"`
	TimedOut  bool      `json:"timed_out"`  // reason is wall_clock
	OOM       bool      `json:"oom"`        // reason is oom
	OOMSource string    `json:"oom_source"` // "cgroup", "rlimit" or "text"; empty when OOM is false
	Usage     Usage     `json:"usage"`
	Stdout    Stream    `json:"stdout"`
	Stderr    Stream    `json:"stderr"`
	LimitsHit []string  `json:"limits_hit"` // policy keys, e.g. "limits.wall", "processes.max"
	Swept     int       `json:"swept"`      // processes still alive after the program's end, killed by the sweep
	Wider     []string  `json:"wider"`      // policy keys whose value allows more than the level's preset
	Receipt   []Receipt `json:"receipt"`
	Error     *Failure  `json:"error"` // set when the program never ran, or for reason internal

	signal syscall.Signal // number of Signal
}

// Evidence is one observation that the verdict rests on.
type Evidence struct {
	Source string `json:"source"` // "supervisor", "wait", "memory.events", "pids.events", "rusage", "cgroup cpu", "monitor", "workdir", "text"
	Detail string `json:"detail"`
	// Heuristic marks evidence that is a guess from text, never stronger than a counter.
	Heuristic bool `json:"heuristic,omitempty"`
}

// Usage is what the run took.
type Usage struct {
	WallMS        float64 `json:"wall_ms"` // execve to reap, monotonic
	UserMS        float64 `json:"user_ms"`
	SystemMS      float64 `json:"system_ms"`
	PeakMemory    int64   `json:"peak_memory_bytes"`
	PeakProcesses int64   `json:"peak_processes"`
	StdoutBytes   int64   `json:"stdout_bytes"`
	StderrBytes   int64   `json:"stderr_bytes"`
}

// Stream is one output stream: its first 60 % and last 40 % when it was cut.
type Stream struct {
	Text         string `json:"text"`
	TotalBytes   int64  `json:"total_bytes"`
	OmittedBytes int64  `json:"omitted_bytes"`
	// Encoding is empty for valid UTF-8, else says what was escaped and how.
	Encoding string `json:"encoding,omitempty"`
}

// Receipt says for one layer what the policy asked for and what was in force.
type Receipt struct {
	Layer     string `json:"layer"`
	Mechanism string `json:"mechanism"`
	Requested string `json:"requested"`
	InForce   string `json:"in_force"` // "off" when the policy does not ask for it
}

// Failure is an error as the Result carries it.
type Failure struct {
	Message   string `json:"message"`
	Layer     string `json:"layer,omitempty"`
	Mechanism string `json:"mechanism,omitempty"`
	Errno     string `json:"errno,omitempty"`
	Remedy    string `json:"remedy,omitempty"`
}
