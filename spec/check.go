// This file owns Check: the rules that a config.json is looked at with. What is
// wrong in it, where, and what to do.

package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Severity of a finding, in the words of SARIF.
type Severity string

// The severities. An error is a hole or a config that means nothing.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note"
)

// Rule is one thing that is looked for.
type Rule struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Says     string   `json:"says"`
	Advice   string   `json:"advice"`
	// Bad is a merge patch (RFC 7396) to a config without findings that the rule
	// finds; Good one that it does not.
	Bad, Good string `json:"-"`
	look      func(*specs.Spec) []hit
}

// hit is a place and what is there.
type hit struct{ at, what string }

// Finding is one rule that found something.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Place    string   `json:"place"` // a JSON pointer (RFC 6901), or file:line:column
	File     string   `json:"file"`
	Line     int      `json:"line"` // 0 where it is not known
	Column   int      `json:"column"`
	Message  string   `json:"message"`
	Advice   string   `json:"advice"`
}

// Rules lists the rules.
func Rules() []Rule { return slices.Clone(rules) }

// The rules whose findings do not come from looking at a decoded config.
const (
	RuleInvalid = "invalid"
	RuleEdited  = "edited"
	RuleWider   = "wider"
)

// Check looks at a config.json. Its text is decoded here, so that what is no config
// is a finding, too.
func Check(file string, text []byte) []Finding {
	out := checkConfig(text)
	for i := range out {
		f := &out[i]
		f.File = file
		if f.Line == 0 {
			f.Line, f.Column = locate(text, f.Place)
		}
	}
	return out
}

func checkConfig(text []byte) []Finding {
	var sp specs.Spec
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&sp)
	if err == nil {
		if _, more := dec.Token(); more != io.EOF {
			err = errors.New("something follows the JSON object")
		}
	}
	if err != nil {
		return []Finding{undecoded(text, err, int(dec.InputOffset()))}
	}
	out := []Finding{}
	if IsCompiled(&sp) {
		return checkCompiled(&sp)
	}
	for _, r := range rules {
		if r.look == nil {
			continue
		}
		for _, h := range r.look(&sp) {
			out = append(out, finding(r.ID, h.at, h.what))
		}
	}
	return out
}

// undecoded says where and why a text is no config.
func undecoded(text []byte, err error, offset int) Finding {
	f := finding(RuleInvalid, "", strings.TrimPrefix(err.Error(), "json: "))
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	var name string
	switch {
	case errors.As(err, &syntax):
		f.Line, f.Column = position(text, int(syntax.Offset)-1)
	case errors.As(err, &typ):
		f.Place, f.Message = "/"+strings.ReplaceAll(typ.Field, ".", "/"), fmt.Sprintf("%s: a JSON %s is not what belongs there", typ.Field, typ.Value)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		f.Message = "the JSON object does not end"
		f.Line, f.Column = position(text, len(text))
	default:
		if n, _ := fmt.Sscanf(err.Error(), "json: unknown field %q", &name); n == 1 {
			offset = bytes.Index(text, []byte(strconv.Quote(name)))
		}
		f.Line, f.Column = position(text, offset)
	}
	return f
}

// checkCompiled reads a config as the policy that it was compiled from. Its findings
// are about keys, which stand in the config somewhere.
func checkCompiled(sp *specs.Spec) []Finding {
	config, err := tree(sp)
	if err != nil {
		return []Finding{finding(RuleInvalid, "", err.Error())}
	}
	p, err := FromSpec(sp)
	if err != nil {
		at, _, _ := strings.Cut(err.Error(), ":")
		return []Finding{finding(RuleEdited, pointerTo(config, at), err.Error())}
	}
	out := CheckPolicy(&File{Policy: p})
	for i, f := range out {
		k, _ := find(f.Place) // CheckPolicy puts the key there
		out[i].Place = ""
		for _, at := range k.Fields {
			if to := pointerTo(config, at); len(to) > len(out[i].Place) {
				out[i].Place = to
			}
		}
	}
	return out
}

// CheckPolicy looks at a policy. What Validate refuses never comes here.
func CheckPolicy(f *File) []Finding {
	out := []Finding{}
	for _, key := range f.Policy.Wider() {
		value, _ := f.Policy.Get(key) // the key is from the table
		preset := Preset(f.Policy.Level)
		was, _ := preset.Get(key)
		message := fmt.Sprintf("%s is %q, the preset of %v has %q", key, shorten(value, 60), f.Policy.Level, shorten(was, 60))
		if place := f.Origin[key]; place != "" {
			out = append(out, inFile(finding(RuleWider, place, message)))
		} else {
			out = append(out, finding(RuleWider, key, message))
		}
	}
	return out
}

