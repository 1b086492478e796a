// Package cgroup gives each run one group of its own: limits that hold from the
// first instruction on, the kernel's counters as evidence of what was hit, and
// an end that leaves nothing. It serves cgroup v2, v1 and hybrids of both, where
// each controller is taken from the hierarchy that has it; there are no modes.
//
// A controller that a limit needs and that cannot be had is an error of type
// Missing; no group is made with less than was asked for.
//
// Importing the package costs about 1 ms of process start (2.4 ms against 1.4 ms
// for an empty program with os/exec and encoding/json): 0.45 ms of initialisation,
// most of it protobuf's registration of containerd/cgroups' metrics types, and the
// paging in of a program four times the size. It initialises nothing of its own.
// A process that only becomes a container's init must not come here.
//
// This file owns the Group: how it is made, found again, entered and changed.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Group is the group of one run: a leaf in the unified hierarchy where there is
// one, and a leaf in each v1 hierarchy that is used. Its methods may be called
// from several goroutines.
type Group struct {
	state   State
	pending *pending       // of a group that is still to come, see CreateScope
	dirs    []*dir         // the unified leaf first, where there is one
	lib     cgroup1.Cgroup // the v1 leaves as the library sees them, nil without any

	mu       sync.Mutex // guards what follows
	counters [counterCount]counter
	buf      [1024]byte
}

// State is what Load needs to find a group again. It belongs in a JSON file.
type State struct {
	// Unified is the leaf below Mount, empty on a v1 machine.
	Mount   string `json:"mount,omitempty"`
	Unified string `json:"unified,omitempty"`
	// V1 is the leaf below each v1 hierarchy, by controller.
	V1 map[string]string `json:"v1,omitempty"`
	// Pids is the process limit that Arm sets, 0 for none, negative for "max".
	Pids int64 `json:"pids,omitempty"`
	// Shared says that the leaf's parent goes when its last leaf goes.
	Shared bool `json:"shared,omitempty"`
	// Scope is the unit that the group belongs to where systemd made it. Without a path
	// beside it the group is still to come.
	Scope *Scope `json:"scope,omitempty"`
}

// dir is one directory of the group.
type dir struct {
	controller string // of v1, "" in the unified hierarchy
	path       string
	file       *os.File
	adopted    bool // it was there before: not ours to remove when Create fails
}

// Create makes the group of a run and applies res, except for the process limit,
// which Arm sets. With path "" it is made in the default place: sbxrun/ID below
// the caller's own group, so that the caller's limits hold; on v2, where a group
// with processes cannot have limited children, beside the caller's group (root)
// or after the caller has moved itself aside in its delegated group. There a
// memory kill takes the whole group (memory.oom.group). With the path of an OCI
// config (linux.cgroupsPath) the group is made there, an empty one is adopted,
// and it takes part in every controller, as tools that read metrics expect.
//
// An id or path that is in use gives fs.ErrExist, a controller that cannot be had
// *Missing. After an error nothing is left.
func Create(path, id string, res *specs.LinuxResources) (*Group, error) {
	return createIn(path, id, res, path != "", nil)
}

// Announce is told where a group will be before it is made: what is killed in between
// has left a note by which Abandon finds it.
type Announce func(State) error

// CreateAnnounced is Create with an announcement.
func CreateAnnounced(path, id string, res *specs.LinuxResources, announce Announce) (*Group, error) {
	return createIn(path, id, res, path != "", announce)
}

// CreateWhole is CreateAnnounced of a group that takes part in every controller in the
// default place too, so that a later Update can set any limit. Each v1 hierarchy costs time.
func CreateWhole(path, id string, res *specs.LinuxResources, announce Announce) (*Group, error) {
	return createIn(path, id, res, true, announce)
}

