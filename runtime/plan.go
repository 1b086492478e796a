// This file owns the way from config.json to the Plan of init: which steps, in
// which order. What is not implemented is refused here by its field's name.

package runtime

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/spec"
)

// blueprint is everything that a launch needs, made from config.json alone.
type blueprint struct {
	plan    sbxinit.Plan
	clone   uintptr                // CLONE_NEW* flags of namespaces to make
	joined  uintptr                // and of those to join
	joins   []specs.LinuxNamespace // the latter, by path
	spec    *specs.Spec
	policy  *spec.Policy // nil for a config that no policy was compiled to
	inside  bool         // the working directory is made inside the container (OpWorkdir)
	reaped  bool         // the program runs under the reaper
	keyring bool         // a session keyring of its own, whatever the policy says
	driven  bool         // init is to be a child of our parent
	waits   bool         // init waits for "start" (OpAwait)
	binary  string       // what becomes init, "" is this program
	home    *home        // the working directory is a session's
	late    bool         // what follows the barrier is kept in rest, for OpMore
	rest    sbxinit.Plan
	noPivot bool // the root moves to /, which takes no pivot_root
	kept    int  // descriptors beyond 2 that the program gets
	// groupMounts show the container its group; they need to know where that is.
	groupMounts []groupMount
	readonly    []string     // mounts that become read-only when all is in them
	trees       []sourceTree // opened here and handed to init
	seccomp     bool
	cgroupNS    bool     // made or joined
	unknownCaps []string // names of capabilities that are left out
	deniedCaps  []string // ambient ones that the kernel would not grant
}

// cloneFlags maps kinds of namespaces to the kernel's flags. clone makes all but the
// cgroup namespace: init unshares that once it is in its group, else the group would
// be visible.
var cloneFlags = map[specs.LinuxNamespaceType]uintptr{
	specs.UserNamespace: unix.CLONE_NEWUSER, specs.PIDNamespace: unix.CLONE_NEWPID,
	specs.MountNamespace: unix.CLONE_NEWNS, specs.IPCNamespace: unix.CLONE_NEWIPC,
	specs.UTSNamespace: unix.CLONE_NEWUTS, specs.NetworkNamespace: unix.CLONE_NEWNET,
	specs.CgroupNamespace: unix.CLONE_NEWCGROUP,
}

// draw fills the plan; bundle is where relative paths start.
func (b *blueprint) draw(bundle string) error {
	sp, policy := b.spec, b.policy
	if err := refuse(sp); err != nil {
		return err
	}
	if policy != nil {
		b.reaped, b.inside = true, policy.Workdir.Private && policy.Filesystem.Isolate
	}
	for _, draw := range []func(string) error{b.namespaces, b.filesystem, b.names, b.process} {
		if err := draw(bundle); err != nil {
			return err
		}
	}
	if b.late {
		at := slices.IndexFunc(b.plan, func(s sbxinit.Step) bool { return s.Op == sbxinit.OpMore }) + 1
		b.plan, b.rest = b.plan[:at], b.plan[at:]
	}
	return checkRoot(rootOf(sp, bundle))
}

// has says whether the container is in a namespace other than sbxrun's.
func (b *blueprint) has(flag uintptr) bool { return (b.clone|b.joined)&flag != 0 }

