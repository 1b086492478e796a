// This file owns the progress notifications of "sbxrun mcp".

package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// progress counts what a program prints and tells the client, if it wants to know. It
// never waits for the client: what comes while a notification is on its way is told by
// the next one.
type progress struct {
	bytes atomic.Int64
	news  chan struct{} // nil when nobody wants to know
	done  chan struct{}
}

func watchRun(ctx context.Context, req *mcp.CallToolRequest) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return &progress{}
	}
	p := &progress{news: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		told := int64(0)
		for range p.news {
			n := p.bytes.Load()
			if n == told {
				continue
			}
			told = n
			// An error means that the client is gone, which ends the run anyway.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(n), Message: fmt.Sprintf("%d bytes of output", n),
			})
		}
	}()
	return p
}

func (p *progress) Write(b []byte) (int, error) {
	p.bytes.Add(int64(len(b)))
	select {
	case p.news <- struct{}{}:
	default:
	}
	return len(b), nil
}

// end lets the last notification go before the answer, if the client still listens.
func (p *progress) end(ctx context.Context) {
	if p.news == nil {
		return
	}
	close(p.news)
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}
