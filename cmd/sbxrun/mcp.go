// This file owns "sbxrun mcp". The server itself is a binary of its own beside this one,
// cmd/sbxrun-mcp: what it links would cost every start of sbxrun and of an init.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

var mcpCommand = &cli.Command{
	Name:  "mcp",
	Usage: "serve a session to a model, by the Model Context Protocol on stdio",
	Flags: append(policyFlags(),
		&cli.IntFlag{Name: "warm", Usage: "keep `N` prepared runs waiting"},
	),
	Action: func(c *cli.Context) error {
		if c.Args().Present() {
			return fmt.Errorf("mcp: unexpected argument %q", c.Args().First())
		}
		policy, err := policyOf(c)
		if err != nil {
			return err
		}
		// One config.json is the whole policy.
		sp, err := spec.Compile(policy, runtime.ThisHost(), spec.Process{Args: []string{"-"}, Env: os.Environ()})
		if err != nil {
			return err
		}
		config, err := inMemory(sp)
		if err != nil {
			return fmt.Errorf("mcp: %w", err)
		}
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("mcp: %w", err)
		}
		server := filepath.Join(filepath.Dir(self), "sbxrun-mcp")
		err = unix.Exec(server, []string{server, version, self, strconv.Itoa(c.Int("warm")), strconv.Itoa(int(config.Fd()))}, os.Environ())
		return fmt.Errorf("mcp: execute %s, which belongs beside sbxrun: %w", server, err)
	},
}

// inMemory writes v as JSON to a file without a name, which an executed program keeps.
func inMemory(v any) (*os.File, error) {
	fd, err := unix.MemfdCreate("config.json", 0)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "config.json")
	if err = json.NewEncoder(f).Encode(v); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