func (b *blueprint) namespaces(string) error {
	seen := map[specs.LinuxNamespaceType]bool{}
	for i, ns := range b.spec.Linux.Namespaces {
		field := fmt.Sprintf("linux.namespaces[%d]", i)
		flag, known := cloneFlags[ns.Type]
		switch {
		case !known:
			return fmt.Errorf("%s.type: namespace %q is not supported", field, ns.Type)
		case seen[ns.Type]:
			return fmt.Errorf("%s.type: %q is listed twice", field, ns.Type)
		case ns.Path != "" && !path.IsAbs(ns.Path):
			return fmt.Errorf("%s.path: %q is not an absolute path", field, ns.Path)
		}
		seen[ns.Type] = true
		if planted("host-ipc") {
			flag &^= unix.CLONE_NEWIPC
		}
		if planted("host-network") {
			flag &^= unix.CLONE_NEWNET
		}
		b.cgroupNS = b.cgroupNS || ns.Type == specs.CgroupNamespace
		switch {
		case ns.Path != "":
			b.joined, b.joins = b.joined|flag, append(b.joins, ns)
		case ns.Type == specs.CgroupNamespace:
			b.plan.Add(sbxinit.OpCgroupNS, nil)
		default:
			b.clone |= flag
		}
	}
	if maps := len(b.spec.Linux.UIDMappings) + len(b.spec.Linux.GIDMappings); maps > 0 && !b.has(unix.CLONE_NEWUSER) {
		return fmt.Errorf("linux.uidMappings: there is no user namespace to map")
	} else if b.clone&unix.CLONE_NEWUSER != 0 && (len(b.spec.Linux.UIDMappings) == 0 || len(b.spec.Linux.GIDMappings) == 0) {
		return fmt.Errorf("linux.uidMappings and linux.gidMappings: a user namespace needs both")
	}
	if (b.keyring || b.policy != nil && b.policy.Processes.Isolate) && !planted("callers-keyring") {
		b.plan.Add(sbxinit.OpKeyring, nil)
	}
	return nil
}

func (b *blueprint) filesystem(bundle string) error {
	sp := b.spec
	root := rootOf(sp, bundle)
	own := b.has(unix.CLONE_NEWNS)
	if b.noPivot && (!own || root == "/") {
		return fmt.Errorf("--no-pivot: needs a mount namespace and a root of its own")
	}
	if !own && (b.policy != nil || root == "/") {
		b.createHooks()
		return b.withoutMountNamespace(root)
	}
	propagation, err := rootPropagation(sp.Linux.RootfsPropagation)
	if err != nil {
		return err
	}
	if b.policy != nil {
		propagation = unix.MS_PRIVATE | unix.MS_REC // a mount that came later would be neither hidden nor read-only
	}
	if b.noPivot && propagation&unix.MS_SHARED != 0 {
		return fmt.Errorf("--no-pivot: linux.rootfsPropagation: %q would put the root over the host's / too", sp.Linux.RootfsPropagation)
	}
	b.root(root, propagation, own)
	if err := b.mounts(bundle); err != nil {
		return err
	}
	if err := b.furnish(root); err != nil {
		return err
	}
	b.seal(root)
	b.createHooks()
	if !own {
		b.plan.Add(sbxinit.OpChroot, nil)
		return nil
	}
	move := uint64(0)
	if b.noPivot {
		move = 1
	}
	b.plan.Add(sbxinit.OpPivot, []uint64{move})
	if sp.Linux.RootfsPropagation != "" {
		b.plan.Add(sbxinit.OpPropagation, []uint64{propagation})
	}
	return nil
}

// checkRoot refuses early, and by the field's name, what no root can be made of.
func checkRoot(root string) error {
	st, err := os.Lstat(root)
	switch {
	case err != nil:
		return fmt.Errorf("root.path: %w", err)
	case st.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("root.path: %s is a symbolic link: name the directory that it leads to", root)
	case !st.IsDir():
		return fmt.Errorf("root.path: %s is not a directory", root)
	}
	return nil
}

// root plans the container's root, which at first is writable.
func (b *blueprint) root(root string, propagation uint64, own bool) {
	if propagation&unix.MS_UNBINDABLE != 0 { // of what nobody may bind no root can be made
		propagation = unix.MS_PRIVATE | unix.MS_REC
	}
	private, above := propagation&unix.MS_SHARED, propagation&unix.MS_SHARED
	if own {
		b.plan.Add(sbxinit.OpPropagation, []uint64{propagation})
	} else {
		// The mounts lie on the root's directory in the caller's namespace, as with runc;
		// Delete takes them away with their lowest.
		private = 1
	}
	tree := 0
	if root != "/" {
		tree = b.handTree(rootfs.Mount{Bind: true, Recursive: true, Source: root}, sourceTree{})
	}
	b.plan.Add(sbxinit.OpRoot, []uint64{uint64(tree), private, above}, root)
	if planted("masks-first") {
		b.masks()
	}
	if b.spec.Root.Readonly && root == "/" && !planted("root-left-writable") {
		b.plan.Add(sbxinit.OpRootBelow, nil)
	}
}

