// Command sbxrun runs code that nobody has read under a policy that a person can
// read. This file owns the command line's frame: global flags, the log, exit codes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

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
	lab.Become()
	app := &cli.App{
		Name:    "sbxrun",
		Usage:   "run code that nobody has read, under a policy that a person can read",
		Version: version,
		// A comma is a character of file names and values like any other.
		DisableSliceFlagSeparator: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "root", Usage: "`DIR` for the state of containers"},
			&cli.StringFlag{Name: "log", Usage: "append errors to `FILE`"},
			&cli.StringFlag{Name: "log-format", Value: "text", Usage: "text or json"},
			&cli.BoolFlag{Name: "debug", Usage: "say more in the log"},
			&cli.BoolFlag{Name: "systemd-cgroup", Usage: "refused: control groups are made by writing to them"},
			&cli.StringFlag{Name: "rootless", Value: "auto", Usage: "no effect: what the user can do is seen"},
		},
		Before: checkGlobals,
		Commands: []*cli.Command{
			codeCommand, compileCommand, runCommand, doctorCommand, labCommand, specCommand,
			createCommand, startCommand, stateCommand, killCommand, deleteCommand, execCommand, psCommand, listCommand,
			pauseCommand, resumeCommand, updateCommand, refusedCommand("checkpoint"), refusedCommand("restore"),
		},
		CommandNotFound: func(c *cli.Context, name string) {},
		Action:          noCommand,
		OnUsageError:    func(_ *cli.Context, err error, _ bool) error { return err },
		ExitErrHandler:  func(*cli.Context, error) {},
		Writer:          os.Stdout,
		ErrWriter:       os.Stderr,
	}
	for _, c := range app.Commands {
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return usageError(c, err) }
	}
	err := app.Run(os.Args)
	var status exitStatus
	switch {
	case err == nil:
	case errors.As(err, &status):
		os.Exit(int(status))
	default:
		report(os.Stderr, err)
		os.Exit(exitRefused)
	}
}

// usageError names the command, and keeps the promise of one Result with --json.
func usageError(c *cli.Command, err error) error {
	err = fmt.Errorf("%s: %w, see sbxrun %s --help", c.Name, err, c.Name)
	if c == codeCommand && slices.Contains(os.Args, "--json") {
		return errors.Join(printJSON(os.Stdout, runtime.Refused(err)), exitStatus(exitRefused))
	}
	return err
}

func checkGlobals(c *cli.Context) error {
	if f := c.String("log-format"); f != "text" && f != "json" {
		return fmt.Errorf("--log-format: %q is neither text nor json", f)
	}
	if c.Bool("systemd-cgroup") {
		return fmt.Errorf("--systemd-cgroup: not supported, use the cgroupfs driver")
	}
	logPath, logJSON = c.String("log"), c.String("log-format") == "json"
	return nil
}

func noCommand(c *cli.Context) error {
	if name := c.Args().First(); name != "" {
		return fmt.Errorf("unknown command %q, see sbxrun --help", name)
	}
	return cli.ShowAppHelp(c)
}

// The log is where an engine looks for the last error of a command.
var (
	logPath string
	logJSON bool
)

// report writes the error as one line to stderr and to the log.
func report(stderr io.Writer, err error) {
	line := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	fmt.Fprintln(stderr, "sbxrun:", line)
	if logPath == "" {
		return
	}
	f, openErr := os.OpenFile(logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o644)
	if openErr != nil {
		fmt.Fprintln(stderr, "sbxrun: write the log:", openErr)
		return
	}
	defer f.Close()
	stamp := time.Now().UTC().Format(time.RFC3339Nano)
	if !logJSON {
		fmt.Fprintf(f, "time=%q level=error msg=%q\n", stamp, line)
		return
	}
	entry, _ := json.Marshal(map[string]string{"level": "error", "msg": line, "time": stamp}) // strings only: cannot fail
	fmt.Fprintf(f, "%s\n", entry)
}
