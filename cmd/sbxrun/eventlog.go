// This file owns "--events": what happens in a run, as lines of JSON for whoever
// watches.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
)

func eventsFlag() cli.Flag {
	return &cli.StringFlag{Name: "events", Usage: "append what happens as JSON lines to `FILE`, or to descriptor N with fd:N"}
}

// openEvents opens what --events names, nil when it is not given.
func openEvents(c *cli.Context) (*os.File, error) {
	name := c.String("events")
	if name == "" {
		return nil, nil
	}
	if number, ok := strings.CutPrefix(name, "fd:"); ok {
		fd, err := strconv.Atoi(number)
		if err != nil || fd < 0 {
			return nil, fmt.Errorf("--events: %q is no descriptor", name)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return nil, fmt.Errorf("--events: descriptor %d is not open", fd)
		}
		unix.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), name), nil
	}
	// A FIFO without a reader is refused (ENXIO) instead of waited for.
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--events: %w", err)
	}
	return f, nil
}

// eventLog writes notices at the pace of who reads them, whom the run does not wait for.
type eventLog struct {
	notices chan runtime.Notice
	done    chan error
	lost    int
}

// maxEvents bounds those that wait to be read; a run has a handful.
const maxEvents = 256

func newEventLog(to io.Writer) *eventLog {
	l := &eventLog{notices: make(chan runtime.Notice, maxEvents), done: make(chan error, 1)}
	go func() {
		var failed error
		for n := range l.notices {
			text, err := json.Marshal(n)
			if err == nil && failed == nil {
				_, err = to.Write(append(text, '\n'))
			}
			failed = errors.Join(failed, err)
		}
		l.done <- failed
	}()
	return l
}

// watch takes a notice.
func (l *eventLog) watch(n runtime.Notice) {
	select {
	case l.notices <- n:
	default:
		l.lost++
	}
}

// close waits until all is written.
func (l *eventLog) close() error {
	close(l.notices)
	err := <-l.done
	if l.lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d events were lost: nobody read them", l.lost))
	}
	if err != nil {
		return fmt.Errorf("write the events: %w", err)
	}
	return nil
}
