// This file owns the figures of sessions: runs by the Go package in this process, with
// the inits of the sbxrun under measurement.

package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// bar is what a run with a prepared init may take of another.
type bar struct {
	Of   string  `json:"of"`
	Warm float64 `json:"warm_ratio"`
	Bar  float64 `json:"bar"`
}

func (b bar) String() string {
	verdict := "met"
	if b.Warm > b.Bar {
		verdict = "MISSED"
	}
	return fmt.Sprintf("warm is %.2f × of %s, the bar is %.2f: %s", b.Warm, b.Of, b.Bar, verdict)
}

// many are the figures of many runs.
type many struct {
	What string  `json:"what"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	All  float64 `json:"all_ms"`
}

func (m many) String() string {
	return fmt.Sprintf("%s: p50 %.1f ms, p99 %.1f ms, all in %.1f s", m.What, m.P50, m.P99, m.All/1000)
}

func summary(what string, all time.Duration, times []time.Duration) many {
	slices.Sort(times)
	return many{what, ms(times[len(times)/2]), ms(times[len(times)*99/100]), ms(all)}
}

// bareL5 is L5 without the limits that take controllers, which the private view has not.
func bareL5() spec.Policy {
	p := spec.Preset(spec.L5)
	p.Limits.Memory, p.Processes.Max = 0, 0
	return p
}

func openSession(sbxrun string, p spec.Policy, warm int) *runtime.Session {
	p.Limits.Wall = time.Minute // a busy machine is no reason to stop one
	s, err := runtime.NewSession(p, runtime.SessionOptions{Warm: warm, Binary: sbxrun})
	must(err)
	filled(s, warm)
	return s
}

// filled waits until the prepared inits are there.
func filled(s *runtime.Session, warm int) {
	for end := time.Now().Add(time.Minute); s.Waiting() < warm; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			log.Fatal("bench: no init was prepared")
		}
	}
}

// runTrue runs the program of the bundle.
func runTrue(s *runtime.Session) time.Duration {
	start := time.Now()
	res, err := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/busybox", "true"}})
	took := time.Since(start)
	must(err)
	if res.ExitStatus() != 0 {
		log.Fatalf("bench: true in a session: %s %v %s", res.Reason, res.Evidence, res.Stderr.Text)
	}
	return took
}

// inSession is a peer whose next init is prepared before another one's turn.
func inSession(name string, s *runtime.Session, warm int) *peer {
	return &peer{name: name, run: func() time.Duration {
		took := runTrue(s)
		filled(s, warm)
		return took
	}}
}

// onHost measures the preset itself, where a run has its whole group.
func onHost(sbxrun string) (out []many) {
	cold, warm := openSession(sbxrun, spec.Preset(spec.L5), 0), openSession(sbxrun, spec.Preset(spec.L5), 1)
	peers := []*peer{inSession("cold", cold, 0), inSession("warm", warm, 1)}
	var times [2][]time.Duration
	start := time.Now()
	for range *pairs {
		for i, p := range peers {
			times[i] = append(times[i], p.run())
		}
	}
	all := time.Since(start)
	for i, s := range []*runtime.Session{cold, warm} {
		out = append(out, summary("on the host's own hierarchy with the limits of L5, in turns, "+peers[i].name, all, times[i]))
		must(s.Close())
	}
	return out
}

// beside measures one session with many runs, and many sessions at once.
func beside(sbxrun string) (out []many) {
	for _, warm := range []int{0, 2} {
		s := openSession(sbxrun, bareL5(), warm)
		var times []time.Duration
		start := time.Now()
		for range *runs {
			times = append(times, runTrue(s))
		}
		out = append(out, summary(fmt.Sprintf("%d runs of one session, one after the other, %d inits prepared meanwhile", *runs, warm), time.Since(start), times))
		must(s.Close())
	}
	times := make([]time.Duration, *sessions)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range times {
		wg.Go(func() {
			began := time.Now()
			s := openSession(sbxrun, bareL5(), 0)
			runTrue(s)
			must(s.Close())
			times[i] = time.Since(began)
		})
	}
	wg.Wait()
	return append(out, summary(fmt.Sprintf("%d sessions at once, each from its making over a run to its end", *sessions), time.Since(start), times))
}
