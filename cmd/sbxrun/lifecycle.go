// This file owns the commands by which engines drive a container: create, start,
// state, kill, delete, pause, resume, ps, list, update.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/docker/go-units"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
)

var bundleFlag = &cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Usage: "bundle `DIR`", DefaultText: "the current directory"}

// launchFlags are common to what starts a process.
func launchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "pid-file", Usage: "write the process's pid to `FILE`"},
		&cli.StringFlag{Name: "console-socket", Usage: "send the terminal to the AF_UNIX socket `PATH`"},
		&cli.IntFlag{Name: "preserve-fds", Usage: "pass `N` descriptors from 3 on"},
	}
}

var createCommand = &cli.Command{
	Name: "create", Usage: "create a container that waits for start", ArgsUsage: "ID",
	Flags: append(launchFlags(), bundleFlag,
		&cli.BoolFlag{Name: "no-pivot", Usage: "move the root to / instead of pivot_root, for a host that runs from a ramdisk"},
		&cli.BoolFlag{Name: "no-new-keyring", Usage: "stay in the caller's session keyring"}),
	Action: func(c *cli.Context) error {
		id, err := idOf(c)
		if err != nil {
			return err
		}
		dir, err := filepath.Abs(c.String("bundle"))
		if err != nil {
			return err
		}
		warnShared(filepath.Join(dir, "config.json"))
		sp, err := runtime.LoadBundle(dir)
		if err != nil {
			return err
		}
		keep, err := keptFiles(c)
		if err != nil {
			return err
		}
		store, err := openStore(c)
		if err != nil {
			return err
		}
		ct, err := store.Create(sp, createOptions(c, id, dir, keep))
		if err == nil {
			err = ct.Close()
		}
		return err
	},
}

func createOptions(c *cli.Context, id, dir string, keep []*os.File) runtime.CreateOptions {
	return runtime.CreateOptions{ID: id, Bundle: dir, PidFile: c.String("pid-file"), ConsoleSocket: c.String("console-socket"), OldKeyring: c.Bool("no-new-keyring"), NoPivot: c.Bool("no-pivot"), Keep: keep, Systemd: c.Bool("systemd-cgroup")}
}

// openStore opens the directory of all containers.
func openStore(c *cli.Context) (*runtime.Store, error) {
	store, err := runtime.OpenStore(c.String("root"), func(err error) { report("warning", err) })
	if err == nil && log.debug {
		store.Trace = debugf
	}
	return store, err
}

// keptFiles are the descriptors that --preserve-fds names.
func keptFiles(c *cli.Context) (files []*os.File, err error) {
	for fd := 3; fd < 3+c.Int("preserve-fds"); fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return nil, fmt.Errorf("--preserve-fds: descriptor %d is not open", fd)
		}
		files = append(files, os.NewFile(uintptr(fd), "preserved"))
	}
	return files, nil
}

// idOf takes the one argument.
func idOf(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", fmt.Errorf("\"sbxrun %s\" requires exactly 1 argument, the container's id", c.Command.Name)
	}
	return c.Args().First(), nil
}

// atMost refuses further arguments.
func atMost(c *cli.Context, n int) error {
	if c.NArg() > n {
		return fmt.Errorf("%s: unexpected argument %q", c.Command.Name, c.Args().Get(n))
	}
	return nil
}

// with loads the container that the first argument names.
func with(c *cli.Context, do func(*runtime.Container) error) error {
	return reach(c, (*runtime.Store).Load, do)
}

// look is with for what only reads.
func look(c *cli.Context, do func(*runtime.Container) error) error {
	return reach(c, (*runtime.Store).Look, do)
}

func reach(c *cli.Context, by func(*runtime.Store, string) (*runtime.Container, error), do func(*runtime.Container) error) error {
	store, err := openStore(c)
	if err != nil {
		return err
	}
	if c.NArg() == 0 {
		return &failure{fmt.Errorf("\"sbxrun %s\" requires a minimum of 1 argument, the container's id", c.Command.Name), 1}
	}
	ct, err := by(store, c.Args().First())
	if err != nil {
		return err
	}
	return errors.Join(do(ct), ct.Close())
}

// simple makes a command that takes an id and does one thing.
func simple(name, usage string, by func(*cli.Context, func(*runtime.Container) error) error, do func(*runtime.Container) error) *cli.Command {
	return &cli.Command{Name: name, Usage: usage, ArgsUsage: "ID", Action: func(c *cli.Context) error {
		if _, err := idOf(c); err != nil {
			return err
		}
		return by(c, do)
	}}
}

var (
	startCommand  = simple("start", "run the program of a created container", with, (*runtime.Container).Start)
	pauseCommand  = simple("pause", "stop all processes of a container where they are", with, (*runtime.Container).Pause)
	resumeCommand = simple("resume", "let a paused container go on", with, (*runtime.Container).Resume)
	stateCommand  = simple("state", "print the state of a container", look, func(ct *runtime.Container) error {
		state, err := ct.State()
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(state, "", "  ")
		if err == nil {
			fmt.Println(string(text))
		}
		return err
	})
)

