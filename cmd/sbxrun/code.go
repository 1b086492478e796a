// This file owns "sbxrun code": code in, verdict out.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

var codeCommand = &cli.Command{
	Name:      "code",
	Usage:     "run a program under a policy and print its output or its verdict",
	ArgsUsage: "(FILE | - | -- CMD ARG…)",
	Flags: append(policyFlags(),
		&cli.StringFlag{Name: "lang", Usage: "`NAME` of the language of FILE or stdin: " + strings.Join(runtime.LanguageNames(), ", ")},
		&cli.StringSliceFlag{Name: "in", Usage: "put `HOST[:NAME]` into the working directory"},
		&cli.StringSliceFlag{Name: "out", Usage: "take `NAME[:HOST]` out of it after the run"},
		&cli.BoolFlag{Name: "stdin", Usage: "give the program sbxrun's stdin instead of /dev/null"},
		&cli.BoolFlag{Name: "json", Usage: "print one Result object"},
		eventsFlag(),
	),
	Action: func(c *cli.Context) error {
		res, err := runCode(c)
		return finish(c, res, err)
	},
}

// languageOf finds the language by name, else by the file's ending.
func languageOf(name, file string) (runtime.Language, error) {
	for _, l := range runtime.Languages() {
		if l.Name == name || name == "" && file != "-" && filepath.Ext(file) == l.Extension {
			return l, nil
		}
	}
	switch {
	case name != "":
		return runtime.Language{}, fmt.Errorf("--lang: unknown language %q%s, known are %s", name, didYouMean(name, runtime.LanguageNames(), strconv.Quote), strings.Join(runtime.LanguageNames(), ", "))
	case file == "-":
		return runtime.Language{}, fmt.Errorf("code from stdin needs --lang")
	}
	return runtime.Language{}, fmt.Errorf("%s: cannot tell the language from the name, use --lang", file)
}

// files are the way into and out of a working directory: a gateway, or a session's.
type files interface {
	Put(name string, src io.Reader, perm fs.FileMode) (int64, error)
	GetFile(name, dst string) (int64, error)
}

// program is what a command line asks to run.
type program struct {
	argv []string
	put  []func(files) error
	undo func() error // removes what was written on the host
}