func (b *blueprint) mounts(bundle string) error {
	for i, m := range b.spec.Mounts {
		field := fmt.Sprintf("mounts[%d]", i)
		mount, err := decodeMount(m, field, bundle)
		if err != nil {
			return err
		}
		source, err := b.mappingOf(m, field)
		if err != nil {
			return err
		}
		mount.Options = append(mount.Options, b.mountLabel(mount)...)
		if err := b.mount(mount, source); err != nil {
			return err
		}
	}
	return nil
}

// furnish plans what comes into the mounts.
func (b *blueprint) furnish(root string) error {
	if err := b.devices(root); err != nil {
		return err
	}
	if b.inside {
		b.workdir()
	}
	if b.policy == nil && root != "/" {
		b.plan.Add(sbxinit.OpDirectory, nil, b.spec.Process.Cwd) // as runc does
	}
	if b.spec.Process.Terminal {
		b.plan.Add(sbxinit.OpConsole, consoleStep(b.spec.Process))
	}
	return b.sysctls()
}

// seal plans what becomes hidden or read-only in the end.
func (b *blueprint) seal(root string) {
	if !planted("masks-first") {
		b.masks()
	}
	for _, target := range b.readonly {
		nums, strs := sbxinit.MountStep(readonlyAgain(rootfs.Mount{Target: target}))
		b.plan.Add(sbxinit.OpMount, nums, strs...)
	}
	if b.spec.Root.Readonly && root != "/" {
		b.plan.Add(sbxinit.OpRootReadonly, nil)
	}
}

// mount plans one entry of mounts, which for control groups are several.
func (b *blueprint) mount(m rootfs.Mount, source sourceTree) error {
	if m.Type == "tmpfs" && !m.Bind && !m.Remount && m.Set&unix.MOUNT_ATTR_RDONLY != 0 {
		// Mount points may have to be made in it: read-only it becomes in the end.
		m.Set &^= unix.MOUNT_ATTR_RDONLY
		b.readonly = append(b.readonly, m.Target)
	}
	mounts := []rootfs.Mount{m}
	if m.Type == "cgroup" && !m.Bind {
		if !b.cgroupNS {
			b.groupMounts = append(b.groupMounts, groupMount{len(b.plan), m})
			return nil
		}
		var err error
		if mounts, err = cgroupMounts(m); err != nil {
			return err
		}
	}
	for _, one := range mounts {
		one.Tree = b.handTree(one, source)
		nums, strs := sbxinit.MountStep(one)
		b.plan.Add(sbxinit.OpMount, nums, strs...)
	}
	return nil
}

// withoutMountNamespace refuses what would need one.
func (b *blueprint) withoutMountNamespace(root string) error {
	sp := b.spec
	switch {
	case root != "/":
		return fmt.Errorf("root.path: %q needs a mount namespace", root)
	case sp.Process.Terminal:
		return fmt.Errorf("process.terminal: needs a mount namespace")
	case sp.Root.Readonly:
		return fmt.Errorf("root.readonly: needs a mount namespace")
	case len(sp.Mounts) > 0:
		return fmt.Errorf("mounts: need a mount namespace")
	case len(sp.Linux.MaskedPaths) > 0:
		return fmt.Errorf("linux.maskedPaths: need a mount namespace")
	case len(sp.Linux.ReadonlyPaths) > 0:
		return fmt.Errorf("linux.readonlyPaths: need a mount namespace")
	case len(sp.Linux.Devices) > 0:
		return fmt.Errorf("linux.devices: need a mount namespace")
	case sp.Linux.RootfsPropagation != "":
		return fmt.Errorf("linux.rootfsPropagation: needs a mount namespace")
	}
	return nil
}

