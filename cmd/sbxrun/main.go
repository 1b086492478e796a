// Command sbxrun runs code that nobody has read under a policy that a person can
// read. This file owns the command line's frame: global flags, exit codes.
package main

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/lab"
	"github.com/sbxrun/sbxrun/runtime"
)

// version is stamped by the Makefile.
var version = "dev"

// exitRefused is the exit code of every refusal and set-up error, as podman and
// its kin use it: no code of the program ran, or sbxrun itself failed.
const exitRefused = 125

// exitStatus ends sbxrun with the program's own exit code and prints nothing.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	if err := runtime.Unprivileged(); err != nil {
		report("error", err)
		os.Exit(exitRefused)
	}
	// What the caller left open is for no process that is made here: an init that waits
	// in its container would hold it where others can reach it (CVE-2024-21626).
	if err := unix.CloseRange(3, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		report("error", fmt.Errorf("close_range: %w", err))
		os.Exit(exitRefused)
	}
	lab.Become()
	runtime.BecomeSupervisor()
	becomeHolder()
	cli.HelpPrinter = printHelp
	cli.VersionPrinter = func(*cli.Context) {
		fmt.Printf("sbxrun version %s\nspec: %s\ngo: %s\n", version, specs.Version, goruntime.Version())
	}
	app := newApp()
	err := app.Run(flagsFirst(app, os.Args))
	var status exitStatus
	switch {
	case err == nil:
	case errors.As(err, &status):
		os.Exit(int(status))
	default:
		report("error", err)
		os.Exit(exitOfError(err))
	}
}

// newApp is the table of everything that the command line understands.
func newApp() *cli.App {
	app := &cli.App{
		Name:    "sbxrun",
		Usage:   "run code that nobody has read, under a policy that a person can read",
		Version: version,
		// A comma is a character of file names and values like any other.
		DisableSliceFlagSeparator: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "root", Usage: "`DIR` for the state of containers"},
			&cli.StringFlag{Name: "log", Usage: "append errors and warnings to `FILE`"},
			&cli.StringFlag{Name: "log-format", Value: "text", Usage: "`text|json`"},
			&cli.BoolFlag{Name: "debug", Usage: "say in the log what is done, step by step"},
			&cli.StringFlag{Name: "criu", Usage: "no effect: there is no checkpoint", Hidden: true},
			&cli.BoolFlag{Name: "systemd-cgroup", Usage: "let systemd make control groups: scopes"},
			&cli.StringFlag{Name: "rootless", Value: "auto", Usage: "no effect: what the user can do is seen", Hidden: true},
		},
		Commands:       commands(),
		Action:         noCommand,
		ExitErrHandler: func(*cli.Context, error) {},
		Writer:         os.Stdout,
		ErrWriter:      os.Stderr,
	}
	asked := askedFor(app, os.Args)
	app.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return usageError(asked, plainer(err, app.Flags)) }
	app.Before = func(c *cli.Context) error {
		if err := checkGlobals(c); err != nil {
			return &failure{err, usageCode(asked)}
		}
		return nil
	}
	withUsageErrors(app.Commands)
	return app
}

// withUsageErrors lets every command tell of its flags what is wrong with them.
func withUsageErrors(all []*cli.Command) {
	for _, c := range all {
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return usageError(c, err) }
		withUsageErrors(c.Subcommands)
	}
}

// commands are grouped by who uses them.
func commands() []*cli.Command {
	return slices.Concat(ownCommands(), group(forEngines, runcCommands()...))
}

// ownCommands are those for people; of them runc has "run" alone.
func ownCommands() []*cli.Command {
	return slices.Concat(
		group("to run a program", codeCommand, sessionCommand, mcpCommand, runCommand),
		group("to know what it may do", explainCommand, diffCommand, checkCommand, compileCommand),
		group("to know the machine", doctorCommand, labCommand, completionCommand))
}

// exitOfError is runc's exit code for the commands that engines know from there.
func exitOfError(err error) int {
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	return exitRefused
}

// runcCommands are those that mean the same as runc's.
func runcCommands() []*cli.Command {
	all := []*cli.Command{asRunc(execCommand, 255)}
	for _, c := range []*cli.Command{
		specCommand, createCommand, startCommand, stateCommand, killCommand, deleteCommand, psCommand, listCommand, pauseCommand,
		resumeCommand, updateCommand, eventsCommand, featuresCommand, refusedCommand("checkpoint"), refusedCommand("restore"),
	} {
		all = append(all, asRunc(c, 1))
	}
	return all
}

// failure is the error of such a command.
type failure struct {
	error
	code int
}

func (f *failure) Unwrap() error { return f.error }