var killCommand = &cli.Command{
	Name: "kill", Usage: "send a signal to a container", ArgsUsage: "ID [SIGNAL]",
	Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "to all its processes"}},
	Action: func(c *cli.Context) error {
		if err := atMost(c, 2); err != nil {
			return err
		}
		name := "TERM"
		if c.NArg() > 1 {
			name = c.Args().Get(1)
		}
		sig, err := runtime.ParseSignal(name)
		if err != nil {
			return err
		}
		return with(c, func(ct *runtime.Container) error { return ct.Kill(sig, c.Bool("all")) })
	},
}

var deleteCommand = &cli.Command{
	Name: "delete", Usage: "remove a container", ArgsUsage: "ID",
	Flags: []cli.Flag{&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "kill it first; one that does not exist is no error"}},
	Action: func(c *cli.Context) error {
		if _, err := idOf(c); err != nil {
			return err
		}
		err := with(c, func(ct *runtime.Container) error { return ct.Delete(c.Bool("force")) })
		switch force := c.Bool("force"); {
		case force && errors.Is(err, runtime.ErrNotExist):
			return nil
		case force && errors.Is(err, runtime.ErrDamaged):
			return discard(c, err)
		}
		return err
	},
}

// discard removes a container that only has a damaged state, and says so.
func discard(c *cli.Context, damage error) error {
	store, err := openStore(c)
	if err != nil {
		return err
	}
	report("warning", fmt.Errorf("warning: processes and control groups, if there are any, are not looked for: %w", damage))
	return store.Discard(c.Args().First())
}

var listCommand = &cli.Command{
	Name: "list", Usage: "list the containers",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: "table", Usage: "`table|json`"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "ids only"},
	},
	Action: func(c *cli.Context) error {
		if err := atMost(c, 0); err != nil {
			return err
		}
		store, err := openStore(c)
		if err != nil {
			return err
		}
		all, err := store.List()
		if err != nil {
			return err
		}
		var states []runtime.State // of none "null", as with runc
		for _, ct := range all {
			state, err := ct.State()
			if err != nil {
				return err
			}
			states = append(states, state)
		}
		return printStates(c, states)
	},
}

func printStates(c *cli.Context, states []runtime.State) error {
	if c.Bool("quiet") {
		for _, s := range states {
			fmt.Println(s.ID)
		}
		return nil
	}
	switch c.String("format") {
	case "json":
		return printJSON(os.Stdout, states)
	case "table":
		w := tabwriter.NewWriter(os.Stdout, 12, 1, 3, ' ', 0)
		fmt.Fprintln(w, "ID\tPID\tSTATUS\tBUNDLE\tCREATED\tOWNER")
		for _, s := range states {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", s.ID, s.Pid, s.Status, s.Bundle, s.Created, s.Owner)
		}
		return w.Flush()
	}
	return fmt.Errorf("--format: %q is neither table nor json", c.String("format"))
}

var psCommand = &cli.Command{
	Name: "ps", Usage: "list the processes of a container", ArgsUsage: "ID [PS OPTION…]",
	Flags: []cli.Flag{&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: "table", Usage: "`table|json`"}},
	Action: func(c *cli.Context) error {
		return look(c, func(ct *runtime.Container) error {
			pids, err := ct.Processes()
			if err != nil {
				return err
			}
			switch format := c.String("format"); format {
			case "json":
				return printJSON(os.Stdout, append([]int{}, pids...))
			case "table":
				return psTable(pids, c.Args().Tail())
			default:
				return fmt.Errorf("--format: %q is neither table nor json", format)
			}
		})
	},
}

// psTable prints what ps(1) says of the pids.
func psTable(pids []int, options []string) error {
	if len(options) == 0 {
		options = []string{"-ef"}
	}
	out, err := exec.Command("ps", options...).CombinedOutput()
	if err != nil {
		why, _, _ := strings.Cut(string(out), "\n")
		return fmt.Errorf("ps: %w: %s", err, why)
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	column := -1
	for i, title := range strings.Fields(lines[0]) {
		if title == "PID" {
			column = i
		}
	}
	if column < 0 {
		return fmt.Errorf("ps: its output has no column PID")
	}
	fmt.Println(lines[0])
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if column >= len(fields) {
			continue
		}
		pid, err := strconv.Atoi(fields[column])
		for _, p := range pids {
			if err == nil && p == pid {
				fmt.Println(line)
			}
		}
	}
	return nil
}

