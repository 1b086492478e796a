// This file owns notices: what somebody who watches runs is told, as it happens.

package runtime

import (
	"fmt"
	"strings"
	"time"
)

// Notice is one thing that happened in a run, as a line of "--events".
type Notice struct {
	Time   time.Time `json:"time"`
	Run    string    `json:"run"`
	Event  string    `json:"event"`            // "started", "limit", "stopped", "swept" or "refused"
	Rule   string    `json:"rule,omitempty"`   // key of the policy: "limits.wall"; of "refused" the mechanism that is missing
	Layer  string    `json:"layer,omitempty"`  // layer of the policy: "limits"
	Reason Reason    `json:"reason,omitempty"` // of "stopped" and "refused"
	Detail string    `json:"detail,omitempty"`
	Warm   bool      `json:"warm,omitempty"` // "started" from a prepared init
}

// tell tells who watches.
func (r *run) tell(n Notice) {
	if r.opt.Watch == nil {
		return
	}
	n.Time, n.Run = time.Now().UTC(), r.opt.ID
	r.opt.Watch(n)
}

// tellEnd tells what the Result says.
func (r *run) tellEnd(res *Result) {
	if r.opt.Watch == nil {
		return
	}
	end := Notice{Event: "stopped", Reason: res.Reason}
	if r.report == nil && r.stop == nil {
		end.Event = "refused"
	}
	if len(res.Evidence) > 0 {
		end.Detail = res.Evidence[0].Detail
	}
	if f := res.Error; f != nil {
		end.Layer, end.Rule, end.Detail = f.Layer, f.Mechanism, f.Message
	}
	for _, key := range res.LimitsHit {
		layer, _, _ := strings.Cut(key, ".")
		r.tell(Notice{Event: "limit", Rule: key, Layer: layer})
	}
	r.tell(end)
	if res.Swept > 0 {
		r.tell(Notice{Event: "swept", Rule: "limits.sweep", Layer: "limits", Detail: fmt.Sprintf("%d processes", res.Swept)})
	}
}
