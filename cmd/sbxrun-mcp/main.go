// Command sbxrun-mcp is the server behind "sbxrun mcp", which executes it: a session as
// tools of the Model Context Protocol. Its arguments are sbxrun's version and path, the
// number of prepared runs, and the descriptor of a compiled config.json, the policy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "sbxrun-mcp: started by \"sbxrun mcp\", which takes the policy")
		os.Exit(exitRefused)
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "sbxrun mcp:", err)
		os.Exit(exitRefused)
	}
}

// exitRefused is sbxrun's exit code for what did not run.
const exitRefused = 125

// serve makes the session and serves it.
func serve(version, binary, warm, config string) error {
	n, err := strconv.Atoi(warm)
	if err != nil {
		return fmt.Errorf("the number of prepared runs: %w", err)
	}
	policy, err := readPolicy(config)
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	session, err := runtime.NewSession(policy, runtime.SessionOptions{Warm: n, Binary: binary})
	if err != nil {
		return err
	}
	return errors.Join(serveMCP(version, session), session.Close())
}

func readPolicy(descriptor string) (policy spec.Policy, err error) {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		return policy, err
	}
	f := os.NewFile(uintptr(fd), "config.json")
	if f == nil {
		return policy, fmt.Errorf("descriptor %d is not open", fd)
	}
	defer f.Close()
	var sp specs.Spec
	if err := json.NewDecoder(f).Decode(&sp); err != nil {
		return policy, err
	}
	return spec.FromSpec(&sp)
}

// maxMessage bounds one request: a file of maxFile bytes, each escaped, and its frame.
const maxMessage = 6*maxFile + 1<<20

// serveMCP serves until the client goes or sbxrun is told to stop. It does not wait for
// answers that nobody reads.
func serveMCP(version string, session *runtime.Session) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	server := mcp.NewServer(&mcp.Implementation{Name: "sbxrun", Version: version}, &mcp.ServerOptions{
		Instructions: "Runs programs in a sandbox with one working directory that lives as long as this connection. " + untrusted,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	if err := addTools(ctx, server, session); err != nil {
		return err
	}
	done := make(chan error, 1)
	in := &clientInput{os.Stdin, cancel}
	go func() {
		done <- server.Run(ctx, &mcp.IOTransport{Reader: in, Writer: os.Stdout, MaxLineLength: maxMessage})
	}()
	select {
	case err := <-done:
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		return err
	case <-ctx.Done():
		return nil
	}
}

// clientInput tells when the client has closed its end: the SDK would let a program run
// to its end first.
type clientInput struct {
	*os.File
	gone func()
}

func (c *clientInput) Read(p []byte) (int, error) {
	n, err := c.File.Read(p)
	if err != nil {
		c.gone()
	}
	return n, err
}

// verdictSchema is the Result's schema with the hint.
func verdictSchema() (map[string]any, error) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(runtime.ResultSchema), &schema); err != nil {
		return nil, fmt.Errorf("read the Result's schema: %w", err)
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	properties["hint"] = map[string]any{"type": "string", "description": "what happened and what to change, in one sentence"}
	schema["required"] = append(required, "hint")
	return schema, nil
}