func rootPropagation(name string) (uint64, error) {
	flags, ok := map[string]uint64{
		"": unix.MS_SLAVE, "rslave": unix.MS_SLAVE, "slave": unix.MS_SLAVE,
		"rprivate": unix.MS_PRIVATE, "private": unix.MS_PRIVATE,
		"rshared": unix.MS_SHARED, "shared": unix.MS_SHARED,
		"runbindable": unix.MS_UNBINDABLE, "unbindable": unix.MS_UNBINDABLE,
	}[name]
	if !ok {
		return 0, fmt.Errorf("linux.rootfsPropagation: unknown %q", name)
	}
	// Recursive in each case: a mount below that stayed shared would let mounts out.
	return flags | unix.MS_REC, nil
}

// masks come after every mount: a mask laid earlier could be covered again.
func (b *blueprint) masks() {
	for _, p := range b.spec.Linux.ReadonlyPaths {
		b.plan.Add(sbxinit.OpReadonly, nil, p)
	}
	for _, p := range b.spec.Linux.MaskedPaths {
		discard := uint64(0)
		if b.policy != nil && slices.Contains(b.policy.Filesystem.Hide, p) {
			discard = 1
		}
		b.plan.Add(sbxinit.OpMask, []uint64{discard}, p)
	}
}

// names covers what a namespace is called and tuned to, up to the barrier.
func (b *blueprint) names(string) error {
	sp := b.spec
	if (sp.Hostname != "" || sp.Domainname != "") && !b.has(unix.CLONE_NEWUTS) {
		return fmt.Errorf("hostname: needs a uts namespace")
	}
	if sp.Hostname != "" {
		b.plan.Add(sbxinit.OpHostname, nil, sp.Hostname)
	}
	if sp.Domainname != "" {
		b.plan.Add(sbxinit.OpDomainname, nil, sp.Domainname)
	}
	if len(sp.Linux.Sysctl) > 0 && !b.has(unix.CLONE_NEWNS) && rootOf(sp, "/") == "/" {
		return fmt.Errorf("linux.sysctl: needs a mount namespace")
	}
	if b.policy == nil {
		if b.clone&unix.CLONE_NEWNET != 0 {
			b.plan.Add(sbxinit.OpLoopback, nil)
		}
		b.plan.Add(sbxinit.OpLookup, nil, append([]string{sp.Process.Cwd, sp.Process.Args[0]}, sp.Process.Env...)...)
	}
	b.plan.Add(sbxinit.OpReady, nil)
	if b.waits {
		b.plan.Add(sbxinit.OpAwait, nil)
	}
	if b.late {
		b.plan.Add(sbxinit.OpMore, nil)
	}
	return nil
}

// workdir plans the private working directory: a new one, or a mount of the session's.
func (b *blueprint) workdir() {
	if b.home == nil {
		b.plan.Add(sbxinit.OpWorkdir, []uint64{0}, spec.WorkdirPath)
		return
	}
	m := rootfs.Mount{Bind: true, Source: "session", Target: spec.WorkdirPath, Tree: b.addTree(sourceTree{open: b.home.keeper.tree})}
	nums, strs := sbxinit.MountStep(m)
	b.plan.Add(sbxinit.OpMount, nums, strs...)
	b.plan.Add(sbxinit.OpWorkdir, []uint64{1}, spec.WorkdirPath)
}

// program changes what the prepared plan is to execute.
func (b *blueprint) program(args []string) {
	b.spec.Process.Args = args
	last := &b.rest[len(b.rest)-1]
	_, env := last.Strs[:last.Nums[0]], last.Strs[last.Nums[0]:]
	last.Nums[0], last.Strs = uint64(len(args)), append(slices.Clone(args), env...)
}

// rlimits maps the names of config.json to the kernel's numbers.
var rlimits = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU,
	"RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS,
	"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE,
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME,
	"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
}

