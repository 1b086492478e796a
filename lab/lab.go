// Package lab attacks the sandbox on the machine at hand and says what each layer
// buys. It drives runtime.Run as any caller would. What counts is what the host
// measures while an attack runs and afterwards (who reached the honeypot, what is in a
// file, which processes live), never what the attack says about itself.
//
// This file owns a run of the lab: which attack is tried under which policy, in which
// order, and the Report.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// Options say what of the lab is wanted.
type Options struct {
	Only     []string            // names of attacks, or ATTACK/POLICY for a single try; all without
	Ablation bool                // also try each layer alone
	Progress func(done, all int) // called after each try, from one goroutine at a time; may be nil
	Cgroup   spec.CgroupMode     // "" is on where it can be had
	Warm     bool                // in prepared inits of sessions, at the levels that have them
}

// Verdict says what became of an attack.
type Verdict string

// The verdicts.
const (
	Stopped    Verdict = "stopped"
	GotThrough Verdict = "got through"
	NotHere    Verdict = "not applicable"
	Wrong      Verdict = "wrong" // the attack did not run as it should, or the Result says what is not so
)

// Cell is one attack under one policy.
type Cell struct {
	Policy    string  `json:"policy"` // a level, or what is on alone
	Verdict   Verdict `json:"verdict"`
	Promised  Verdict `json:"promised,omitempty"` // empty where nothing is: single layers
	Evidence  string  `json:"evidence"`
	Layer     string  `json:"layer,omitempty"`     // the layer that acted
	Mechanism string  `json:"mechanism,omitempty"` // and its mechanism
	Why       string  `json:"why,omitempty"`       // why the promise is another one on this machine
	WallMS    int64   `json:"wall_ms"`
	First     string  `json:"first,omitempty"` // why a first try could not be judged
}

// Differs says that the level, or the mechanism, did not keep its promise.
func (c *Cell) Differs() bool { return c.Promised != "" && c.Verdict != c.Promised }

// Row is one attack: its cells by level and, with ablation, by layer.
type Row struct {
	Threat string `json:"threat"` // A1 … as in the table of threats
	Attack string `json:"attack"`
	What   string `json:"what"`
	Cells  []Cell `json:"cells"`
	Alone  []Cell `json:"alone,omitempty"`
	Parts  []Cell `json:"parts,omitempty"` // single mechanisms alone
	Depth  *int   `json:"depth,omitempty"` // how many layers stop it alone
}

// Report is what a run of the lab found.
type Report struct {
	User    string   `json:"user"`
	Cgroup  string   `json:"cgroup"`
	Notes   []string `json:"notes"` // what is different on this machine, and what the lab changed
	Levels  []string `json:"levels"`
	Layers  []string `json:"layers,omitempty"`
	Rows    []Row    `json:"rows"`
	Differ  int      `json:"differ"` // cells that differ from the promise
	Seconds float64  `json:"seconds"`
}

// job is one try that is to be made.
type job struct {
	attack *Attack
	policy spec.Policy
	cell   *Cell
	level  bool // the policy is the preset of a level
}

// Run attacks. The error says that the lab itself could not work; a broken promise is
// in the Report.
func Run(ctx context.Context, opt Options) (_ *Report, err error) {
	started := time.Now()
	st, err := newStage()
	if err != nil {
		return nil, fmt.Errorf("set the stage: %w", err)
	}
	defer func() {
		if left := st.close(); err == nil && left != nil {
			err = fmt.Errorf("clear the stage: %w", left)
		}
	}()
	report := &Report{User: "an ordinary user", Levels: []string{"L0", "L1", "L2", "L3", "L4", "L5"}}
	if os.Geteuid() == 0 {
		report.User = "root"
	}
	st.warm = opt.Warm
	if err := st.chooseCgroup(ctx, opt.Cgroup); err != nil {
		return nil, err
	}
	report.Cgroup = string(st.cgroup)
	report.Notes = st.notes()
	list, err := choose(opt.Only)
	if err != nil {
		return nil, err
	}
	report.Rows = make([]Row, len(list))
	var jobs []job
	for i, a := range list {
		jobs = append(jobs, st.plan(a, &report.Rows[i], opt.Ablation)...)
	}
	if jobs, err = wanted(jobs, opt.Only); err != nil {
		return nil, err
	}
	if opt.Ablation {
		report.Layers = layerNames()
	}
	st.work(ctx, jobs, opt)
	st.askAgain(ctx, jobs)
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	for i := range report.Rows {
		report.Rows[i].finish()
		for _, c := range slices.Concat(report.Rows[i].Cells, report.Rows[i].Parts) {
			if c.Differs() {
				report.Differ++
			}
		}
	}
	report.Seconds = time.Since(started).Seconds()
	return report, nil
}

