// This file owns the private working directory of runs that have none inside
// their own mount namespace (L2 to L4), and what identifies a run.

package runtime

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/spec"
)

// ErrID says that a container id is not acceptable.
var ErrID = errors.New("invalid container ID format")

// checkID refuses what could leave the directories that ids name, and makes a
// random id of nothing.
func checkID(id string) (string, error) {
	if id == "" {
		b := make([]byte, 8)
		if _, err := rand.Read(b); err != nil {
			return "", fmt.Errorf("make an id: %w", err)
		}
		return fmt.Sprintf("%s%d-%s", ownID, os.Getpid(), hex.EncodeToString(b)), nil
	}
	if len(id) > maxID || strings.Trim(id, ".") == "" || strings.ContainsFunc(id, notInID) {
		return "", fmt.Errorf("%w: %.40q (1 to %d of letters, digits and _+-.)", ErrID, id, maxID)
	}
	return id, nil
}

// ownID starts the ids that checkID makes; the supervisor's pid follows.
const ownID = "run-"

// ownedID is id such that it tells its supervisor's pid.
func ownedID(id string) string {
	own := fmt.Sprintf("%s%d-", ownID, os.Getpid())
	if strings.HasPrefix(id, own) {
		return id
	}
	return own + id
}

// abandoned says whether an id was made by a supervisor that is no more: killed, so
// that nobody has removed what its run had.
func abandoned(id string) bool {
	rest, ok := strings.CutPrefix(id, ownID)
	number, _, found := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	return ok && found && err == nil && pid > 0 && ended(pid)
}

// ended says whether the process is no more, or only waits for its parent to see that.
func ended(pid int) bool {
	st, err := readStat(pid)
	return unix.Kill(pid, 0) == unix.ESRCH || err == nil && st.ended()
}

// removeAbandoned removes the directories beside w of supervisors that are no more.
func (w *workdir) removeAbandoned() {
	names, err := w.parent.Readdirnames(-1)
	if err != nil {
		return // nothing is promised of the others
	}
	for _, n := range names {
		if id, ok := strings.CutPrefix(n, dirPrefix); ok && abandoned(id) {
			_ = rootfs.RemoveAll(w.parent, n) // another user's stays
		}
	}
}

// dirPrefix starts the names of working directories.
const dirPrefix = "sbxrun-"

// maxID leaves room for the id in the names of files and directories.
const maxID = 200

func notInID(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("_+-.", r)
}

// workdir is a private directory on the host.
type workdir struct {
	path   string
	dir    *os.File
	parent *os.File
}

// makeWorkdir makes the directory with mode 0700 and "tmp" in it for owner.
func makeWorkdir(id string, owner rootfs.Owner) (*workdir, error) {
	base, err := filepath.Abs(tempDir(owner))
	if err != nil {
		return nil, fmt.Errorf("make the working directory: %w", err)
	}
	secret := make([]byte, 8)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make the working directory: %w", err)
	}
	name := dirPrefix + ownedID(id) + "-" + hex.EncodeToString(secret)
	w := &workdir{path: filepath.Join(base, name)}
	if w.parent, err = os.Open(base); err == nil {
		if w.dir, err = rootfs.MakeWorkdir(w.parent, name, owner); err != nil {
			w.parent.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make the working directory: %w", err)
	}
	return w, nil
}

// tempDir is where the directory is made: TMPDIR, unless this is root, and the run has
// another id and could not get there, or others could exchange what root makes there.
// Then it is /tmp.
func tempDir(owner rootfs.Owner) string {
	dir := os.TempDir()
	if realRoot() && !trustedPath(dir) {
		return "/tmp"
	}
	if int(owner.UID) == os.Geteuid() {
		return dir
	}
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if st, err := os.Stat(d); err != nil || st.Mode()&0o001 == 0 {
			return "/tmp"
		}
		if d == "/" || d == "." {
			return dir
		}
	}
}

// relocate gives a copy of sp in which the working directory is the real one.
func (w *workdir) relocate(sp *specs.Spec) *specs.Spec {
	move := func(s string) string {
		if rest, ok := strings.CutPrefix(s, spec.WorkdirPath); ok && (rest == "" || rest[0] == '/') {
			return w.path + rest
		}
		return s
	}
	out, process := *sp, *sp.Process
	process.Cwd = move(process.Cwd)
	process.Env = nil
	for _, e := range sp.Process.Env {
		key, value, _ := strings.Cut(e, "=")
		process.Env = append(process.Env, key+"="+move(value))
	}
	out.Process = &process
	return &out
}

func (w *workdir) remove() error {
	w.removeAbandoned()
	err := rootfs.RemoveAll(w.parent, filepath.Base(w.path))
	return errors.Join(err, w.dir.Close(), w.parent.Close())
}

// ownerOf is the host id that the program runs as.
func ownerOf(sp *specs.Spec) rootfs.Owner {
	o := rootfs.Owner{UID: sp.Process.User.UID, GID: sp.Process.User.GID}
	if sp.Linux == nil {
		return o
	}
	if m := sp.Linux.UIDMappings; len(m) > 0 {
		o.UID = m[0].HostID + o.UID - m[0].ContainerID
	}
	if m := sp.Linux.GIDMappings; len(m) > 0 {
		o.GID = m[0].HostID + o.GID - m[0].ContainerID
	}
	return o
}