// asRunc lets a command fail with the exit code, where it does not say another.
func asRunc(c *cli.Command, code int) *cli.Command {
	action := c.Action
	c.Action = func(ctx *cli.Context) error {
		err := action(ctx)
		var status exitStatus
		var f *failure
		if err == nil || errors.As(err, &status) || errors.As(err, &f) {
			return err
		}
		return &failure{err, code}
	}
	return c
}

// usageError names the command, nil being sbxrun itself, and keeps the promise of one
// Result with --json.
func usageError(c *cli.Command, err error) error {
	if c == nil {
		return &failure{fmt.Errorf("%w, see sbxrun --help", err), usageCode(c)}
	}
	err = fmt.Errorf("%s: %w, see sbxrun %s --help", c.Name, plainer(err, c.Flags), c.Name)
	if (c == codeCommand || c == sessionRun) && slices.Contains(os.Args, "--json") {
		return errors.Join(printJSON(os.Stdout, runtime.Refused(err)), exitStatus(exitRefused))
	}
	return &failure{err, usageCode(c)}
}

// usageCode is the exit code of a call that makes no sense: runc's, but for the
// commands that runc does not have.
func usageCode(c *cli.Command) int {
	switch {
	case c == runCommand:
		return 1
	case c == diffCommand || c == checkCommand:
		return exitNotAsked
	case slices.Contains(slices.Concat(ownCommands(), sessionCommand.Subcommands), c):
		return exitRefused
	}
	return 1
}

// exitUnknown is runc's exit code for a command that does not exist.
const exitUnknown = 3

// flagsFirst puts a command's flags before its arguments, where the library wants them:
// runc's users write "update ID --memory 64M". What follows exec's and ps's id is
// another program's.
func flagsFirst(app *cli.App, args []string) []string {
	at := commandAt(app, args)
	c := askedFor(app, args)
	if c == nil || !slices.Contains([]string{"create", "start", "state", "kill", "delete", "list", "pause", "resume", "update", "events", "features", "spec", "run", "explain", "diff", "check", "doctor", "lab"}, c.Name) {
		return args
	}
	var flags, rest []string
	for i := at + 1; i < len(args); i++ {
		if args[i] == "--" || !strings.HasPrefix(args[i], "-") || args[i] == "-" {
			if rest = append(rest, args[i]); args[i] == "--" {
				rest = append(rest, args[i+1:]...)
				break
			}
			continue
		}
		n := min(takesNext(c.Flags, args[i]), len(args)-1-i)
		flags = append(flags, args[i:i+1+n]...)
		i += n
	}
	return slices.Concat(args[:at+1], flags, rest)
}

// commandAt finds the command among the arguments; all of them may be global flags.
func commandAt(app *cli.App, args []string) int {
	at := 1
	for at < len(args) && strings.HasPrefix(args[at], "-") {
		at += 1 + takesNext(app.Flags, args[at])
	}
	return min(at, len(args))
}

// askedFor is the command that is asked for, nil where there is none of the name.
func askedFor(app *cli.App, args []string) *cli.Command {
	if at := commandAt(app, args); at < len(args) {
		return app.Command(args[at])
	}
	return nil
}

// takesNext says how many further words belong to a flag as it is written.
func takesNext(flags []cli.Flag, word string) int {
	name := strings.TrimLeft(word, "-")
	for _, f := range flags {
		if _, isBool := f.(*cli.BoolFlag); slices.Contains(f.Names(), name) && !isBool {
			return 1
		}
	}
	return 0
}

func checkGlobals(c *cli.Context) error {
	format := c.String("log-format")
	if format != "text" && format != "json" {
		return fmt.Errorf("--log-format: %q is neither text nor json", format)
	}
	if r := c.String("rootless"); r != "" && !strings.EqualFold(r, "auto") {
		if _, err := strconv.ParseBool(r); err != nil {
			return fmt.Errorf("--rootless: %q is none of auto, true, false", r)
		}
	}
	if err := openLog(c.String("log"), format == "json", c.Bool("debug")); err != nil {
		return err
	}
	debugf("sbxrun %s, process %d: %s", version, os.Getpid(), c.Args().First()) // arguments may be secrets
	return nil
}

func noCommand(c *cli.Context) error {
	if name := c.Args().First(); name != "" {
		var known []string
		for _, c := range visible(c.App.Commands) {
			known = append(known, c.Names()...)
		}
		return &failure{fmt.Errorf("unknown command %q: No help topic for '%s'%s, see sbxrun --help", name, name, didYouMean(name, known, strconv.Quote)), exitUnknown}
	}
	return cli.ShowAppHelp(c)
}
