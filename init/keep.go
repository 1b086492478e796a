// This file owns the keeper: an init that becomes no program, but lives for the file
// system of a session. That lies in the keeper's mount namespace alone and is gone with
// it, whatever it holds.

package sbxinit

import (
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/rootfs"
)

// FrameTree asks a keeper for another mount of its file system, and is its answer.
const FrameTree = 'T'

// keep makes the file system, hands over its root, and then a mount of it for each
// FrameTree, until the channel ends. Mounts have to be cloned here: no other mount
// namespace has one to clone (open_tree(2)).
func (s *state) keep(st Step) error {
	tree, err := rootfs.Attach("tmpfs", st.Strs)
	if err != nil {
		return err
	}
	dir, err := unix.Openat(tree, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return call("open", "the session's directory", err)
	}
	if err := unix.Mkdirat(dir, "tmp", 0o700); err != nil {
		return call("mkdir", "tmp", err)
	}
	s.handFD = dir
	if err := s.ready(st); err != nil {
		return err
	}
	for {
		var kind [1]byte
		if err := readFull(ChannelFD, kind[:]); err != nil {
			unix.Exit(0) // nobody wants it any more
		}
		clone, err := rootfs.Clone(tree)
		if err != nil {
			return call("open_tree", "the session's directory", err)
		}
		err = unix.Sendmsg(ChannelFD, []byte{FrameTree}, unix.UnixRights(clone), nil, unix.MSG_NOSIGNAL)
		unix.Close(clone)
		if err != nil {
			return call("sendmsg", "channel", err)
		}
	}
}

// more performs the rest of the plan, which comes with the go-ahead: an init that was
// prepared ahead of time does not know its program. A descriptor that comes along
// becomes the program's stdin.
func (s *state) more(Step) error {
	head, oob := [1]byte{}, make([]byte, unix.CmsgSpace(4))
	var oobn int
	for {
		n, rights, _, _, err := unix.Recvmsg(ChannelFD, head[:], oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = unix.EPIPE
		}
		if err != nil {
			return call("recvmsg", "channel", err)
		}
		oobn = rights
		break
	}
	if err := takeStdin(oob[:oobn]); err != nil {
		return call("receive", "stdin", err)
	}
	rest, err := receivePlan()
	if err != nil {
		return call("read", "the rest of the plan", err)
	}
	s.rest = rest
	return nil
}

// takeStdin makes the descriptor in oob, if there is one, descriptor 0.
func takeStdin(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) == 0 {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return unix.EBADMSG
	}
	if err := unix.Dup3(fds[0], 0, 0); err != nil {
		return err
	}
	return unix.Close(fds[0])
}
