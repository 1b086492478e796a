// This file owns groups that systemd makes: a transient scope for a run, asked for over
// D-Bus (org.freedesktop.systemd1(5)). systemd takes a scope only with a process in it,
// so that such a group comes into being with the run's init, which waits for its plan
// meanwhile. From then on the scope's group is one like any other: limits are written to
// it here. They are properties of the unit, too, so that systemd keeps them when it
// writes to the group again. Device rules are a BPF program that systemd leaves alone.

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	bus "github.com/godbus/dbus/v5"
	"github.com/moby/sys/userns"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const (
	booted      = "/run/systemd/system" // sd_booted(3)
	privateBus  = "/systemd/private"    // systemd's own socket: no bus daemon, no Hello
	systemdTime = 30 * time.Second      // for all that is asked of systemd at once
)

// Scope is a unit that systemd makes for a run. It belongs in a JSON file.
type Scope struct {
	Unit  string   `json:"unit"`
	Slice string   `json:"slice"`
	Buses []string `json:"buses"` // addresses where its systemd is asked, in this order
	// Inode tells the scope's group from a later one of the same name.
	Inode uint64 `json:"inode,omitempty"`
}

// pending is what becomes of a group that systemd has still to make.
type pending struct {
	res         *specs.LinuxResources
	annotations map[string]string
}

// CreateScope prepares a group that systemd makes: path is "slice:prefix:name", or ""
// for sbxrun-ID.scope in system.slice, of an ordinary user in user.slice of his own
// systemd. annotations named org.systemd.property.X are further properties of the unit.
// What can be refused is refused now; the group comes into being when Adopt gets the
// run's first process.
func CreateScope(path, id string, res *specs.LinuxResources, annotations map[string]string) (*Group, error) {
	scope, h, err := newScope(path, id)
	if err != nil {
		return nil, err
	}
	if res == nil {
		res = &specs.LinuxResources{}
	}
	res = meant(res)
	if _, _, err := h.split(demands(res), true); err != nil {
		return nil, err
	}
	if _, _, err := forV2(*res, h.onV1, false); err != nil {
		return nil, err
	}
	if _, err := rulesV2(res, h.onV1); err != nil {
		return nil, err
	}
	if _, err := scope.properties(res, annotations); err != nil {
		return nil, err
	}
	g := &Group{state: State{Scope: scope}, pending: &pending{res, annotations}}
	if res.Pids != nil && res.Pids.Limit != nil {
		g.state.Pids = *res.Pids.Limit
	}
	return g, nil
}

// Late says that the group is still to come, with the process that Adopt gets.
func (g *Group) Late() bool { return g.pending != nil }

// EnterScope moves this process to a scope of its own, named like those of CreateScope,
// and aside in it: groups in the default place are made in the scope from then on. It
// goes with its last process. This is what "systemd-run --scope -p Delegate=yes" does.
func EnterScope(path, id string, annotations map[string]string) error {
	scope, h, err := newScope(path, id)
	if err != nil {
		return err
	}
	properties, err := scope.properties(&specs.LinuxResources{}, annotations)
	if err != nil {
		return err
	}
	own, err := scope.start(h, os.Getpid(), properties)
	if err != nil {
		return err
	}
	if aside, err := h.unified.stepAside(own); err != nil || !aside {
		return errors.Join(err, fmt.Errorf("move aside in %s: it holds other processes", own))
	}
	return nil
}

// newScope names the unit and says where its systemd is asked.
func newScope(path, id string) (*Scope, *host, error) {
	if err := checkID(id); err != nil {
		return nil, nil, err
	}
	if st, err := os.Stat(booted); err != nil || !st.IsDir() {
		if err == nil {
			err = fs.ErrInvalid
		}
		return nil, nil, noSystemd(booted, err)
	}
	h, err := machine()
	if err != nil {
		return nil, nil, err
	}
	if h.unified == nil || len(h.v1) > 0 {
		return nil, nil, &Missing{Controller: systemdName, Path: "/sys/fs/cgroup", Remedy: "boot with systemd.unified_cgroup_hierarchy=1" + remedyDriver,
			Err: errors.New("scopes are made on pure cgroup v2 only")}
	}
	user := os.Geteuid() != 0 || userns.RunningInUserNS()
	scope, err := nameScope(path, id, user)
	if err == nil {
		scope.Buses = buses(user, os.Getenv)
	}
	return scope, h, err
}

// nameScope gives the unit's name and its slice.
func nameScope(path, id string, user bool) (*Scope, error) {
	// "+" is a character of ids and none of units.
	s := &Scope{Slice: "system.slice", Unit: "sbxrun-" + strings.ReplaceAll(id, "+", `\x2b`) + ".scope"}
	if user {
		s.Slice = "user.slice"
	}
	if path != "" {
		parts := strings.Split(path, ":")
		if len(parts) != 3 {
			return nil, fmt.Errorf("expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got %q instead", path)
		}
		if parts[2] == "" || strings.HasSuffix(parts[2], ".slice") {
			return nil, fmt.Errorf("cgroupsPath %q: a scope needs a name, and a slice is none", path)
		}
		s.Unit = parts[1] + "-" + parts[2] + ".scope"
		if parts[0] != "" {
			s.Slice = parts[0]
		}
	}
	if _, err := expandSlice(s.Slice); err != nil {
		return nil, fmt.Errorf("cgroupsPath %q: %w", path, err)
	}
	if !unitName(s.Unit) {
		return nil, fmt.Errorf("cgroupsPath %q: %q is no name of a unit", path, s.Unit)
	}
	return s, nil
}