func createIn(path, id string, res *specs.LinuxResources, whole bool, announce Announce) (_ *Group, err error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if path != "" {
		if err := checkPath(path); err != nil {
			return nil, err
		}
	}
	if res == nil {
		res = &specs.LinuxResources{}
	}
	res = meant(res)
	h, err := machine()
	if err != nil {
		return nil, err
	}
	g := &Group{state: State{V1: map[string]string{}, Shared: path == ""}}
	if res.Pids != nil && res.Pids.Limit != nil {
		g.state.Pids = *res.Pids.Limit
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.undo())
		}
	}()
	v1, v2, err := h.split(demands(res), whole)
	if err != nil {
		return nil, err
	}
	must := append([]string{"memory", "pids"}, demands(res)...)
	limited := slices.ContainsFunc(v2, func(c string) bool { return slices.Contains(must, c) })
	if err := g.locate(h, path, id, v1, limited); err != nil {
		return nil, err
	}
	if announce != nil {
		if err := announce(g.state); err != nil {
			return nil, err
		}
	}
	if err := g.make(h, v1, path != ""); err != nil {
		return nil, err
	}
	if err := g.join(h, v2, must); err != nil {
		return nil, err
	}
	return g, g.apply(h, res, true)
}

// split says from which side each controller comes: v1 where it is mounted there,
// else v2. Those that res needs must be found; memory and pids are taken for
// their counters in any case, and every other one if all are wanted.
func (h *host) split(need []string, all bool) (v1, v2 []string, err error) {
	for _, c := range need {
		switch {
		case h.onV1(c):
			v1 = append(v1, v1Name(c))
		case h.offers(c):
			v2 = append(v2, c)
		case h.unified != nil:
			return nil, nil, missing(c, h.unified.mount, errors.New("not in cgroup.controllers"))
		default:
			return nil, nil, missing(c, "/sys/fs/cgroup/"+v1Name(c), errors.New("not mounted"))
		}
	}
	want := []string{"memory", "pids"}
	if h.unified == nil {
		want = append(want, "cpuacct", "freezer") // what the unified leaf has by itself
	}
	if all {
		want = append(want, "cpu", "cpuset", "io", "hugetlb", "rdma")
		for name := range h.v1 {
			want = append(want, name)
		}
	}
	for _, c := range want {
		if h.onV1(c) {
			v1 = append(v1, v1Name(c))
		} else if h.offers(c) {
			v2 = append(v2, c)
		}
	}
	slices.Sort(v1)
	slices.Sort(v2)
	return slices.Compact(v1), slices.DeleteFunc(slices.Compact(v2), func(c string) bool { return c == "devices" }), nil
}

// locate says where the directories will be.
func (g *Group) locate(h *host, path, id string, v1 []string, controllers bool) error {
	at, err := h.stands("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if h.unified != nil {
		parent := at.unified
		if path == "" || !filepath.IsAbs(path) {
			if parent, err = h.unified.parent(at.unified, controllers); err != nil {
				return err
			}
		}
		g.state.Mount, g.state.Unified = h.unified.mount, groupPath(parent, path, id)
	}
	for _, name := range v1 {
		g.state.V1[name] = groupPath(at.v1[name], path, id)
	}
	return nil
}

// make makes and opens the directories.
func (g *Group) make(h *host, v1 []string, adopt bool) error {
	if g.state.Unified != "" {
		if err := g.add("", filepath.Join(g.state.Mount, g.state.Unified), adopt); err != nil {
			return err
		}
	}
	for _, name := range v1 {
		if err := g.add(name, filepath.Join(h.v1[name].mount, g.state.V1[name]), adopt); err != nil {
			return err
		}
	}
	return nil
}

// add makes one directory of the group.
func (g *Group) add(controller, path string, adopt bool) error {
	named := controller
	if named == "" {
		named = "cgroup2"
	}
	made, err := makeLeaf(path, adopt)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			return missing(named, filepath.Dir(path), err)
		}
		return fmt.Errorf("make group %s: %w", path, err)
	}
	err = g.open(controller, path)
	d := g.dirs[len(g.dirs)-1]
	d.adopted = !made
	if err == nil && d.adopted && d.stuck() {
		return fmt.Errorf("group %s: container's cgroup unexpectedly frozen", path)
	}
	return err
}