var updateCommand = &cli.Command{
	Name: "update", Usage: "change the limits of a container", ArgsUsage: "ID",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "resources", Aliases: []string{"r"}, Usage: "LinuxResources as JSON in `FILE`, - for stdin"},
		&cli.StringFlag{Name: "memory", Usage: "memory limit, `BYTES` or 64M"},
		&cli.StringFlag{Name: "memory-swap", Usage: "memory and swap in `BYTES`, -1 for no limit"},
		&cli.StringFlag{Name: "memory-reservation", Usage: "soft limit in `BYTES`"},
		&cli.Int64Flag{Name: "cpu-quota", Usage: "microseconds in each period"},
		&cli.Uint64Flag{Name: "cpu-period", Usage: "microseconds"},
		&cli.Uint64Flag{Name: "cpu-share", Usage: "relative weight"},
		&cli.Uint64Flag{Name: "cpu-rt-period", Usage: "microseconds, realtime"},
		&cli.Int64Flag{Name: "cpu-rt-runtime", Usage: "microseconds in each realtime period"},
		&cli.StringFlag{Name: "cpuset-cpus", Usage: "`CPUS`, e.g. 0-1"},
		&cli.StringFlag{Name: "cpuset-mems", Usage: "`NODES`, e.g. 0"},
		&cli.Int64Flag{Name: "pids-limit", Usage: "tasks, -1 for no limit"},
		&cli.UintFlag{Name: "blkio-weight", Usage: "10 to 1000"},
		&cli.StringFlag{Name: "kernel-memory", Usage: "no effect but a warning: the kernel has given it up"},
		&cli.StringFlag{Name: "kernel-memory-tcp", Usage: "the same"},
		&cli.StringFlag{Name: "l3-cache-schema", Usage: "refused: there is no resctrl"},
		&cli.StringFlag{Name: "mem-bw-schema", Usage: "refused: there is no resctrl"},
	},
	Action: func(c *cli.Context) error {
		if _, err := idOf(c); err != nil {
			return err
		}
		res, err := resourcesOf(c)
		if err != nil {
			return err
		}
		return with(c, func(ct *runtime.Container) error { return ct.Update(res) })
	},
}

func resourcesOf(c *cli.Context) (*specs.LinuxResources, error) {
	res := &specs.LinuxResources{}
	if file := c.String("resources"); file != "" {
		var in io.Reader = os.Stdin
		if file != "-" {
			f, err := os.Open(file)
			if err != nil {
				return nil, fmt.Errorf("--resources: %w", err)
			}
			defer f.Close()
			in = f
		}
		if err := json.NewDecoder(in).Decode(res); err != nil {
			return nil, fmt.Errorf("--resources: %w", err)
		}
		return res, nil
	}
	for _, flag := range []string{"l3-cache-schema", "mem-bw-schema"} {
		if c.String(flag) != "" {
			return nil, fmt.Errorf("--%s: not supported, resctrl groups are not made", flag)
		}
	}
	number, unsigned := given(c, c.Int64), given(c, c.Uint64)
	m, err := memoryOf(c)
	if err != nil {
		return nil, err
	}
	if m != (specs.LinuxMemory{}) {
		res.Memory = &m
	}
	if p := (specs.LinuxCPU{
		Quota: number("cpu-quota"), Period: unsigned("cpu-period"), Shares: unsigned("cpu-share"),
		RealtimeRuntime: number("cpu-rt-runtime"), RealtimePeriod: unsigned("cpu-rt-period"),
		Cpus: c.String("cpuset-cpus"), Mems: c.String("cpuset-mems"),
	}); p != (specs.LinuxCPU{}) {
		res.CPU = &p
	}
	if n := number("pids-limit"); n != nil {
		res.Pids = &specs.LinuxPids{Limit: n}
	}
	if n := given(c, c.Uint)("blkio-weight"); n != nil {
		weight := uint16(*n)
		res.BlockIO = &specs.LinuxBlockIO{Weight: &weight}
	}
	return res, nil
}

// given reads a flag, nil when it was not given.
func given[T any](c *cli.Context, read func(string) T) func(name string) *T {
	return func(name string) *T {
		if !c.IsSet(name) {
			return nil
		}
		v := read(name)
		return &v
	}
}

// memoryOf reads the flags that are sizes: bytes, or a number with a unit as runc's.
//
//nolint:staticcheck // Kernel is deprecated, which is what runtime.Update warns of.
func memoryOf(c *cli.Context) (m specs.LinuxMemory, err error) {
	for _, f := range []struct {
		name string
		to   **int64
	}{{"memory", &m.Limit}, {"memory-swap", &m.Swap}, {"memory-reservation", &m.Reservation}, {"kernel-memory", &m.Kernel}, {"kernel-memory-tcp", &m.KernelTCP}} {
		if c.String(f.name) == "" {
			continue
		}
		n := int64(-1)
		if text := c.String(f.name); text != "-1" {
			if n, err = units.RAMInBytes(text); err != nil {
				return m, fmt.Errorf("--%s: %w", f.name, err)
			}
		}
		*f.to = &n
	}
	return m, nil
}

// refusedCommand is a command of runc that sbxrun does not have.
func refusedCommand(name string) *cli.Command {
	return &cli.Command{Name: name, Usage: "not supported", SkipFlagParsing: true, Action: func(c *cli.Context) error {
		if c.Args().First() == "-h" || c.Args().First() == "--help" {
			return cli.ShowSubcommandHelp(c)
		}
		return fmt.Errorf("%s: not supported", name)
	}}
}
