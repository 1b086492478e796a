// This file owns reading a bundle: its config.json, once, with a bound, and a
// clear word on what is wrong with it.

package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/spec"
)

// maxConfig bounds config.json.
const maxConfig = 4 << 20

// LoadBundle reads config.json of the bundle in dir and checks its shape.
func LoadBundle(dir string) (*specs.Spec, error) {
	name := filepath.Join(dir, "config.json")
	data, err := readBounded(name)
	if err != nil {
		return nil, fmt.Errorf("open the bundle: %w", err)
	}
	sp, err := decodeSpec(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return sp, nil
}

// readBounded reads a regular file of at most maxConfig bytes.
func readBounded(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(data) > maxConfig {
		err = fmt.Errorf("%s: larger than %d bytes", name, maxConfig)
	}
	return data, err
}

// ReadProcess reads an OCI process object from a file, as "exec --process" takes it.
func ReadProcess(name string) (*specs.Process, error) {
	data, err := readBounded(name)
	if err != nil {
		return nil, err
	}
	p, err := ParseProcess(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// ParseProcess reads an OCI process object.
func ParseProcess(data []byte) (*specs.Process, error) {
	p := &specs.Process{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, describe(err)
	}
	for field, list := range map[string][]string{"args": p.Args, "env": p.Env, "cwd": {p.Cwd}} {
		if strings.ContainsRune(strings.Join(list, ""), 0) {
			return nil, fmt.Errorf("%s: a string contains a NUL byte", field)
		}
	}
	return p, nil
}

func decodeSpec(data []byte) (*specs.Spec, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	sp := &specs.Spec{}
	if err := dec.Decode(sp); err != nil {
		return nil, describe(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON object")
	}
	if sp.Version == "" {
		return nil, errors.New("ociVersion: missing")
	}
	return sp, refuse(sp)
}

// describe names the field of a value of the wrong type.
func describe(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s: a %s is not what belongs here", wrong.Field, wrong.Value)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the JSON object is not complete")
	}
	return fmt.Errorf("not JSON: %w", err)
}

// Refused is the Result of a request that was turned down before any run.
func Refused(err error) *Result {
	reason := Unavailable
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrClosed) {
		reason = Canceled
	}
	return &Result{
		Level: spec.NoLevel, Reason: reason, Error: failureOf(err),
		Evidence: []Evidence{}, LimitsHit: []string{}, Wider: []string{}, Receipt: []Receipt{},
	}
}
