// This file owns the working directory of a session. From L5 on it is a file system of
// its own, with the policy's bounds, that a keeper process holds in a mount namespace
// where nobody else is: the kernel ends it with its keeper, whatever programs made of
// it. Below L5 it is a directory of the host.

package runtime

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/spec"
)

// home is a session's working directory: one of the two.
type home struct {
	keeper  *keeper
	workdir *workdir
	uses    sync.WaitGroup // by prepared inits that are being made, without a turn
}

// newHome makes the directory for runs of sp, which was compiled from the policy.
func newHome(id, binary string, policy *spec.Policy, sp *specs.Spec) (h *home, err error) {
	h = &home{}
	if policy.Filesystem.Isolate {
		h.keeper, err = newKeeper(binary, policy, sp)
	} else {
		h.workdir, err = makeWorkdir(id, ownerOf(sp))
	}
	return h, err
}

// dir is the directory, open.
func (h *home) dir() *os.File {
	if h.keeper != nil {
		return h.keeper.child.hand
	}
	return h.workdir.dir
}

// remove removes the directory once nobody uses it; it can be found no more.
func (h *home) remove() error {
	h.uses.Wait()
	if h.keeper != nil {
		h.keeper.child.abandon()
		return nil
	}
	return h.workdir.remove()
}

// inPlace refuses a directory that programs have put something else in the place of:
// its owner may rename it.
func (w *workdir) inPlace() error {
	var there, ours unix.Stat_t
	err := unix.Lstat(w.path, &there)
	if err == nil {
		err = unix.Fstat(int(w.dir.Fd()), &ours)
	}
	if err == nil && (there.Dev != ours.Dev || there.Ino != ours.Ino) {
		err = errors.New("something else is in its place")
	}
	if err != nil {
		return fmt.Errorf("the session's directory %s: %w", w.path, err)
	}
	return nil
}

// keeper is the process that holds a session's file system.
type keeper struct {
	mu    sync.Mutex // one question at a time
	child *child
}

// newKeeper starts one, in a user namespace with the mapping of the session's runs.
func newKeeper(binary string, policy *spec.Policy, sp *specs.Spec) (*keeper, error) {
	b := &blueprint{spec: sp, binary: binary, clone: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}
	options := []string{"mode=0700"}
	if n := policy.Workdir.Size; n > 0 {
		options = append(options, fmt.Sprintf("size=%d", n))
	}
	if n := policy.Workdir.Inodes; n > 0 {
		options = append(options, fmt.Sprintf("nr_inodes=%d", n))
	}
	b.plan.Add(sbxinit.OpPropagation, []uint64{unix.MS_PRIVATE | unix.MS_REC})
	b.plan.Add(sbxinit.OpKeep, nil, options...)
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	defer null.Close()
	proc, err := os.StartProcess(b.self(), []string{sbxinit.Name}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null, theirs}, Sys: b.sysProcAttr(nil),
	})
	if err != nil {
		return nil, errors.Join(b.explainStart(err), ours.Close())
	}
	k := &keeper{child: &child{proc: proc, channel: ours}}
	if err := k.child.prepare(b.plan, nil); err != nil {
		k.child.abandon()
		return nil, fmt.Errorf("make the session's file system: %w", explain(err))
	}
	return k, k.child.goOn()
}

// answerTime bounds the wait for a keeper, which has nothing else to do.
const answerTime = 10 * time.Second

// tree is a detached mount of the file system.
func (k *keeper) tree() (*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.child.channel.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	if _, err := k.child.channel.Write([]byte{sbxinit.FrameTree}); err != nil {
		return nil, k.gone(err)
	}
	kind, oob := [1]byte{}, make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := k.child.channel.ReadMsgUnix(kind[:], oob)
	switch {
	case err != nil || n == 0:
		return nil, k.gone(err)
	case kind[0] != sbxinit.FrameTree:
		return nil, k.child.failure(kind[0])
	}
	return receiveFile(oob[:oobn], "session")
}

func (k *keeper) gone(err error) error {
	return fmt.Errorf("the keeper of the session's file system: %w", k.child.died("when it was asked", err))
}

// gateway opens the way for files into and out of the directory.
func (h *home) gateway(policy *spec.Policy, owner rootfs.Owner) (*rootfs.Gateway, error) {
	return rootfs.OpenGateway(h.dir(), owner, rootfs.Caps{FileSize: policy.Limits.FileSize})
}
