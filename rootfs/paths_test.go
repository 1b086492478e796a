// This file is the check that paths which hostile code may control are looked up by
// descriptor. "make lint" runs it too.

package rootfs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// byName are the calls that look a path up from the process's own root or directory.
// The *at calls count when their descriptor is AT_FDCWD.
var byName = map[string][]string{
	"os": {"Open", "OpenFile", "OpenRoot", "OpenInRoot", "ReadFile", "WriteFile", "ReadDir", "DirFS", "CopyFS", "Create", "CreateTemp", "MkdirTemp",
		"Mkdir", "MkdirAll", "Stat", "Lstat", "Remove", "RemoveAll", "Rename", "Symlink", "Link", "Readlink", "Chmod", "Chown", "Lchown", "Chtimes", "Chdir", "Truncate"},
	"filepath": {"Join", "Abs", "EvalSymlinks", "Glob", "Walk", "WalkDir"},
	"ioutil":   {"ReadFile", "WriteFile", "ReadDir", "TempDir", "TempFile"},
	"exec":     {"Command", "CommandContext", "LookPath"},
	"unix": {"Open", "Creat", "Stat", "Lstat", "Statfs", "Access", "Mkdir", "Mkfifo", "Mknod", "Unlink", "Rmdir", "Rename", "Symlink", "Link", "Readlink",
		"Chmod", "Chown", "Lchown", "Chdir", "Chroot", "Truncate", "Utimes", "UtimesNano", "Lutimes", "Mount", "Unmount", "PivotRoot", "Exec", "Acct", "Swapon",
		"Getxattr", "Lgetxattr", "Setxattr", "Lsetxattr", "Removexattr", "Lremovexattr", "Listxattr", "Llistxattr", "InotifyAddWatch", "NameToHandleAt"},
}

// watched are the files that have to do with paths of a container. The rest of runtime
// is about the caller's: bundles, state, pid files.
var watched = []string{"../rootfs/*.go", "../init/*.go", "../runtime/plan.go", "../runtime/devices.go", "../runtime/cgroupmount.go", "../runtime/sysctl.go",
	"../runtime/mountopts.go", "../runtime/trees.go", "../runtime/workdir.go", "../runtime/launch.go"}

// allowed says where a path may be looked up by name, and why that is no way out.
var allowed = map[string]string{
	"rootfs/root.go OpenRoot unix.Open":                  "the bundle's root and the host's /dev, before anything of the container runs",
	"rootfs/root.go bindRoot unix.OpenTree":              "the bundle's root, which the caller names",
	"rootfs/root.go bindRoot unix.MoveMount":             "the same: nothing but the tree itself is used from there on",
	"rootfs/root.go privateAbove unix.MountSetattr":      "the same, and above it",
	"rootfs/root.go Pivot unix.Open":                     "the old root",
	"rootfs/root.go Pivot unix.PivotRoot":                "\".\", which was entered by descriptor",
	"rootfs/root.go Pivot unix.Unmount":                  "\".\", the old root on top of the new",
	"rootfs/root.go Pivot unix.Chdir":                    "the new root",
	"rootfs/root.go Chroot unix.Chroot":                  "\".\", which was entered by descriptor",
	"rootfs/root.go Chroot unix.Chdir":                   "the new root",
	"rootfs/mount.go openTree unix.OpenTree":             "a bind's source, which the config names on the host",
	"rootfs/mount.go Device unix.Fchmodat":               "/proc/self/fd of a descriptor that was checked; init's /proc is the host's then",
	"rootfs/copyup.go liken unix.Fchmodat":               "the same",
	"rootfs/copyup.go liken unix.UtimesNanoAt":           "the same",
	"rootfs/remove.go unlock unix.Chmod":                 "the same",
	"rootfs/proc.go WriteOwnProc unix.Open":              "/proc, checked to be procfs before anything in it is opened",
	"rootfs/mount.go OpenOwnTerminal unix.Open":          "in the container itself: it can only lead astray inside, and must be of devpts",
	"rootfs/mount.go Attach unix.MoveMount":              "the root of a keeper's own mount namespace, where nothing of a container runs",
	"rootfs/move.go Move unix.MoveMount":                 "\"/\" of init's own mount namespace, before anything of the container runs",
	"rootfs/move.go Move unix.Chroot":                    "\".\", which was entered by descriptor",
	"rootfs/move.go Move unix.Chdir":                     "the new root",
	"rootfs/move.go hideKernelFiles os.ReadFile":         "the host's list of mounts",
	"rootfs/move.go hide unix.MountSetattr":              "a place in the host's list of mounts, in init's own mount namespace",
	"rootfs/move.go hide unix.Unmount":                   "the same, following no link",
	"rootfs/move.go hide unix.Mount":                     "the same",
	"runtime/plan.go checkRoot os.Lstat":                 "the bundle's root, which the caller names: only for a better message",
	"init/steps.go propagation unix.Mount":               "the root of init's own mount namespace",
	"init/process.go chdir unix.Chdir":                   "in the container itself; checked to be inside by getcwd",
	"init/process.go exec syscall.Exec":                  "the program, in the container itself",
	"init/process.go findHome unix.Open":                 "in the container itself, bounded and without waiting",
	"init/process.go lookup unix.Stat":                   "in the container itself; only decides what to execute there",
	"init/process.go lookup unix.Faccessat":              "the same",
	"init/hook.go hook syscall.ForkExec":                 "a hook, which the config names",
	"runtime/trees.go userNamespace os.StartProcess":     "sbxrun itself",
	"runtime/trees.go userNamespace os.Open":             "the namespace of a child that waits for us",
	"runtime/workdir.go makeWorkdir os.Open":             "TMPDIR or /tmp: root's way there is checked by trustedPath",
	"runtime/workdir.go makeWorkdir filepath.Join":       "the name of a directory that was made by descriptor, for the program",
	"runtime/workdir.go makeWorkdir filepath.Abs":        "TMPDIR or /tmp",
	"runtime/workdir.go tempDir os.Stat":                 "TMPDIR",
	"runtime/launch.go start os.OpenFile":                "the host's /dev/null",
	"runtime/launch.go spawn os.StartProcess":            "sbxrun itself",
	"runtime/launch.go openNamespace os.Open":            "a namespace that the config names on the host; checked to be one",
	"runtime/launch.go protectedSelf os.Open":            "sbxrun itself",
	"runtime/cgroupmount.go hostHierarchies os.ReadFile": "the host's list of mounts",
	"runtime/cgroupmount.go ownGroups os.ReadFile":       "a process's list of groups, in the host's /proc",
	"rootfs/gateway.go GetFile unix.Open":                "the caller's own directory, for what comes out",
	"rootfs/gateway.go openRegular unix.Open":            "/proc/self/fd of a descriptor that was checked",
}

