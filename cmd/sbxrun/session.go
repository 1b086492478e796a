// This file owns "sbxrun session": programs that share a working directory, one after
// the other, over many commands.

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/runtime"
)

var sessionCommand = &cli.Command{
	Name:  "session",
	Usage: "run programs one after the other in a working directory that stays",
	Subcommands: []*cli.Command{
		sessionCreate, sessionRun, sessionPut, sessionGet, sessionLs, sessionRmFile, sessionRm, sessionList, sessionGC,
	},
	Action: func(c *cli.Context) error {
		if name := c.Args().First(); name != "" {
			var known []string
			for _, sub := range visible(c.Command.Subcommands) {
				known = append(known, sub.Name)
			}
			return fmt.Errorf("session: unknown command %q%s, see sbxrun session --help", name, didYouMean(name, known, strconv.Quote))
		}
		return cli.ShowSubcommandHelp(c)
	},
}

var sessionCreate = &cli.Command{
	Name: "create", Usage: "make a session and print its id",
	Flags: append(policyFlags(),
		&cli.StringFlag{Name: "id", Usage: "its `ID`", DefaultText: "a random one"},
		&cli.DurationFlag{Name: "ttl", Value: time.Hour, Usage: "remove it when it was not used for that long; 0 is never"},
		&cli.IntFlag{Name: "warm", Usage: fmt.Sprintf("keep `N` prepared processes waiting, at most %d", runtime.MaxWarm)}),
	Action: func(c *cli.Context) error {
		if c.NArg() > 0 {
			return fmt.Errorf("session create: unexpected argument %q", c.Args().First())
		}
		policy, err := policyOf(c)
		if err != nil {
			return err
		}
		if c.Duration("ttl") < 0 {
			return fmt.Errorf("--ttl: %v is negative", c.Duration("ttl"))
		}
		s, err := openSessions(c)
		if err != nil {
			return err
		}
		id := c.String("id")
		if !c.IsSet("id") {
			var b [6]byte
			_, _ = rand.Read(b[:]) // never fails
			id = hex.EncodeToString(b[:])
		}
		if _, err := s.at(id); err != nil {
			return err
		}
		if err := startHolder(holderOrder{Sessions: s.path, ID: id, Policy: policy, TTL: c.Duration("ttl"), Warm: c.Int("warm")}); err != nil {
			return err
		}
		fmt.Println(id)
		return nil
	},
}

var sessionRun = &cli.Command{
	Name: "run", Usage: "run a program in a session", ArgsUsage: "ID (FILE | - | -- CMD ARG…)",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print one Result object"},
		&cli.DurationFlag{Name: "wall", Usage: "wall clock, at most the session's", DefaultText: "the session's"},
		&cli.StringFlag{Name: "lang", Usage: "language of FILE or stdin: " + strings.Join(runtime.LanguageNames(), ", ")},
		&cli.StringSliceFlag{Name: "in", Usage: "put `HOST[:NAME]` into the working directory"},
		&cli.StringSliceFlag{Name: "out", Usage: "take `NAME[:HOST]` out of it after the run"},
		&cli.BoolFlag{Name: "stdin", Usage: "give the program sbxrun's stdin instead of /dev/null"},
		&cli.BoolFlag{Name: "no-wait", Usage: "refuse when a program is running in the session, instead of waiting for its end"},
		eventsFlag(),
	},
	Action: func(c *cli.Context) error {
		r := &sessionCall{c: c}
		res, status, err := r.run()
		return r.finish(res, status, err)
	},
}

// sessionCall is one "session run".
type sessionCall struct {
	c      *cli.Context
	stderr lastByte
}

// lastByte passes on what is written, and remembers how it ended.
type lastByte struct {
	to   io.Writer
	last string
}

func (l *lastByte) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.last = string(p[len(p)-1:])
	}
	return l.to.Write(p)
}

// run gets the session's turn, brings files in, runs, and takes files out. All of that
// is one turn: another run comes before or after.
func (r *sessionCall) run() (res *runtime.Result, status int, err error) {
	c, id := r.c, r.c.Args().First()
	prog, err := sessionProgram(c)
	if err != nil {
		return nil, 0, err
	}
	get, err := outputsOf(c.StringSlice("out"))
	if err != nil {
		return nil, 0, err
	}
	stdin, err := stdinOf(c, c.Args().Get(1))
	if err != nil {
		return nil, 0, err
	}
	events, err := openEvents(c)
	if err != nil {
		return nil, 0, err
	}
	s, err := openSessions(c)
	if err != nil {
		return nil, 0, err
	}
	conn, err := s.connect(id)
	if err != nil {
		return nil, 0, err
	}
	defer conn.conn.Close()
	q := request{Op: "run", Wall: c.Duration("wall"), Live: !c.Bool("json"), Notice: events != nil}
	if c.IsSet("wall") && q.Wall <= 0 {
		return nil, 0, fmt.Errorf("--wall: %v is no time to run", q.Wall)
	}
	for _, a := range prog.argv {
		q.Args = append(q.Args, []byte(a))
	}
	r.stderr.to = os.Stderr
	conn.live, conn.log = [2]io.Writer{os.Stdout, &r.stderr}, events
	defer conn.cancelBySignal()()
	if _, err := conn.ask(request{Op: "turn", Now: c.Bool("no-wait")}, nil); err != nil {
		return nil, 0, fmt.Errorf("session %q: %w", id, err)
	}
	if err := each(prog.put, conn); err != nil {
		return nil, 0, err
	}
	ans, err := conn.ask(q, stdin)
	if ans == nil {
		return nil, 0, err
	}
	if err == nil && ans.Result.Reason != runtime.Canceled {
		if err = each(get, conn); err != nil {
			err = fmt.Errorf("take files out: %w", err)
		}
	}
	return ans.Result, ans.Status, err
}