// inFile takes file, line and column out of the place.
func inFile(f Finding) Finding {
	f.File, f.Line, f.Column = SplitPlace(f.Place)
	return f
}

func finding(id, place, message string) Finding {
	f := Finding{Rule: id, Severity: SeverityError, Place: place, Message: message}
	for _, r := range rules {
		if r.ID == id {
			f.Severity, f.Advice = r.Severity, r.Advice
		}
	}
	return f
}

// InvalidPolicy is the finding about a policy file that does not read.
func InvalidPolicy(name string, err error) Finding {
	if m := regexp.MustCompile(`^(.*?:\d+(?::\d+)?): (.*)$`).FindStringSubmatch(err.Error()); m != nil {
		return inFile(finding(RuleInvalid, m[1], m[2]))
	}
	f := finding(RuleInvalid, name, strings.TrimPrefix(err.Error(), name+": "))
	f.File = name
	return f
}

// pointer makes a JSON pointer.
func pointer(parts ...any) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(p)))
	}
	return b.String()
}

var rules = []Rule{
	{RuleInvalid, SeverityError, "it is not a config.json or not a policy", "mend what the message names", `{"linux": {"maskedPath": ["/proc/kcore"]}}`, `{}`, nil},
	{RuleEdited, SeverityError, "a compiled config was changed to what no policy compiles to", "change the policy and compile it again", `{"annotations": {"dev.sbxrun.format": "1"}}`, `{}`, nil},
	{RuleWider, SeverityWarning, "a key of the policy allows more than the preset of its level", "use the preset's value, or name a lower level", "", "", nil},
	{"missing-field", SeverityError, "a field without which the config means nothing", "add the field", `{"process": {"cwd": "work"}}`, `{"process": {"cwd": "/work"}}`, missingField},
	{"contradiction", SeverityError, "two fields contradict each other", "remove one of the two", `{"process": {"rlimits": [{"type": "RLIMIT_NOFILE", "soft": 2, "hard": 1}]}}`, `{"process": {"rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2}]}}`, contradiction},
	{"hidden-path-shown", SeverityError, "a bind mount shows a masked path again", "mask the path below the mount's destination too, or mount less",
		`{"root": {"path": "/"}, "linux": {"maskedPaths": ["/proc/kcore", "/proc/keys", "/home/u/.ssh"]}, "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/mnt", "type": "bind", "source": "/home/u", "options": ["rbind", "ro"]}]}`,
		`{"root": {"path": "/"}, "linux": {"maskedPaths": ["/proc/kcore", "/proc/keys", "/home/u/.ssh", "/mnt/.ssh"]}, "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/mnt", "type": "bind", "source": "/home/u", "options": ["rbind", "ro"]}]}`, hiddenShown},
	{"socket-mounted", SeverityError, "a bind mount brings in a socket of the host, or the place where they are", "leave the mount out: who may talk to an engine's socket is root on the host",
		`{"mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/s", "type": "bind", "source": "/var/run/docker.sock", "options": ["bind", "ro"]}]}`,
		`{"mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/s", "type": "bind", "source": "/srv/data", "options": ["bind", "ro"]}]}`, socketMounted},
	{"system-mounted", SeverityError, "a bind mount brings in a directory of the system or of people", "mount only the directory that the program needs, read-only",
		`{"mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/host", "type": "bind", "source": "/", "options": ["rbind", "ro"]}]}`,
		`{"mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/host", "type": "bind", "source": "/srv/data", "options": ["rbind", "ro"]}]}`, systemMounted},
	{"capability-unconfined", SeverityError, "a capability without the namespace that confines it", "add the namespace, or drop the capability",
		`{"linux": {"namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "user"}]}, "process": {"capabilities": {"bounding": ["CAP_NET_ADMIN"]}}}`,
		`{"process": {"capabilities": {"bounding": ["CAP_NET_ADMIN"]}}}`, capabilityUnconfined},
	{"device-open", SeverityError, "a device rule allows all devices, or those that are the disks and the memory of the host", "deny all first, then allow single devices",
		`{"linux": {"resources": {"devices": [{"allow": true, "access": "rwm"}]}}}`,
		`{"linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"}]}}}`, deviceOpen},
	{"namespace-missing", SeverityWarning, "a namespace is missing or is somebody else's", "list the namespace in linux.namespaces, without a path",
		`{"linux": {"namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "user"}, {"type": "network", "path": "/proc/1/ns/net"}]}}`, `{}`, namespaceMissing},
	{"host-root", SeverityWarning, "user 0 inside is user 0 of the host", "add a user namespace that maps no id to 0", `{"linux": {"uidMappings": [{"containerID": 0, "hostID": 0, "size": 1}]}}`, `{"linux": {"uidMappings": [{"containerID": 0, "hostID": 100000, "size": 1}]}}`, hostRoot},
	{"new-privileges", SeverityWarning, "set-uid programs may gain privileges", "set process.noNewPrivileges", `{"process": {"noNewPrivileges": false}}`, `{"process": {"noNewPrivileges": true}}`, newPrivileges},
	{"no-filter", SeverityWarning, "system calls of known escapes pass", "add a seccomp filter that refuses them", `{"linux": {"seccomp": null}}`, `{}`, noFilter},
	{"kernel-unmasked", SeverityWarning, "kernel interfaces in /proc are open", "mask them, or make them read-only", `{"linux": {"maskedPaths": []}}`, `{}`, kernelUnmasked},
	{"no-limit", SeverityWarning, "memory or processes are not bounded", "set linux.resources.memory.limit and pids.limit", `{"linux": {"resources": {"pids": null}}}`, `{}`, noLimit},
	{"hook", SeverityNote, "a hook runs on the host with the engine's privileges", "read the program that it names", `{"hooks": {"poststop": [{"path": "/bin/true"}]}}`, `{}`, hookRuns},
	{"secret-variable", SeverityWarning, "a variable looks like a secret, which everybody who reads the config sees", "give secrets in a file", `{"process": {"env": ["API_TOKEN=x"]}}`, `{"process": {"env": ["PATH=/bin"]}}`, secretVariable},
	{"root-writable", SeverityNote, "the root file system can be written", "set root.readonly", `{"root": {"readonly": false}}`, `{"root": {"readonly": true}}`, rootWritable},
}