func (g *Group) open(controller, path string) error {
	d := &dir{controller: controller, path: path}
	g.dirs = append(g.dirs, d)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open group %s: %w", path, err)
	}
	d.file = os.NewFile(uintptr(fd), path)
	return nil
}

// join enables the unified controllers for the leaf and hands the v1 leaves to
// the library. Only those of must have to be had.
func (g *Group) join(h *host, v2, must []string) error {
	if g.state.Unified != "" {
		leaf, err := cgroup2.Load(g.state.Unified, cgroup2.WithMountpoint(g.state.Mount))
		if err != nil {
			return fmt.Errorf("group %s: %w", g.state.Unified, err)
		}
		for _, c := range v2 {
			if err := h.unified.enable(leaf, g.state.Unified, c); err != nil && slices.Contains(must, c) {
				return err
			}
		}
	}
	return g.loadV1(h)
}

// loadV1 opens the v1 leaves in the library. They exist by now: cgroup1.New would
// take over a leaf of the same name that belongs to another run.
func (g *Group) loadV1(h *host) (err error) {
	if len(g.state.V1) == 0 {
		return nil
	}
	var systems []cgroup1.Subsystem
	for name := range g.state.V1 {
		s, err := subsystem(filepath.Dir(h.v1[name].mount), cgroup1.Name(name))
		if err != nil {
			return fmt.Errorf("open v1 controller %s: %w", name, err)
		}
		systems = append(systems, s)
	}
	g.lib, err = cgroup1.Load(
		func(name cgroup1.Name) (string, error) { return g.state.V1[string(name)], nil },
		cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) { return systems, nil }))
	if err != nil {
		return fmt.Errorf("open the v1 groups: %w", err)
	}
	return nil
}

// subsystem is the library's view of one v1 controller.
func subsystem(root string, name cgroup1.Name) (cgroup1.Subsystem, error) {
	switch name {
	case cgroup1.Devices:
		return cgroup1.NewDevices(root), nil
	case cgroup1.Hugetlb:
		return cgroup1.NewHugetlb(root)
	case cgroup1.Freezer:
		return cgroup1.NewFreezer(root), nil
	case cgroup1.Pids:
		return cgroup1.NewPids(root), nil
	case cgroup1.NetCLS:
		return cgroup1.NewNetCls(root), nil
	case cgroup1.NetPrio:
		return cgroup1.NewNetPrio(root), nil
	case cgroup1.Cpuset:
		return cgroup1.NewCpuset(root), nil
	case cgroup1.Cpu:
		return cgroup1.NewCpu(root), nil
	case cgroup1.Cpuacct:
		return cgroup1.NewCpuacct(root), nil
	case cgroup1.Memory:
		return cgroup1.NewMemory(root), nil
	case cgroup1.Blkio:
		return cgroup1.NewBlkio(root), nil
	}
	return cgroup1.NewNamed(root, name), nil
}

// Dir is where the group is in the hierarchy of a controller, "" for the unified one,
// and whether it takes part there.
func (g *Group) Dir(controller string) (string, bool) {
	for _, d := range g.dirs {
		if d.controller == controller {
			return d.path, true
		}
	}
	return "", false
}

// State says where the group is.
func (g *Group) State() State { return g.state }

// Load finds a group again from its State. One that is gone gives fs.ErrNotExist.
func Load(s State) (*Group, error) {
	h, err := machine()
	if err != nil {
		return nil, err
	}
	g := &Group{state: s}
	err = g.reopen(h)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) reopen(h *host) error {
	if g.state.Scope != nil && g.state.Unified == "" {
		return fmt.Errorf("open the group of %s: %w", g.state.Scope.Unit, fs.ErrNotExist)
	}
	if g.state.Unified != "" {
		if h.unified == nil {
			return fmt.Errorf("open group %s: no unified hierarchy: %w", g.state.Unified, fs.ErrNotExist)
		}
		if err := g.open("", filepath.Join(h.unified.mount, g.state.Unified)); err != nil {
			return err
		}
		if s := g.state.Scope; s != nil {
			if now, err := inode(g.dirs[0]); err != nil || now != s.Inode {
				return errors.Join(err, fmt.Errorf("the group of %s is another by now: %w", s.Unit, fs.ErrNotExist))
			}
		}
	}
	for name, path := range g.state.V1 {
		at, ok := h.v1[name]
		if !ok {
			return fmt.Errorf("open group %s: no v1 controller %s: %w", path, name, fs.ErrNotExist)
		}
		if err := g.open(name, filepath.Join(at.mount, path)); err != nil {
			return err
		}
	}
	return g.loadV1(h)
}

