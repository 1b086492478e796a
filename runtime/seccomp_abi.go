// This file owns how architectures number their system calls and pass arguments:
// what the seccomp compiler knows of each ABI. The numbers are in seccomp_tables.go.

package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// abi is one way to make system calls.
type abi struct {
	name   specs.Arch
	audit  uint32 // AUDIT_ARCH_*
	table  string // words "name:number", each after a blank or a line's end
	bit    uint32 // set in every number
	narrow bool   // arguments have 32 bits

	numbers map[string]uint32 // the table, read by abisOf
}

// x32Bit tells x32 from x86_64, which have the same AUDIT_ARCH.
const x32Bit = 0x40000000

// firstPrivate is where the calls of 32-bit ARM begin that are no entries of its
// table, __ARM_NR_BASE. They say nothing about how new a profile is.
const firstPrivate = 0xf0000

var (
	abiAMD64 = abi{specs.ArchX86_64, unix.AUDIT_ARCH_X86_64, syscallsAMD64, 0, false, nil}
	abiX32   = abi{specs.ArchX32, unix.AUDIT_ARCH_X86_64, syscallsX32, x32Bit, true, nil}
	abiX86   = abi{specs.ArchX86, unix.AUDIT_ARCH_I386, syscallsX86, 0, true, nil}
	abiARM64 = abi{specs.ArchAARCH64, unix.AUDIT_ARCH_AARCH64, syscallsARM64, 0, false, nil}
	abiARM   = abi{specs.ArchARM, unix.AUDIT_ARCH_ARM, syscallsARM, 0, true, nil}
)

// machine lists, by GOARCH, the ABIs that a kernel can execute, its own first.
func machine(arch string) []abi {
	switch arch {
	case "amd64":
		return []abi{abiAMD64, abiX32, abiX86}
	case "arm64":
		return []abi{abiARM64, abiARM}
	}
	return nil
}

// architectures are all that runtime-spec names.
var architectures = []specs.Arch{
	specs.ArchX86, specs.ArchX86_64, specs.ArchX32, specs.ArchARM, specs.ArchAARCH64, specs.ArchMIPS, specs.ArchMIPS64,
	specs.ArchMIPS64N32, specs.ArchMIPSEL, specs.ArchMIPSEL64, specs.ArchMIPSEL64N32, specs.ArchPPC, specs.ArchPPC64,
	specs.ArchPPC64LE, specs.ArchS390, specs.ArchS390X, specs.ArchPARISC, specs.ArchPARISC64, specs.ArchRISCV64,
	specs.ArchLOONGARCH64, specs.ArchM68K, specs.ArchSH, specs.ArchSHEB,
}

// abisOf gives the ABIs that a filter knows: the machine's own, as in libseccomp,
// and those listed. One that the machine cannot execute changes nothing: no call has
// its number, and should one appear it is killed.
func abisOf(listed []specs.Arch, arch string) ([]abi, error) {
	for i, name := range listed {
		if !slices.Contains(architectures, name) {
			return nil, fmt.Errorf("architectures[%d]: unknown %q", i, name)
		}
	}
	all := machine(arch)
	if all == nil {
		return nil, fmt.Errorf("architectures: there are no tables for %s", arch)
	}
	own := all[0].name
	used := slices.DeleteFunc(all, func(a abi) bool { return a.name != own && !slices.Contains(listed, a.name) })
	for i := range used {
		used[i].numbers = used[i].read()
	}
	return used, nil
}

func (a abi) read() map[string]uint32 {
	numbers := make(map[string]uint32, 512)
	for word := range strings.FieldsSeq(a.table) {
		name, number, _ := strings.Cut(word, ":")
		n, _ := strconv.ParseUint(number, 10, 32) // generated: always a number
		numbers[name] = uint32(n) | a.bit
	}
	return numbers
}

// known says whether any architecture of Linux has a call of this name.
func known(name string) bool {
	for _, table := range []string{syscallsAMD64, syscallsX86, syscallsARM, syscallsARM64, syscallsElsewhere} {
		if strings.Contains(table, " "+name+":") || strings.Contains(table, "\n"+name+":") {
			return !strings.ContainsAny(name, ": \n")
		}
	}
	return false
}

// meaningful puts conditions in the order of the arguments, and leaves out those
// that hold for every value, so that a rule with no other is one without conditions.
func (a abi) meaningful(args []specs.LinuxSeccompArg) []specs.LinuxSeccompArg {
	args = slices.DeleteFunc(slices.Clone(args), func(c specs.LinuxSeccompArg) bool {
		return c.Op == specs.OpMaskedEqual && (c.Value == 0 || a.narrow && uint32(c.Value) == 0)
	})
	slices.SortFunc(args, func(x, y specs.LinuxSeccompArg) int { return cmp.Compare(x.Index, y.Index) })
	return args
}

// The calls that i386 also makes through another one, at the number that the other
// one takes as its first argument (linux/net.h, linux/ipc.h). Their arguments are in
// memory or elsewhere in the registers then.
var (
	throughSocketcall = []string{1: "socket", "bind", "connect", "listen", "accept", "getsockname", "getpeername", "socketpair",
		"send", "recv", "sendto", "recvfrom", "shutdown", "setsockopt", "getsockopt", "sendmsg", "recvmsg", "accept4", "recvmmsg", "sendmmsg"}
	throughIPC = []string{1: "semop", "semget", "semctl", "semtimedop", 11: "msgsnd", "msgrcv", "msgget", "msgctl", 21: "shmat", "shmdt", "shmget", "shmctl"}
)

// multiplexed gives the other call through which one can be made, and the condition
// on the other's arguments that tells it.
func (a abi) multiplexed(name string) (outer string, sub specs.LinuxSeccompArg, ok bool) {
	if a.name != specs.ArchX86 || name == "" {
		return "", sub, false
	}
	if i := slices.Index(throughSocketcall, name); i > 0 {
		return "socketcall", specs.LinuxSeccompArg{Value: uint64(i), Op: specs.OpEqualTo}, true
	}
	if i := slices.Index(throughIPC, name); i > 0 { // above 16 bits the kernel reads a version
		return "ipc", specs.LinuxSeccompArg{Value: 0xffff, ValueTwo: uint64(i), Op: specs.OpMaskedEqual}, true
	}
	return "", sub, false
}