func missingField(sp *specs.Spec) (out []hit) {
	for _, c := range []struct {
		missing  bool
		at, what string
	}{
		{sp.Version == "", "/ociVersion", "ociVersion is missing"},
		{sp.Root == nil || sp.Root.Path == "", "/root/path", "root.path is missing"},
		{sp.Process == nil || len(sp.Process.Args) == 0, "/process/args", "process.args is missing"},
		{sp.Process == nil || !path.IsAbs(sp.Process.Cwd), "/process/cwd", "process.cwd is not an absolute path"},
		{sp.Linux == nil, "/linux", "linux is missing"},
	} {
		if c.missing {
			out = append(out, hit{c.at, c.what})
		}
	}
	return out
}

func contradiction(sp *specs.Spec) (out []hit) {
	if sp.Process != nil {
		for i, l := range sp.Process.Rlimits {
			if l.Soft > l.Hard {
				out = append(out, hit{pointer("process", "rlimits", i), fmt.Sprintf("%s: the soft limit %d is above the hard limit %d", l.Type, l.Soft, l.Hard)})
			}
		}
	}
	if sp.Linux == nil {
		return out
	}
	seen := map[specs.LinuxNamespaceType]bool{}
	for i, n := range sp.Linux.Namespaces {
		if seen[n.Type] {
			out = append(out, hit{pointer("linux", "namespaces", i), fmt.Sprintf("the %s namespace is listed twice", n.Type)})
		}
		seen[n.Type] = true
	}
	if len(sp.Linux.UIDMappings) > 0 && !seen[specs.UserNamespace] {
		out = append(out, hit{"/linux/uidMappings", "ids are mapped without a user namespace"})
	}
	if sp.Hostname != "" && !seen[specs.UTSNamespace] {
		out = append(out, hit{"/hostname", "a host name without an UTS namespace would be the host's"})
	}
	for _, name := range sortedKeys(sp.Linux.Sysctl) {
		if strings.HasPrefix(name, "net.") && !seen[specs.NetworkNamespace] {
			out = append(out, hit{pointer("linux", "sysctl", name), name + " without a network namespace would be the host's"})
		}
	}
	return out
}

// FindingsText is the findings for people, one line each and the advice below.
func FindingsText(all []Finding) string {
	var b strings.Builder
	for _, f := range all {
		place := f.Place
		switch {
		case strings.HasPrefix(place, f.File): // file:line:column
		case place == "":
			place = placeIn(f.File, f.Line, f.Column)
		default:
			place = f.File + "#" + place
		}
		fmt.Fprintf(&b, "%s: %s: %s: %s\n  %s\n", place, f.Severity, f.Rule, strings.ReplaceAll(f.Message, "\n", " "), f.Advice)
	}
	return b.String()
}
