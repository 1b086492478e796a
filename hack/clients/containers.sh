# The checks that podman and Docker share, since they share their command line. The
# caller has an image "check" and defines client (the engine's command), tty_client
# (the same on a terminal), runtime_name, shared (a directory that containers may
# write to) and flags for some commands: run_flags, init_flags, top_flags, update_flags.
# shellcheck shell=bash

# check_or_runc NAME CMD...: where the engine may be unable to do it on this machine.
# Only runc's failing in the same check is the proof for a skip. CMD uses no container
# but "own", which it leaves behind when it fails; the caller's discard removes it.
check_or_runc() {
	local name=$1
	shift
	attempt "$@"
	case $? in
	0) pass "$name" && return ;;
	esac
	discard >/dev/null 2>&1
	mv "$tmp/said" "$tmp/said-first"
	runtime_name=runc attempt "$@"
	case $? in
	0) mv "$tmp/said-first" "$tmp/said" && fail "$name" ;;
	*) skipped=$((skipped + 1)) && echo "SKIP $name: runc refuses too: $(grep -iE 'not supported|not permitted|denied|can not|cannot|error' "$tmp/said" | head -n 1)" ;;
	esac
	discard >/dev/null 2>&1
}

# run [FLAG...] -- CMD...: in the foreground, removed afterwards.
# begin NAME [FLAG...] -- CMD...: detached.
run() { split "$@"; client run --rm --network none "${run_flags[@]}" "${flags[@]}" check "${command[@]}"; }
run_tty() { split "$@"; tty_client run --rm -it --network none "${run_flags[@]}" "${flags[@]}" check "${command[@]}"; }
begin() {
	local name=$1
	shift
	split "$@"
	client run -d --name "$name" --network none "${run_flags[@]}" "${flags[@]}" check "${command[@]}"
}
split() {
	flags=()
	while [ "$1" != -- ]; do flags+=("$1"); shift; done
	shift
	command=("$@")
}
inspect() { client inspect -f "{{.State.$2}}" "$1"; }
is() { [ "$(inspect "$1" Status)" = "$2" ]; }

