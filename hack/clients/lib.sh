# Shared by hack/containerd/check, hack/podman/check and hack/docker/check: a
# private directory for the engine, one line per check, and the search for leftovers.
# Sourced with the caller's arguments: [RUNTIME], sbxrun of this checkout otherwise.
# shellcheck shell=bash
set -u
hack=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
runtime=$(realpath "${1:-$hack/../bin/sbxrun}")
[ -x "$runtime" ] || { echo "no runtime at $runtime: make build" >&2; exit 125; }
[ "$(id -u)" = 0 ] || { echo "must be root: engines make control groups and mounts" >&2; exit 125; }

# Everything that is started carries the tag in its path, its name or its control
# group, so that leftovers are told from what else runs on the machine.
tmp=$(mktemp -d -t sbxck.XXXXXX)
tag=sbxck-${tmp##*.}
tag=${tag,,}
chmod 0755 "$tmp"
passed=0 failed=0 skipped=0
patience=${PATIENCE:-60} # seconds for one command of an engine

# check NAME CMD...: one line, and the output when it fails. In CMD, a function most
# of the time, the first command that fails is the verdict.
check() {
	local name=$1
	shift
	attempt "$@"
	case $? in
	0) pass "$name" ;;
	*) fail "$name" ;;
	esac
}

# Never a condition of if, && or ||: bash ignores set -e there.
attempt() {
	(
		set -e
		"$@"
	) >"$tmp/said" 2>&1 </dev/null
}

pass() {
	passed=$((passed + 1))
	echo "PASS $1"
}

fail() {
	failed=$((failed + 1))
	echo "FAIL $1"
	sed 's/^/     /' "$tmp/said" | tail -n 20
}

# says TEXT CMD...: CMD succeeds and TEXT is a part of its output.
says() {
	local want=$1 got
	shift
	got=$("$@" 2>&1) || { echo "$* failed ($?): $got"; return 1; }
	grep -qF -- "$want" <<<"$got" || { echo "$*: no \"$want\" in: $got"; return 1; }
}

# ends CODE CMD...: CMD ends with this exit code.
ends() {
	local want=$1 got=0 out
	shift
	out=$("$@" 2>&1) || got=$?
	[ "$got" = "$want" ] || { echo "$*: exit code $got, want $want: $out"; return 1; }
}

# empty CMD...: CMD succeeds and prints nothing.
empty() {
	local got
	got=$("$@" 2>&1) || { echo "$* failed ($?): $got"; return 1; }
	[ -z "$got" ] || { echo "$*: $got"; return 1; }
}

# fails CMD...: CMD ends with any error.
fails() {
	if "$@"; then
		echo "$* did not fail"
		return 1
	fi
}

# soon CMD...: CMD succeeds, sooner or later.
soon() {
	local end=$((SECONDS + patience / 4))
	until "$@" >"$tmp/soon" 2>&1; do
		[ $SECONDS -lt $end ] || { cat "$tmp/soon"; echo "in vain: $*"; return 1; }
		sleep 0.1
	done
}

# group_of PID: the directories of its control groups, except the root.
group_of() {
	local id controllers path dir
	while IFS=: read -r id controllers path; do
		[ "$path" != / ] || continue
		for dir in "/sys/fs/cgroup/${controllers#name=}" /sys/fs/cgroup/unified /sys/fs/cgroup; do
			[ ! -d "$dir$path" ] || { echo "$dir$path"; break; }
		done
	done <"/proc/$1/cgroup"
}

# limit_of PID V1-FILE V2-FILE: the value in the control group of a process.
limit_of() {
	local dir
	for dir in $(group_of "$1"); do
		cat "$dir/$2" 2>/dev/null || cat "$dir/$3" 2>/dev/null || continue
		return
	done
	echo "no $2 or $3 for process $1"
	return 1
}

# nothing_left WORD...: no process, mount, control group or state that carries one of
# the words. What goes on ending gets some time.
nothing_left() { soon no_leftovers "$@" || { leftovers "$@"; return 1; }; }
no_leftovers() { [ -z "$(leftovers "$@")" ]; }
leftovers() {
	local word
	for word in "$@"; do
		grep -lsF -f <(echo "$word") /proc/[0-9]*/cmdline | sed 's|/proc/\(.*\)/cmdline|process \1|'
		grep -F "$word" /proc/self/mountinfo | sed 's/^/mount /'
		find /sys/fs/cgroup -depth -type d -path "*$word*" 2>/dev/null | sed 's/^/control group /'
		grep -rlsF "$word" /run/sbxrun /run/runc | sed 's/^/state /'
	done
}

# The end, for whatever reason: the engine stops, nothing stays.
servers=() # processes of the engine
engine_ends() { :; } # what else the engine wants done
cleanup() {
	local status=$? p
	trap - EXIT INT TERM
	[ ${#servers[@]} = 0 ] || kill "${servers[@]}" 2>/dev/null
	[ ${#servers[@]} = 0 ] || wait "${servers[@]}" 2>/dev/null
	engine_ends
	for p in $(leftovers "$tmp" "$tag" | sed -n 's/^process //p') $(groups -exec cat {}/cgroup.procs ';'); do
		kill -KILL "$p"
	done 2>/dev/null
	grep -F "$tmp" /proc/self/mountinfo | cut -d' ' -f5 | tac | while read -r p; do umount -l "$p"; done
	soon no_groups 2>/dev/null || status=1
	rm -rf "$tmp"
	exit "$status"
}
groups() { find /sys/fs/cgroup -depth -type d -path "*$tag*" "$@" 2>/dev/null; }
no_groups() {
	groups -exec rmdir {} ';'
	groups -fstype tmpfs -exec rm -r {} + # podman takes any directory there for a hierarchy
	[ -z "$(groups)" ]
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# need PROGRAM...: the checks that could not run are a failure.
need() {
	local program
	for program in "$@"; do
		command -v "$program" >/dev/null || { echo "FAIL $program is missing: hack/deps clients"; exit 1; }
	done
}

# verdict closes a script.
verdict() {
	echo "$1 with $(basename "$runtime"): $passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ] && [ "$passed" != 0 ]
	exit
}