// FD is a directory descriptor for clone3's CLONE_INTO_CGROUP (in Go:
// SysProcAttr.CgroupFD), -1 where there is no unified hierarchy. It belongs to g.
func (g *Group) FD() int {
	if d := g.unified(); d != nil && d.file != nil {
		return int(d.file.Fd())
	}
	return -1
}

// unified is the leaf in the unified hierarchy, or nil.
func (g *Group) unified() *dir {
	if len(g.dirs) > 0 && g.dirs[0].controller == "" {
		return g.dirs[0]
	}
	return nil
}

// of is the directory where a controller's files are: v1's own, else unified.
func (g *Group) of(controller string) *dir {
	for _, d := range g.dirs {
		if d.controller == v1Name(controller) {
			return d
		}
	}
	return g.unified()
}

// Arm sets the process limit (pids.max). It is apart from Create because the
// runtime's init has more threads than a small limit lets it start: the moment
// is when init waits at its barrier and the program does not exist yet.
func (g *Group) Arm() error {
	if g.state.Pids == 0 {
		return nil
	}
	d := g.of("pids")
	if d == nil {
		return missing("pids", "/sys/fs/cgroup", fs.ErrNotExist)
	}
	if err := g.state.Scope.set(tasksProperty(g.state.Pids)); err != nil {
		return err
	}
	value := "max"
	if g.state.Pids > 0 {
		value = strconv.FormatInt(g.state.Pids, 10)
	}
	if err := writeFile(filepath.Join(d.path, "pids.max"), value); err != nil {
		return fmt.Errorf("set the process limit: %w", err)
	}
	return nil
}

// has says whether the group takes part in a controller.
func (g *Group) has(h *host, controller string) bool {
	if h.onV1(controller) {
		return g.state.V1[v1Name(controller)] != ""
	}
	d := g.unified()
	return d != nil && (controller == "devices" || slices.Contains(words(filepath.Join(d.path, "cgroup.controllers")), controller))
}

// Update applies changed resources to a group with processes. What res leaves out
// stays; device rules are replaced on v2, on v1 they cannot be changed. A controller that the group was made
// without gives *Missing.
func (g *Group) Update(res *specs.LinuxResources) error {
	res = meant(res)
	h, err := machine()
	if err != nil {
		return err
	}
	if len(res.Devices) > 0 && h.onV1("devices") { // denying all and then allowing is seen half done
		return unsupported("devices", "the device rules of a living group cannot be changed on cgroup v1")
	}
	for _, c := range demands(res) {
		if !g.has(h, c) { // the library would skip it silently
			return missing(c, g.String(), errors.New("the group was made without it"))
		}
	}
	if res.Memory != nil && res.Memory.Limit != nil && *res.Memory.Limit > 0 && isTrue(res.Memory.CheckBeforeUpdate) {
		if now, err := g.read(memoryNow); err != nil || now > *res.Memory.Limit {
			return errors.Join(err, fmt.Errorf("memory limit %d is below the %d bytes in use", *res.Memory.Limit, now))
		}
	}
	if g.state.Scope != nil {
		properties, err := limitProperties(res)
		if err == nil {
			err = g.state.Scope.set(properties)
		}
		if err != nil {
			return err
		}
	}
	if err := g.apply(h, res, false); err != nil {
		return err
	}
	if res.Pids == nil || res.Pids.Limit == nil {
		return nil
	}
	g.state.Pids = *res.Pids.Limit
	return g.Arm()
}