foreground() {
	says "hello from 1" run -- sh -c 'echo hello from $$'
	ends 7 run -- sh -c 'exit 7'
	ends 127 run -- /no/such/program
	ends 126 run -- /etc/passwd
}
terminal() {
	says /dev/pts/0 run_tty -- tty
	says "-echo " run_tty -- sh -c 'stty -echo && stty -a'
}
memory_limit() {
	begin own -m 64m -- sleep 1000
	[ "$(limit_of "$(inspect own Pid)" memory.limit_in_bytes memory.max)" = 67108864 ]
	client rm -f own
	ends 137 run -m 16m -- sh -c 'exec tail -c 64m /dev/zero'
}
pids_limit() {
	says "can't fork" run --pids-limit 10 -- sh -c '(for i in $(seq 20); do sleep 3 & done); true'
}
read_only() {
	says "Read-only" run --read-only -- sh -c 'touch /file 2>&1; true'
	says "written" run --read-only --tmpfs /mnt -- sh -c 'echo written >/mnt/file; cat /mnt/file'
}
capabilities() {
	says "all 0000000000000000 0000000000000000" run --cap-drop all -- sh -c 'echo all $(grep -E "CapEff|CapBnd" /proc/self/status | cut -f2)'
	says "CapEff:	0000000000000400" run --cap-drop all --cap-add NET_BIND_SERVICE -- grep CapEff /proc/self/status
	says "not permitted" run --cap-drop all -- sh -c 'chown user /tmp 2>&1; true'
}
no_new_privileges() {
	says "NoNewPrivs:	1" run --security-opt no-new-privileges -- grep NoNewPrivs /proc/self/status
	says "NoNewPrivs:	0" run -- grep NoNewPrivs /proc/self/status
}
seccomp() {
	says "Seccomp:	2" run -- grep Seccomp: /proc/self/status
	says "Seccomp:	0" run --security-opt seccomp=unconfined -- grep Seccomp: /proc/self/status
	echo '{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO","errnoRet":95}]}' >"$shared/profile"
	says "not supported" run --security-opt "seccomp=$shared/profile" -- sh -c 'mkdir /tmp/new 2>&1; true'
}
network() { says "lo up" run -- sh -c 'echo $(ls /sys/class/net) $(ip link show lo | grep -q LOOPBACK,UP && echo up)'; }
volumes() {
	mkdir -p "$shared/volume"
	chmod 0777 "$shared/volume"
	run -v "$shared/volume:/mnt" -- sh -c 'echo inside >/mnt/file'
	[ "$(cat "$shared/volume/file")" = inside ]
	says "Read-only" run -v "$shared/volume:/mnt:ro" -- sh -c 'touch /mnt/other 2>&1; true'
	client volume create check-volume
	run -v check-volume:/data -- sh -c 'echo kept >/data/file'
	says kept run -v check-volume:/data -- cat /data/file
	client volume rm check-volume
}
surroundings() {
	says "uid=1000(user) gid=1000(user)" run --user 1000:1000 -- id
	says "name box in /tmp with value" run --hostname box -w /tmp -e KEY=value -- sh -c 'echo name $(hostname) in $(pwd) with $KEY'
	says 77 run --ulimit nofile=77:99 --ulimit nproc=900:900 -- sh -c 'ulimit -n'
	says 4242 run --sysctl net.ipv4.ip_default_ttl=42 --sysctl kernel.msgmax=4242 -- cat /proc/sys/kernel/msgmax
	says "16384" run --shm-size 16m -- sh -c 'df -k /dev/shm | tail -n 1'
}
init_process() {
	says "init" run --init "${init_flags[@]}" -- sh -c 'tr "\0" " " </proc/1/cmdline'
	says "no zombie" run --init "${init_flags[@]}" -- sh -c '(sleep 0 &); sleep 1; ps -o stat | grep -q Z || echo no zombie'
}
detached() {
	begin bg -- sh -c 'trap "exit 3" TERM; echo ready; while :; do sleep 0.1; done'
	soon is bg running
	soon says ready client logs bg
	says "ready" tr '\0' ' ' <"/proc/$(inspect bg Pid)/cmdline"
}
exec_in() {
	says "trap" client exec bg cat /proc/1/cmdline
	ends 9 client exec bg sh -c 'exit 9'
	says "1000 in /tmp with value" client exec -u 1000 -w /tmp -e KEY=value bg sh -c 'echo $(id -u) in $(pwd) with $KEY'
	says in-a-pipe sh_in bg 'cat' <<<in-a-pipe
	client exec -d bg sh -c 'echo done >/tmp/detached'
	soon client exec bg grep -q done /tmp/detached
}
sh_in() { client exec -i "$1" sh -c "$2"; }
exec_tty() { says /dev/pts/ tty_client exec -it bg tty; }
top() { says "ready" client top bg "${top_flags[@]}"; }
stats() {
	begin own -- sleep 1000
	says "own pids 1" client stats --no-stream --format '{{.Name}} pids {{.PIDs}}' own
	client stats --no-stream --format '{{.MemUsage}}' own | grep -qE '^[0-9.]*[1-9]' || { client stats --no-stream own; return 1; }
	client rm -f own
}
paused() {
	local dir frozen=
	begin own -- sleep 1000
	client pause own
	is own paused
	for dir in $(group_of "$(inspect own Pid)"); do
		frozen+=$(cat "$dir/freezer.state" "$dir/cgroup.freeze" 2>/dev/null || true)
	done
	grep -qE 'FROZEN|1' <<<"$frozen" || { echo "the control group says \"$frozen\""; return 1; }
	client unpause own
	is own running
	says alive client exec own echo alive
	client rm -f own
}
update() {
	begin own -- sleep 1000
	client update "${update_flags[@]}" own
	[ "$(limit_of "$(inspect own Pid)" memory.limit_in_bytes memory.max)" = 134217728 ]
	client rm -f own
}
stopped() {
	client stop -t 10 bg
	is bg exited
	says 3 inspect bg ExitCode
	client start bg
	soon is bg running
	ends 0 client exec bg true
}
killed() {
	client kill bg
	says 137 client wait bg
	is bg exited
	client rm bg
	fails client inspect bg
}
removed_by_force() {
	local pid
	begin force -- sleep 1000
	pid=$(inspect force Pid)
	kill -0 "$pid"
	client rm -f force
	[ ! -e "/proc/$pid" ]
	fails client inspect force
}

common_checks() {
	local limits=$1 # check, or check_or_runc where limits may not exist
	check "run --rm: output, exit codes" foreground
	check "run -it: a terminal" terminal
	$limits "run -m: in the control group, and it bites" memory_limit
	$limits "run --pids-limit bites" pids_limit
	check "run --read-only, --tmpfs" read_only
	check "run --cap-drop, --cap-add" capabilities
	check "run --security-opt no-new-privileges" no_new_privileges
	check "run: default seccomp profile, without, another" seccomp
	check "run --network none: loopback alone" network
	check "run -v: directories and volumes, read-only too" volumes
	check "run --user, --hostname, -w, -e, --ulimit, --sysctl, --shm-size" surroundings
	check "run --init: orphans are reaped" init_process
	check "run -d" detached
	check "exec: namespaces, exit code, user, input, detached" exec_in
	check "exec -it: a terminal" exec_tty
	check "top" top
	$limits "stats" stats
	$limits "pause, unpause" paused
	$limits "update" update
	check "stop: a handler's exit code; start again" stopped
	check "kill: 137" killed
	check "rm -f of a running one" removed_by_force
}
