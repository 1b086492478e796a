// This file owns the events of a container: its counters now and then, and every
// time the kernel killed something of it for want of memory.

package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sbxrun/sbxrun/cgroup"
)

// Event is one line of "sbxrun events", in runc's form.
type Event struct {
	Type string        `json:"type"` // "stats" or "oom"
	ID   string        `json:"id"`
	Data *cgroup.Stats `json:"data,omitempty"`
}

// lookTime is how often the counter of memory kills is read: the kernel's own
// notices differ between v1 and v2, a number does not.
const lookTime = 100 * time.Millisecond

// Stats reads the container's counters.
func (c *Container) Stats() (Event, error) {
	switch status, err := c.Status(); {
	case err != nil:
		return Event{}, err
	case status == specs.StateStopped:
		return Event{}, fmt.Errorf("container with id %s is not running", c.record.ID)
	}
	g := c.group()
	if g == nil {
		return Event{}, fmt.Errorf("container %s has no control group", c.record.ID)
	}
	defer g.Close()
	stats, err := g.Stats()
	return Event{"stats", c.record.ID, stats}, err
}

// Events calls tell with the counters each interval and with every memory kill, until
// the container has stopped or ctx is canceled.
func (c *Container) Events(ctx context.Context, interval time.Duration, tell func(Event) error) error {
	if _, err := c.Stats(); err != nil {
		return err
	}
	g := c.group()
	if g == nil {
		return errNotRunning
	}
	defer g.Close()
	kills, err := g.OOMKills()
	if err != nil {
		return err
	}
	look, stats := time.NewTicker(lookTime), time.NewTicker(interval)
	defer look.Stop()
	defer stats.Stop()
	for {
		var due bool
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		case <-stats.C:
			due = true
		}
		// Asked before the counter is read: the kill that ended the container is told too.
		status, err := c.Status()
		if err != nil {
			return err
		}
		now, err := g.OOMKills()
		for ; err == nil && kills < now; kills++ {
			if err := tell(Event{Type: "oom", ID: c.record.ID}); err != nil {
				return err
			}
		}
		if status == specs.StateStopped {
			return nil
		}
		if !due {
			continue
		}
		if e, err := c.Stats(); err == nil { // else it stops just now
			if err := tell(e); err != nil {
				return err
			}
		}
	}
}