func runCode(c *cli.Context) (*runtime.Result, error) {
	policy, err := policyOf(c)
	if err != nil {
		return nil, err
	}
	prog, err := programOf(c, c.Args().Slice(), afterDashes(c.Args().Slice()), policy.Workdir.Private)
	if err != nil {
		return nil, err
	}
	get, err := outputsOf(c.StringSlice("out"))
	if err != nil {
		return nil, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	sp, err := spec.Compile(policy, runtime.ThisHost(), spec.Process{Args: prog.argv, Env: os.Environ(), Cwd: cwd})
	if err != nil {
		return nil, err
	}
	opt := runtime.Options{Put: all(prog.put), Get: all(get), Systemd: c.Bool("systemd-cgroup")}
	if opt.Stdin, err = stdinOf(c, c.Args().First()); err != nil {
		return nil, err
	}
	events, err := openEvents(c)
	if err != nil {
		return nil, err
	}
	res, err := superviseLogged(sp, opt, events)
	if prog.undo != nil {
		err = errors.Join(err, prog.undo())
	}
	return res, err
}

// stdinOf is what --stdin gives the program, nil without.
func stdinOf(c *cli.Context, program string) (*os.File, error) {
	if !c.Bool("stdin") {
		return nil, nil
	}
	if program == "-" {
		return nil, fmt.Errorf("--stdin: the code itself comes from stdin")
	}
	return os.Stdin, nil
}

// superviseLogged is supervise with what happens written to events, unless that is nil.
func superviseLogged(sp *specs.Spec, opt runtime.Options, events *os.File) (*runtime.Result, error) {
	if events == nil {
		return supervise(sp, opt)
	}
	defer events.Close()
	log := newEventLog(events)
	opt.Watch = log.watch
	res, err := supervise(sp, opt)
	return res, errors.Join(err, log.close())
}

// supervise runs sp until its end, or until sbxrun is told to stop.
func supervise(sp *specs.Spec, opt runtime.Options) (*runtime.Result, error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	opt.Dedicated = true
	return runtime.Run(ctx, sp, opt)
}

// programOf reads the command line: a command after "--", a file or stdin.
func programOf(c *cli.Context, args []string, command, private bool) (*program, error) {
	prog := &program{}
	for _, in := range c.StringSlice("in") {
		put, err := input(in)
		if err != nil {
			return nil, err
		}
		prog.put = append(prog.put, put)
	}
	if len(prog.put)+len(c.StringSlice("out")) > 0 && !private {
		return nil, fmt.Errorf("--in and --out need a private working directory: use L2 or higher, or --workdir")
	}
	switch {
	case len(args) == 0:
		return nil, fmt.Errorf("nothing to run: give a FILE, - or -- CMD")
	case command:
		if c.IsSet("lang") {
			return nil, fmt.Errorf("--lang and -- CMD contradict each other")
		}
		prog.argv = args
		return prog, nil
	case len(args) > 1 && args[0] == "-":
		return nil, fmt.Errorf("unexpected argument %q after -", args[1])
	}
	return prog, prog.source(c, args, private)
}

// afterDashes says whether the arguments came after "--", which the flag parser
// swallows.
func afterDashes(args []string) bool {
	i := len(os.Args) - len(args) - 1
	return i > 0 && os.Args[i] == "--" && slices.Equal(os.Args[i+1:], args)
}

// source makes the program out of source text.
func (p *program) source(c *cli.Context, args []string, private bool) error {
	lang, err := languageOf(c.String("lang"), args[0])
	if err != nil {
		return err
	}
	in, name := os.Stdin, "main"+lang.Extension
	if args[0] != "-" {
		f, _, err := openRegular(args[0])
		if err != nil {
			return fmt.Errorf("read the program: %w", err)
		}
		defer f.Close()
		in, name = f, filepath.Base(args[0])
	}
	// Read before anything starts: whoever feeds stdin may take long, or never end.
	text, err := io.ReadAll(io.LimitReader(in, maxSource+1))
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	if len(text) > maxSource {
		return fmt.Errorf("read the program: larger than %d bytes", maxSource)
	}
	// "./" keeps a name that starts with a dash from being an option.
	p.argv = append(append(slices.Clone(lang.Interpreter), "./"+name), args[1:]...)
	if private {
		p.put = append(p.put, func(g files) error {
			_, err := g.Put(name, bytes.NewReader(text), 0o600)
			return err
		})
		return nil
	}
	return p.onHost(len(lang.Interpreter), args[0], name, text)
}

// onHost is for levels without a private working directory: the file runs where
// it lies, and text from stdin gets a file of its own.
func (p *program) onHost(at int, file, name string, text []byte) (err error) {
	if file != "-" {
		p.argv[at], err = filepath.Abs(file)
		return err
	}
	f, err := os.CreateTemp("", "sbxrun-*-"+name)
	if err != nil {
		return err
	}
	p.argv[at], p.undo = f.Name(), func() error { return os.Remove(f.Name()) }
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// maxSource bounds source text.
const maxSource = 16 << 20

// all makes one function of many, nil of none.
func all(fs []func(files) error) func(*rootfs.Gateway) error {
	if len(fs) == 0 {
		return nil
	}
	return func(g *rootfs.Gateway) error { return each(fs, g) }
}

func each(fs []func(files) error, f files) error {
	var errs []error
	for _, do := range fs {
		errs = append(errs, do(f))
	}
	return errors.Join(errs...)
}

// openRegular opens a regular file without waiting for anything: a FIFO would wait
// for a writer, and a device may have effects.
func openRegular(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

// input reads HOST[:NAME]. The file is opened now, so that a wrong name is told
// before anything runs.
func input(arg string) (func(files) error, error) {
	host, name, ok := strings.Cut(arg, ":")
	if !ok {
		name = filepath.Base(host)
	}
	f, st, err := openRegular(host)
	if err != nil {
		return nil, fmt.Errorf("--in: %w", err)
	}
	perm := 0o600 | st.Mode()&0o100 // what is a program stays one
	return func(g files) error {
		defer f.Close()
		_, err := g.Put(name, f, perm)
		return err
	}, nil
}

// outputsOf reads NAME[:HOST] for each --out.
func outputsOf(args []string) (get []func(files) error, err error) {
	for _, arg := range args {
		name, host, ok := strings.Cut(arg, ":")
		if !ok {
			host = filepath.Base(name)
		}
		if st, err := os.Stat(filepath.Dir(host)); err != nil || !st.IsDir() {
			return nil, fmt.Errorf("--out: %s is not a directory", filepath.Dir(host))
		}
		if st, err := os.Lstat(host); err == nil && !st.Mode().IsRegular() {
			return nil, fmt.Errorf("--out: %s is there and not a regular file", host)
		}
		get = append(get, func(g files) error {
			_, err := g.GetFile(name, host)
			return err
		})
	}
	return get, nil
}

// finish prints the Result as asked and turns it into the exit code.
func finish(c *cli.Context, res *runtime.Result, err error) error {
	if c.Bool("json") {
		if res == nil {
			res = runtime.Refused(err)
		}
		if err := printJSON(os.Stdout, res); err != nil {
			return err
		}
	} else if res != nil {
		err = errors.Join(err, printOutput(res))
	}
	if err != nil {
		if c.Bool("json") {
			return exitStatus(exitRefused)
		}
		return err
	}
	return exitOf(res)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printOutput prints the program's streams, and one line when it was stopped.
func printOutput(res *runtime.Result) error {
	_, err := io.WriteString(os.Stdout, res.Stdout.Text)
	text := res.Stderr.Text
	text += verdictLine(res, text)
	_, err2 := io.WriteString(os.Stderr, text)
	if err = errors.Join(err, err2); err != nil {
		return fmt.Errorf("print the output: %w", err)
	}
	return nil
}

// verdictLine says after the text on stderr that the program was stopped, if it was.
func verdictLine(res *runtime.Result, text string) (line string) {
	if res.Reason == runtime.Exited || res.Error != nil {
		return ""
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		line = "\n"
	}
	line += "sbxrun: " + string(res.Reason)
	if len(res.Evidence) > 0 {
		line += ": " + res.Evidence[0].Detail
	}
	return line + "\n"
}

// exitOf turns the verdict into sbxrun's exit code.
func exitOf(res *runtime.Result) error {
	if status := res.ExitStatus(); status != 0 {
		return exitStatus(status)
	}
	return nil
}