// sessionProgram reads the command line after the session's id.
func sessionProgram(c *cli.Context) (*program, error) {
	args := c.Args().Slice()
	if len(args) == 0 {
		return nil, errors.New("session run: give the session's id")
	}
	if len(args) > 1 && args[1] == "--" {
		if c.IsSet("lang") {
			return nil, fmt.Errorf("--lang and -- CMD contradict each other")
		}
		args = args[1:]
	}
	return programOf(c, args[1:], args[0] == "--", true)
}

// cancelBySignal closes this side when sbxrun is told to stop, which cancels the run: its
// Result still comes. A second signal ends sbxrun at once.
func (c *sessionConn) cancelBySignal() (stop func()) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	after := context.AfterFunc(ctx, func() {
		cancel()
		_ = c.conn.CloseWrite()
	})
	return func() { after(); cancel() }
}

// finish prints what is left to print, and gives the exit code.
func (r *sessionCall) finish(res *runtime.Result, status int, err error) error {
	if r.c.Bool("json") {
		if res == nil {
			res = runtime.Refused(err)
		}
		if err := printJSON(os.Stdout, res); err != nil {
			return err
		}
		if err != nil {
			return exitStatus(exitRefused)
		}
	}
	if err != nil {
		return err
	}
	if !r.c.Bool("json") {
		if _, err := io.WriteString(os.Stderr, verdictLine(res, r.stderr.last)); err != nil {
			return fmt.Errorf("print the verdict: %w", err)
		}
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// inSession makes a command that has a session's id and so many names as arguments.
func inSession(name, usage, args string, least, most int, flags []cli.Flag, do func(*cli.Context, *sessionConn, []string) error) *cli.Command {
	return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Flags: flags, Action: func(c *cli.Context) error {
		if n := c.NArg() - 1; n < least || n > most {
			return fmt.Errorf("session %s: usage: sbxrun session %s %s", name, name, args)
		}
		s, err := openSessions(c)
		if err != nil {
			return err
		}
		conn, err := s.connect(c.Args().First())
		if err != nil {
			return err
		}
		defer conn.conn.Close()
		return do(c, conn, c.Args().Tail())
	}}
}

var sessionPut = inSession("put", "put a file into a session, - for stdin", "ID (HOST [NAME] | - NAME)", 1, 2, nil, func(_ *cli.Context, conn *sessionConn, args []string) error {
	host, name := args[0], args[len(args)-1]
	if host == "-" {
		if len(args) == 1 {
			return errors.New("session put: a file from stdin needs a NAME")
		}
		_, err := conn.Put(name, os.Stdin, 0o600)
		return err
	}
	if len(args) == 1 {
		name = filepath.Base(host)
	}
	f, st, err := openRegular(host)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = conn.Put(name, f, 0o600|st.Mode()&0o100)
	return err
})

var sessionGet = inSession("get", "take a file out of a session, - for stdout", "ID NAME [HOST | -]", 1, 2, nil, func(_ *cli.Context, conn *sessionConn, args []string) error {
	host := filepath.Base(args[0])
	if len(args) == 2 {
		host = args[1]
	}
	if host == "-" {
		_, err := conn.Get(args[0], os.Stdout)
		return err
	}
	_, err := conn.GetFile(args[0], host)
	return err
})

var sessionLs = inSession("ls", "list what is in a session", "ID", 0, 0, []cli.Flag{
	&cli.BoolFlag{Name: "json", Usage: "print one array of objects"},
}, func(c *cli.Context, conn *sessionConn, _ []string) error {
	ans, err := conn.ask(request{Op: "list"}, nil)
	if ans == nil {
		return err
	}
	type shown struct {
		Name     string    `json:"name"`
		Size     int64     `json:"size"`
		Mode     string    `json:"mode"`
		Modified time.Time `json:"modified"`
		Error    string    `json:"error,omitempty"`
	}
	all := []shown{}
	for _, e := range ans.Entries {
		all = append(all, shown{rootfs.Entry{Name: string(e.Name)}.Printable(), e.Size, e.Mode.String(), e.ModTime.UTC(), e.Err})
	}
	if c.Bool("json") {
		return errors.Join(printJSON(os.Stdout, all), err)
	}
	for _, e := range all {
		fmt.Printf("%s %9d %s %s", e.Mode, e.Size, e.Modified.Format(time.DateTime), e.Name)
		if e.Error != "" {
			fmt.Printf(" (%s)", e.Error)
		}
		fmt.Println()
	}
	return err
})

var sessionRmFile = inSession("rm-file", "remove files and directories in a session", "ID NAME…", 1, 1<<20, nil, func(_ *cli.Context, conn *sessionConn, args []string) error {
	var errs []error
	for _, name := range args {
		_, err := conn.ask(request{Op: "remove", Name: []byte(name)}, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
})