func choose(only []string) (list []*Attack, err error) {
	names := map[string]bool{}
	for _, word := range only {
		name, _, _ := strings.Cut(word, "/")
		names[name] = true
	}
	for i := range attacks {
		if a := &attacks[i]; len(only) == 0 || names[a.Name] {
			list = append(list, a)
			delete(names, a.Name)
		}
	}
	for name := range names {
		return nil, fmt.Errorf("there is no attack %q", name)
	}
	return list, nil
}

// wanted leaves the tries that were asked for; the cells of others are not applicable
// and have no promise.
func wanted(jobs []job, only []string) (left []job, err error) {
	asked := map[string]bool{}
	for _, word := range only {
		asked[word] = false
	}
	for _, j := range jobs {
		single := j.attack.Name + "/" + j.cell.Policy
		_, all := asked[j.attack.Name]
		_, one := asked[single]
		if len(only) > 0 && !all && !one {
			j.cell.Verdict, j.cell.Promised = NotHere, ""
			continue
		}
		if all {
			asked[j.attack.Name] = true
		}
		if one {
			asked[single] = true
		}
		left = append(left, j)
	}
	for word, found := range asked {
		if !found {
			return nil, fmt.Errorf("there is no try %q: a level, or with --ablation a layer or a mechanism", word)
		}
	}
	return left, nil
}

// plan fills the row with cells and lists the tries that will settle them.
func (st *stage) plan(a *Attack, row *Row, ablation bool) (jobs []job) {
	*row = Row{Threat: a.Threat, Attack: a.Name, What: a.What, Cells: make([]Cell, 6)}
	for level := spec.L0; level <= spec.L5; level++ {
		c := &row.Cells[level]
		c.Policy = level.String()
		c.Promised, c.Why = a.promise(level, st)
		jobs = append(jobs, job{a, spec.Preset(level), c, true})
	}
	if !ablation {
		return jobs
	}
	row.Alone = make([]Cell, len(layers))
	for i, l := range layers {
		row.Alone[i].Policy = l.name
		jobs = append(jobs, job{a, l.alone(), &row.Alone[i], false})
	}
	row.Parts = make([]Cell, len(a.Parts))
	for i, p := range a.Parts {
		row.Parts[i].Policy = p.name
		if st.cgroup == spec.CgroupOn && os.Geteuid() == 0 { // else some of them lack what they are made of
			row.Parts[i].Promised = Stopped
		}
		policy := bare()
		p.on(&policy)
		jobs = append(jobs, job{a, policy, &row.Parts[i], false})
	}
	return jobs
}

// work makes the tries, several at a time; those that would disturb others, or be
// disturbed, come last and one by one.
func (st *stage) work(ctx context.Context, jobs []job, opt Options) {
	var mu sync.Mutex
	done := 0
	do := func(j job) {
		if ctx.Err() == nil {
			st.settle(ctx, j)
		}
		mu.Lock()
		defer mu.Unlock()
		done++
		if opt.Progress != nil {
			opt.Progress(done, len(jobs))
		}
	}
	// What mostly waits comes first, so that others run meanwhile.
	slices.SortStableFunc(jobs, func(a, b job) int { return b.attack.seconds - a.attack.seconds })
	queue := make(chan job)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for j := range queue {
				do(j)
			}
		})
	}
	for _, j := range jobs {
		if !j.attack.alone {
			queue <- j
		}
	}
	close(queue)
	wg.Wait()
	for _, j := range jobs {
		if j.attack.alone {
			do(j)
		}
	}
}

