// This file owns what is left of a group whose making or removal was cut short.

package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Rest opens those directories of a group that are there: its removal may have been
// cut short. What it returns can be killed and deleted, and nothing else.
func Rest(s State) (_ *Group, err error) {
	g := &Group{state: s}
	for controller, path := range s.paths() {
		if wrong := g.open(controller, path); wrong != nil {
			g.dirs = g.dirs[:len(g.dirs)-1]
			if !gone(wrong) {
				err = errors.Join(err, wrong)
			}
		}
	}
	slices.SortFunc(g.dirs, func(a, b *dir) int { return strings.Compare(a.controller, b.controller) }) // the unified one first
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Abandon removes what CreateAnnounced made of an announced group before it was cut
// short. No process was in it yet: a directory that has one is another's.
func Abandon(s State) (err error) {
	g := &Group{state: s}
	for controller, path := range s.paths() {
		if wrong := unix.Rmdir(path); wrong != nil && !gone(wrong) && wrong != unix.EBUSY {
			err = errors.Join(err, fmt.Errorf("remove group %s: %w", path, wrong))
		}
		g.dirs = append(g.dirs, &dir{controller: controller, path: path})
	}
	g.leaveParent()
	return err
}

// paths are the directories by controller, of hierarchies that are mounted here.
func (s State) paths() map[string]string {
	out := map[string]string{}
	h, err := machine()
	if err != nil {
		return out // there are none
	}
	if s.Unified != "" && h.unified != nil {
		out[""] = filepath.Join(h.unified.mount, s.Unified)
	}
	for name, path := range s.V1 {
		if at, ok := h.v1[name]; ok {
			out[name] = filepath.Join(at.mount, path)
		}
	}
	return out
}