// process covers everything from the barrier to execve.
func (b *blueprint) process(string) error {
	p := b.spec.Process
	if b.policy == nil {
		env, err := settled(p.Env)
		if err != nil {
			return err
		}
		p.Env = env
	}
	if planted("callers-cwd") && !b.inside {
		p.Cwd = plantCwd
	}
	if planted("environment-inherited") {
		p.Env = append(slices.Clip(p.Env), plantEnv...)
	}
	b.plan.Add(sbxinit.OpChdir, nil, p.Cwd)
	if b.policy == nil && !slices.ContainsFunc(p.Env, func(e string) bool { return strings.HasPrefix(e, "HOME=") }) {
		b.plan.Add(sbxinit.OpHome, []uint64{uint64(p.User.UID)})
	}
	if p.OOMScoreAdj != nil {
		b.plan.Add(sbxinit.OpOOMScore, nil, fmt.Sprint(*p.OOMScoreAdj))
	}
	if err := b.limits(); err != nil {
		return err
	}
	if err := b.scheduling(); err != nil {
		return err
	}
	if err := b.labels(); err != nil {
		return err
	}
	filter, err := b.filter()
	if err != nil {
		return err
	}
	// Without no_new_privs only a holder of CAP_SYS_ADMIN may install a filter,
	// so it must come before the capabilities go.
	if planted("filter-missing") {
		filter, b.seccomp = nil, false
	}
	if filter != nil && (!p.NoNewPrivileges || planted("no-new-privs-left-out")) {
		b.plan = append(b.plan, *filter)
	}
	if err := b.identity(); err != nil {
		return err
	}
	if p.NoNewPrivileges && !planted("no-new-privs-left-out") {
		b.plan.Add(sbxinit.OpNoNewPrivs, nil)
		if filter != nil {
			b.plan = append(b.plan, *filter)
		}
	}
	b.insideHooks("startContainer")
	op := sbxinit.OpExec
	if b.reaped {
		op = sbxinit.OpReap
	}
	b.plan.Add(op, []uint64{uint64(len(p.Args)), uint64(b.kept)}, append(slices.Clone(p.Args), p.Env...)...)
	return nil
}

// settled gives an environment in which each variable stands once, with the value that
// was given last: a program would else find the first.
func settled(env []string) ([]string, error) {
	var out []string
	at := map[string]int{}
	for i, e := range env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("process.env[%d]: %q is not NAME=VALUE", i, e)
		}
		if j, seen := at[name]; seen {
			out[j] = e
			continue
		}
		at[name] = len(out)
		out = append(out, e)
	}
	return out, nil
}

// limits plans the rlimits.
func (b *blueprint) limits() error {
	for i, l := range b.spec.Process.Rlimits {
		resource, ok := rlimits[l.Type]
		if !ok {
			return fmt.Errorf("process.rlimits[%d].type: unknown %q", i, l.Type)
		}
		if planted("cpu-soft-only") && l.Type == "RLIMIT_CPU" {
			l.Hard = unix.RLIM_INFINITY
		}
		if planted("no-file-size") && l.Type == "RLIMIT_FSIZE" || planted("no-nofile") && l.Type == "RLIMIT_NOFILE" {
			continue
		}
		b.plan.Add(sbxinit.OpRlimit, []uint64{uint64(resource), l.Soft, l.Hard}, l.Type)
	}
	return nil
}

func (b *blueprint) filter() (*sbxinit.Step, error) {
	if b.spec.Linux.Seccomp == nil {
		return nil, nil
	}
	prog, err := compileSeccomp(b.spec.Linux.Seccomp, goarch)
	if err != nil {
		return nil, fmt.Errorf("linux.seccomp: %w", err)
	}
	if prog.notify && b.policy != nil {
		return nil, fmt.Errorf("linux.seccomp.listenerPath: not with a policy")
	}
	b.seccomp = true
	return &sbxinit.Step{Op: sbxinit.OpSeccomp, Nums: []uint64{uint64(prog.flags)}, Strs: []string{string(prog.bytes())}}, nil
}

