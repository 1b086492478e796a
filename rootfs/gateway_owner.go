// This file owns the rights that the gateway acts with: for the time of a few system
// calls, one thread has the ids of the program's owner and no capabilities.

package rootfs

import (
	"fmt"
	"os"
	"reflect"
	"runtime"

	"golang.org/x/sys/unix"
)

// Owner is whose file rights the gateway acts with: those of the program, so that
// what the program cannot reach the gateway cannot either. In a tmpfs of a user
// namespace, nobody else can even create a file (EOVERFLOW). The zero value is this
// process as it is; then files of any owner are let out.
//
// To act for another makes this process undumpable, as every change of ids does
// (PR_SET_DUMPABLE(2)).
type Owner struct{ UID, GID uint32 }

// foreign says whether owner is somebody else than this process.
func foreign(owner Owner) (bool, error) {
	euid := os.Geteuid()
	if owner == (Owner{}) || int(owner.UID) == euid && euid != 0 {
		return false, nil
	}
	if euid != 0 {
		return false, fmt.Errorf("act for user %d as user %d: %w", owner.UID, euid, unix.EPERM)
	}
	return true, nil
}

// asOwner runs f, which calls no foreign code, with the owner's file rights.
func (g *Gateway) asOwner(f func() error) error {
	if !g.other {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// The thread is given back only when it is seen to be as it was. A goroutine
		// that ends locked takes its thread along. That is not done every time:
		// children with a parent-death signal die with the thread that made them.
		runtime.LockOSThread()
		was, err := current()
		if err == nil {
			owned := identity{uid: int(g.owner.UID), gid: int(g.owner.GID), caps: was.caps}
			owned.drop()
			if err = owned.assume(); err == nil {
				err = f()
			}
			if was.assume() == nil {
				runtime.UnlockOSThread()
			}
		}
		done <- err
	}()
	return <-done
}

// identity is what the kernel judges a thread's access to files by; credentials(7).
type identity struct {
	uid, gid int
	groups   []int
	caps     [2]unix.CapUserData
}

var capHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}

// current gives this thread's identity.
func current() (i identity, err error) {
	// Asked for an impossible id, these calls change nothing and return the present one.
	i.uid, _ = unix.SetfsuidRetUid(-1)
	i.gid, _ = unix.SetfsgidRetGid(-1)
	if i.groups, err = unix.Getgroups(); err != nil {
		return i, fmt.Errorf("getgroups: %w", err)
	}
	header := capHeader
	if err = unix.Capget(&header, &i.caps[0]); err != nil {
		return i, fmt.Errorf("capget: %w", err)
	}
	return i, nil
}

// drop puts every capability out of effect. They stay permitted, for the way back.
func (i *identity) drop() { i.caps[0].Effective, i.caps[1].Effective = 0, 0 }

// assume gives this thread, and no other, the identity, and checks that it has it:
// setfsuid and setfsgid do not tell of failures.
func (i identity) assume() error {
	able, header := i.caps, capHeader
	for n := range able {
		able[n].Effective = able[n].Permitted // setgroups and the rest need some
	}
	if err := unix.Capset(&header, &able[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	if err := unix.Setgroups(i.groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	_, _ = unix.SetfsgidRetGid(i.gid)
	_, _ = unix.SetfsuidRetUid(i.uid)
	if err := unix.Capset(&header, &i.caps[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	now, err := current()
	if err == nil && !reflect.DeepEqual(now, i) {
		err = fmt.Errorf("setfsuid %d, setfsgid %d: %w", i.uid, i.gid, unix.EPERM)
	}
	return err
}