// askAgain makes tries that could not be judged once more, with nothing beside them: a
// busy machine may have come between. What was judged stays.
func (st *stage) askAgain(ctx context.Context, jobs []job) {
	for _, j := range jobs {
		if j.cell.Verdict == Wrong && ctx.Err() == nil {
			first := j.cell.Evidence
			*j.cell = Cell{Policy: j.cell.Policy, Promised: j.cell.Promised, Why: j.cell.Why, First: first}
			st.settle(ctx, j)
		}
	}
}

// workers is how many attacks run at a time: most of them wait.
const workers = 6

// settle makes one try and fills its cell.
func (st *stage) settle(ctx context.Context, j job) {
	started := time.Now()
	t := &try{stage: st, ctx: ctx, attack: j.attack, policy: j.policy, level: j.policy.Level, matrix: j.level}
	err := t.prepare()
	if err == nil {
		err = func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("the check failed: %v %s", p, debug.Stack())
				}
			}()
			return j.attack.try(t)
		}()
	}
	err = errors.Join(err, t.close())
	c := j.cell
	c.WallMS = time.Since(started).Milliseconds()
	var skip notHere
	switch {
	case errors.As(err, &skip):
		c.Verdict, c.Evidence = NotHere, string(skip)
		if c.Promised != "" {
			c.Promised = NotHere
		}
	case err != nil:
		c.Verdict, c.Evidence = Wrong, err.Error()
	case t.effect != "":
		c.Verdict, c.Evidence = GotThrough, t.effect
	default:
		c.Verdict, c.Evidence = Stopped, t.evidence()
		c.Layer, c.Mechanism = t.acted()
	}
}

// notHere says why an attack cannot be made here.
type notHere string

func (n notHere) Error() string { return string(n) }

// promise is what the level promises of the attack for this user on this machine.
func (a *Attack) promise(level spec.Level, st *stage) (Verdict, string) {
	stops, why := a.Stops, ""
	if o := a.WithoutGroup; o != nil && st.cgroup == spec.CgroupOff {
		stops, why = o.stops, o.why
	}
	if o := a.AsUser; o != nil && os.Geteuid() != 0 {
		stops, why = o.stops, o.why
	}
	if level < a.From {
		return NotHere, ""
	}
	promised := GotThrough
	if level >= stops {
		promised = Stopped
	}
	if (level >= a.Stops) == (level >= stops) {
		why = ""
	}
	return promised, why
}

// chooseCgroup sees whether runs can have a group of their own.
func (st *stage) chooseCgroup(ctx context.Context, asked spec.CgroupMode) error {
	st.cgroup = asked
	if asked != "" {
		return nil
	}
	st.cgroup = spec.CgroupOn
	policy := spec.Preset(spec.L3)
	sp, err := spec.Compile(policy, runtime.ThisHost(), spec.Process{Args: []string{"/bin/true"}})
	if err != nil {
		return err
	}
	_, err = runtime.Run(ctx, sp, runtime.Options{})
	var un *runtime.UnavailableError
	if errors.As(err, &un) && len(un.Mechanism) > 6 && un.Mechanism[:6] == "cgroup" {
		st.cgroup, st.why = spec.CgroupOff, un.Error()
		return nil
	}
	return err
}

// notes are what a reader of the report must know.
func (st *stage) notes() []string {
	notes := []string{
		"limits.wall and limits.cpu are one minute, but for the attacks on them: a busy machine shall not stop attacks for us",
		"limits.memory is 32 or 64 MiB and workdir.size 16 MiB for the attacks on them: there is less to fill",
		"limits.file-size is 64 MiB for attacks that carry the helper program, which is larger than the preset's 10 MiB",
	}
	if st.cgroup == spec.CgroupOff {
		notes = append(notes, "no control group: "+st.why)
	}
	if os.Geteuid() != 0 {
		notes = append(notes, "an ordinary user's run has that user's own rights on files at each level; root's has, from L3 on, those of an unused id")
	}
	return notes
}