// unitName says whether systemd allows the name, systemd.unit(5).
func unitName(s string) bool {
	allowed := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(`:-_.\`, r)
	}
	return s != "" && len(s) < 256 && strings.IndexFunc(s, func(r rune) bool { return !allowed(r) }) < 0
}

// expandSlice gives the path of a slice's group: a-b.slice is in a.slice. The root is
// -.slice, systemd.slice(5).
func expandSlice(name string) (string, error) {
	stem, ok := strings.CutSuffix(name, ".slice")
	if !ok || !unitName(name) {
		return "", fmt.Errorf("%q is no name of a slice", name)
	}
	if stem == "-" {
		return "/", nil
	}
	path, above := "", ""
	for _, part := range strings.Split(stem, "-") {
		if part == "" {
			return "", fmt.Errorf("%q is no name of a slice", name)
		}
		path += "/" + above + part + ".slice"
		above += part + "-"
	}
	return path, nil
}

// buses are the addresses of the machine's systemd, or of the user's own.
func buses(user bool, env func(string) string) (list []string) {
	if !user {
		return []string{"unix:path=/run" + privateBus, "unix:path=/run/dbus/system_bus_socket"}
	}
	if a := env("DBUS_SESSION_BUS_ADDRESS"); strings.HasPrefix(a, "unix:") {
		list = append(list, a)
	}
	dir := env("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) {
		dir = "/run/user/" + strconv.Itoa(os.Getuid())
	}
	return append(list, "unix:path="+dir+"/bus", "unix:path="+dir+privateBus)
}

// manager is a connection to a systemd.
type manager struct {
	*dbus.Conn
	calls *bus.Conn
	ctx   context.Context
	done  func()
}

// connect reaches the scope's systemd. Whoever gets the manager calls done.
func (s *Scope) connect() (*manager, error) {
	m := &manager{}
	var cancel func()
	m.ctx, cancel = context.WithTimeout(context.Background(), systemdTime)
	var errs []error
	for _, address := range s.Buses {
		var err error
		m.Conn, err = dbus.NewConnection(func() (*bus.Conn, error) {
			c, err := dial(m.ctx, address)
			if m.calls == nil {
				m.calls = c
			}
			return c, err
		})
		if err == nil {
			m.done = func() { m.Close(); cancel() }
			return m, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	cancel()
	err := &Missing{Controller: systemdName, Path: strings.TrimPrefix(s.Buses[len(s.Buses)-1], "unix:path="), Remedy: remedySession, Err: errors.Join(errs...)}
	return nil, err
}

func dial(ctx context.Context, address string) (*bus.Conn, error) {
	c, err := bus.Dial(address, bus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err = c.Auth([]bus.Auth{whoever{}}); err == nil && !strings.HasSuffix(address, privateBus) {
		err = c.Hello()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// whoever is SASL's EXTERNAL without a name: the other side asks the kernel. A name would
// be wrong in a user namespace, where this process does not know its id out there.
type whoever struct{}

func (whoever) FirstData() (name, response []byte, _ bus.AuthStatus) {
	return []byte("EXTERNAL"), nil, bus.AuthOk
}
func (whoever) HandleData([]byte) ([]byte, bus.AuthStatus) { return nil, bus.AuthError }

// start makes the scope with the process in it and gives the path of its group. A unit
// of that name that has failed is in nobody's way.
func (s *Scope) start(h *host, pid int, properties []dbus.Property) (string, error) {
	m, err := s.connect()
	if err != nil {
		return "", err
	}
	defer m.done()
	properties = append(properties, property("PIDs", []uint32{uint32(pid)}))
	transient := func(result chan string) (int, error) {
		return m.StartTransientUnitContext(m.ctx, s.Unit, "replace", properties, result)
	}
	err = m.await(transient)
	if isError(err, "UnitExists") {
		if reset := m.ResetFailedUnitContext(m.ctx, s.Unit); reset == nil || isError(reset, "NoSuchUnit") {
			err = m.await(transient)
		}
	}
	if isError(err, "UnitExists") {
		return "", fmt.Errorf("unit %s: it is in use: %w", s.Unit, fs.ErrExist)
	}
	if err != nil {
		return "", fmt.Errorf("let systemd start %s: %w", s.Unit, err)
	}
	at, err := s.holds(h, pid)
	if err != nil {
		err = errors.Join(err, s.end(true))
	}
	return at, err
}

// holds gives the group of a process, which must be the scope's.
func (s *Scope) holds(h *host, pid int) (string, error) {
	slice, err := expandSlice(s.Slice)
	if err != nil {
		return "", err
	}
	at, err := h.stands("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err == nil && !strings.HasSuffix(at.unified, filepath.Join(slice, s.Unit)) {
		err = fmt.Errorf("process %d is in %s although systemd started %s", pid, at.unified, s.Unit)
	}
	return at.unified, err
}

// await queues a job and waits for its end.
func (m *manager) await(queue func(result chan string) (int, error)) error {
	result := make(chan string, 1)
	if _, err := queue(result); err != nil {
		return err
	}
	select {
	case r := <-result:
		if r != "done" {
			return fmt.Errorf("the job's result is %q", r)
		}
		return nil
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
}

// isError says whether systemd answered with the error of that name.
func isError(err error, name string) bool {
	var e bus.Error
	return errors.As(err, &e) && e.Name == "org.freedesktop.systemd1."+name
}

// place lets systemd make the group around the process, opens it, and writes the limits.
func (g *Group) place(pid int) error {
	h, err := machine()
	if err != nil {
		return err
	}
	res := g.pending.res
	properties, err := g.state.Scope.properties(res, g.pending.annotations)
	if err != nil {
		return err
	}
	path, err := g.state.Scope.start(h, pid, properties)
	if err != nil {
		return err
	}
	g.pending = nil
	g.state.Mount, g.state.Unified = h.unified.mount, path
	if err := g.open("", filepath.Join(h.unified.mount, path)); err != nil {
		return err
	}
	if g.state.Scope.Inode, err = inode(g.dirs[0]); err != nil {
		return err
	}
	for _, c := range demands(res) {
		if c != "devices" && !g.has(h, c) {
			return &Missing{Controller: c, Path: g.String(), Remedy: remedyUser, Err: errors.New("systemd did not enable it for the scope")}
		}
	}
	return g.apply(h, res, true)
}

func inode(d *dir) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "fstat", Path: d.path, Err: err}
	}
	return st.Ino, nil
}

// set changes properties of the unit, for as long as it lives.
func (s *Scope) set(properties []dbus.Property) error {
	if s == nil || len(properties) == 0 {
		return nil
	}
	m, err := s.connect()
	if err != nil {
		return err
	}
	defer m.done()
	if err := m.SetUnitPropertiesContext(m.ctx, s.Unit, true, properties...); err != nil {
		return fmt.Errorf("set properties of %s: %w", s.Unit, err)
	}
	return nil
}

// attach moves a process where this one may not: systemd may.
func (s *Scope) attach(pid int, below string) error {
	m, err := s.connect()
	if err != nil {
		return err
	}
	defer m.done()
	object := m.calls.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	err = object.CallWithContext(m.ctx, "org.freedesktop.systemd1.Manager.AttachProcessesToUnit", 0, s.Unit, below, []uint32{uint32(pid)}).Err
	if err != nil {
		return fmt.Errorf("let systemd move process %d to %s: %w", pid, s.Unit, err)
	}
	return nil
}

// ResetScope lets the unit's name be free, where s is of one and its group is gone: a
// unit that failed stays until then. Of one that runs it is another's by now.
func ResetScope(s State) error { return s.Scope.end(false) }

// end stops the unit, if that is wanted, and lets its name be free. Where its systemd
// cannot be reached the unit is gone with it, or goes once the group is empty.
func (s *Scope) end(stop bool) error {
	if s == nil {
		return nil
	}
	m, err := s.connect()
	if err != nil {
		return nil
	}
	defer m.done()
	if stop {
		err = m.await(func(result chan string) (int, error) {
			return m.StopUnitContext(m.ctx, s.Unit, "replace", result)
		})
		if err != nil && !isError(err, "NoSuchUnit") {
			return fmt.Errorf("let systemd stop %s: %w", s.Unit, err)
		}
	}
	if err := m.ResetFailedUnitContext(m.ctx, s.Unit); err != nil && !isError(err, "NoSuchUnit") {
		return fmt.Errorf("reset %s: %w", s.Unit, err)
	}
	return nil
}

// properties are those of a new scope, except for its processes.
func (s *Scope) properties(res *specs.LinuxResources, annotations map[string]string) ([]dbus.Property, error) {
	limits, err := limitProperties(res)
	if err != nil {
		return nil, err
	}
	fixed := append([]dbus.Property{dbus.PropSlice(s.Slice), property("Delegate", true)}, limits...)
	more, err := annotated(annotations)
	if err != nil {
		return nil, err
	}
	for _, p := range more {
		if p.Name == "PIDs" || slices.ContainsFunc(fixed, func(f dbus.Property) bool { return f.Name == p.Name }) {
			return nil, fmt.Errorf("annotations: %s%s: sbxrun sets this property itself", annotationPrefix, p.Name)
		}
	}
	for _, p := range []dbus.Property{
		dbus.PropDescription("sbxrun container " + s.Unit), property("DefaultDependencies", false),
		property("MemoryAccounting", true), property("CPUAccounting", true), property("IOAccounting", true), property("TasksAccounting", true),
	} {
		if !slices.ContainsFunc(more, func(m dbus.Property) bool { return m.Name == p.Name }) {
			fixed = append(fixed, p)
		}
	}
	return append(fixed, more...), nil
}

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: bus.MakeVariant(value)}
}