func TestPathsOfContainersAreLookedUpByDescriptor(t *testing.T) {
	used := map[string]bool{}
	for _, pattern := range watched {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files (%v)", pattern, err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				findByName(t, file, used)
			}
		}
	}
	for key := range allowed {
		if !used[key] {
			t.Errorf("allowed, but not there: %s", key)
		}
	}
}

// findByName reports the calls of one file that are not allowed.
func findByName(t *testing.T, file string, used map[string]bool) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tree.Decls {
		within := "init"
		if f, ok := d.(*ast.FuncDecl); ok {
			within = f.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := calledByName(call)
			if name == "" {
				return true
			}
			key := fmt.Sprintf("%s %s %s", strings.TrimPrefix(file, "../"), within, name)
			if used[key] = true; allowed[key] == "" {
				t.Errorf("%s: %s in %s looks a path up by name: use Root or another descriptor, or say in the table here why it is safe", set.Position(call.Pos()), name, within)
			}
			return true
		})
	}
}

// calledByName gives "package.Function" of a call that looks a path up by name.
func calledByName(call *ast.CallExpr) string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := f.X.(*ast.Ident)
	if !ok {
		return ""
	}
	from := pkg.Name
	if from == "syscall" {
		from = "unix"
	}
	here := slices.ContainsFunc(call.Args, func(a ast.Expr) bool {
		s, ok := a.(*ast.SelectorExpr)
		return ok && s.Sel.Name == "AT_FDCWD"
	})
	runs := f.Sel.Name == "ForkExec" || f.Sel.Name == "StartProcess"
	if here || runs || slices.Contains(byName[from], f.Sel.Name) {
		return pkg.Name + "." + f.Sel.Name
	}
	return ""
}

func TestTheCheckOfPathsSeesWhatItShould(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.go")
	bad := "package x\nfunc f(p string) {\n\tos.Open(filepath.Join(root, p))\n\tunix.Mkdirat(unix.AT_FDCWD, p, 0)\n\tsyscall.Mount(a, p, b, 0, c)\n\tunix.Mkdirat(fd, p, 0)\n}\n"
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && calledByName(call) != "" {
			found = append(found, calledByName(call))
		}
		return true
	})
	if want := []string{"os.Open", "filepath.Join", "unix.Mkdirat", "syscall.Mount"}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}
