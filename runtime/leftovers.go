// This file owns what is left where a supervisor was killed before it could clean up,
// and how it is removed.

package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sbxrun/sbxrun/cgroup"
	"github.com/sbxrun/sbxrun/rootfs"
)

// SessionsDir is the name in a store's root that no container can have: sessions of the
// command line are there.
const SessionsDir = "sessions"

// CheckID says whether id is acceptable for a container or a session (ErrID).
func CheckID(id string) error {
	if id == "" || id == SessionsDir {
		return fmt.Errorf("%w: %q", ErrID, id)
	}
	_, err := checkID(id)
	return err
}

// RemoveAbandoned removes what runs and sessions of this user have left whose process
// was killed: working directories and control groups. It waits a moment for processes
// that are about to end. What cannot be removed, the next call meets again.
func RemoveAbandoned() {
	for _, base := range []string{os.TempDir(), "/tmp"} {
		if parent, err := os.Open(base); err == nil {
			(&workdir{parent: parent}).removeAbandoned()
			parent.Close()
		}
	}
	removeAbandonedGroups()
}

// RemoveDir removes the directory on the host (Session.Dir) of a session whose process
// was killed.
func RemoveDir(dir string) error {
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), dirPrefix+ownID) {
		return fmt.Errorf("%q is no session's directory", dir)
	}
	parent, err := os.Open(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the session's directory: %w", err)
	}
	defer parent.Close()
	return rootfs.RemoveAll(parent, filepath.Base(dir))
}

// removeAbandonedGroups looks from a group of its own for those beside it.
func removeAbandonedGroups() {
	id, err := checkID("")
	if err != nil {
		return
	}
	g, err := cgroup.Create("", id, nil)
	if err != nil {
		return // without groups there are none to remove
	}
	defer func() { _ = g.Delete() }() // an empty one that stays harms nobody
	for end := time.Now().Add(killTime); ; time.Sleep(10 * time.Millisecond) {
		found := false
		g.RemoveStale(func(id string) bool {
			stale := abandoned(id)
			found = found || stale
			return stale
		})
		if !found || time.Now().After(end) {
			return
		}
	}
}

// Dir is the session's directory on the host, empty where it has none there (from L5).
func (s *Session) Dir() string {
	home, err := s.current()
	if err != nil || home.workdir == nil {
		return ""
	}
	return home.workdir.path
}

// Stat looks at one name in the working directory.
func (s *Session) Stat(name string) (e rootfs.Entry, err error) {
	err = s.files(func(g *rootfs.Gateway) error { e, err = g.Stat(name); return err })
	return e, err
}