// identity orders bounding set, user and the other sets as capabilities(7) needs
// them: bounding while CAP_SETPCAP is there, the rest after the user changed.
func (b *blueprint) identity() error {
	p := b.spec.Process
	var bounding, eff, perm, inh, amb uint64
	if c := p.Capabilities; c != nil {
		for _, set := range []struct {
			name  string
			names []string
			mask  *uint64
		}{
			{"bounding", c.Bounding, &bounding}, {"effective", c.Effective, &eff}, {"permitted", c.Permitted, &perm},
			{"inheritable", c.Inheritable, &inh}, {"ambient", c.Ambient, &amb},
		} {
			mask, err := b.capMask("process.capabilities."+set.name, set.names)
			if err != nil {
				return err
			}
			*set.mask = mask
		}
		if planted("caps-effective-only") && eff == 0 {
			bounding, perm, inh = ^uint64(0), 1<<0, 1<<0
		}
		if planted("bounding-left") {
			bounding = ^uint64(0)
		}
		b.plan.Add(sbxinit.OpBounding, []uint64{bounding})
	}
	umask := uint64(0o022)
	if p.User.Umask != nil {
		umask = uint64(*p.User.Umask)
	}
	user := []uint64{uint64(p.User.UID), uint64(p.User.GID), umask}
	for _, g := range p.User.AdditionalGids {
		user = append(user, uint64(g))
	}
	if b.policy != nil && b.policy.Capabilities.Drop {
		// Root's habit of regaining capabilities at execve is switched off and locked.
		b.plan.Add(sbxinit.OpSecurebits, []uint64{lockedSecurebits})
	}
	b.plan.Add(sbxinit.OpUser, user)
	if p.Capabilities != nil {
		amb = b.grantable(amb, perm&inh)
		b.plan.Add(sbxinit.OpCaps, []uint64{eff, perm, inh, amb})
	}
	return nil
}

// lockedSecurebits is NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each locked
// (securebits.h); KEEP_CAPS stays free because the user step uses it.
const lockedSecurebits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<6 | 1<<7

// refuse names what sbxrun does not implement or cannot make sense of.
func refuse(sp *specs.Spec) error {
	if sp.Process == nil || len(sp.Process.Args) == 0 {
		return fmt.Errorf("process.args: missing")
	}
	if sp.Root == nil || sp.Root.Path == "" {
		return fmt.Errorf("root.path: missing")
	}
	if sp.Linux == nil {
		sp.Linux = &specs.Linux{}
	}
	if !path.IsAbs(sp.Process.Cwd) {
		return fmt.Errorf("process.cwd: %q is not an absolute path", sp.Process.Cwd)
	}
	p, l := sp.Process, sp.Linux
	unsupported := []struct {
		field string
		used  bool
	}{
		{"process.terminal", p.Terminal && spec.IsCompiled(sp)},
		{"linux.intelRdt", l.IntelRdt != nil},
		{"linux.memoryPolicy", l.MemoryPolicy != nil},
		{"linux.timeOffsets", len(l.TimeOffsets) > 0},
		{"linux.netDevices", len(l.NetDevices) > 0},
		{"solaris", sp.Solaris != nil}, {"windows", sp.Windows != nil}, {"vm", sp.VM != nil},
		{"zos", sp.ZOS != nil}, {"freebsd", sp.FreeBSD != nil},
	}
	for _, u := range unsupported {
		if u.used {
			return fmt.Errorf("%s: not supported", u.field)
		}
	}
	if err := checkHooks(sp); err != nil {
		return err
	}
	return noNUL(sp)
}

// noNUL refuses strings that the kernel would cut short.
func noNUL(sp *specs.Spec) error {
	p := sp.Process
	lists := map[string][]string{
		"process.args": p.Args, "process.env": p.Env, "process.cwd": {p.Cwd}, "root.path": {sp.Root.Path},
		"hostname": {sp.Hostname, sp.Domainname}, "linux.maskedPaths": sp.Linux.MaskedPaths, "linux.readonlyPaths": sp.Linux.ReadonlyPaths,
	}
	for i, m := range sp.Mounts {
		lists[fmt.Sprintf("mounts[%d]", i)] = append([]string{m.Destination, m.Source, m.Type}, m.Options...)
	}
	for field, list := range lists {
		for _, s := range list {
			if strings.ContainsRune(s, 0) {
				return fmt.Errorf("%s: a string contains a NUL byte", field)
			}
		}
	}
	return nil
}
