# The reaper for x86-64: PID 1 of a run. What it does, and the frames that it
# sends, are described in init/reaper.go. This file is the whole ELF image, header
# included: hack/reaper/build assembles it and strips the object file around it.
# reaper_arm64.s is its twin, line by line.
#
# System calls: number in rax; arguments in rdi, rsi, rdx, r10, r8, r9; the answer,
# or minus errno, in rax. The kernel keeps every register but rax, rcx and r11.
#
#   rbp  what the kernel left on the stack: argc, argv[], NULL, envp[], NULL
#   rbx  the scratch area on our stack (the image has no writable segment)
#   r12  pid of the program, 0 once it was reaped
#   r13  pid of the program, for ever: the number of its session and process group
#   r14  children that may still be reaped before the supervisor is looked at

        .intel_syntax noprefix

        .set    channel, 3              # the supervisor's socket
        .set    kill_file, 4            # cgroup.kill of the run, or anything else

        # Scratch area. A frame starts at the odd byte so that its number is
        # aligned and wait4 writes status and usage straight into it.
        .set    type, 3                 # byte
        .set    number, 4               # int32
        .set    usage, 8                # struct rusage, 144 bytes
        .set    pollfd, 152             # struct pollfd
        .set    scratch, 160
        .set    short_frame, 1 + 4
        .set    long_frame, 1 + 4 + 144

        .macro  sys     nr
        mov     eax, \nr
        syscall
        .endm

        .macro  must                    # of what cannot fail on a sane kernel
        test    eax, eax
        js      not_started
        .endm

        .text

# ---- ELF header (elf(5)) ---------------------------------------------------

        .set    base, 0x400000
image:
        .byte   0x7f, 'E', 'L', 'F', 2, 1, 1, 0         # 64 bits, little endian
        .quad   0
        .short  2, 62                   # ET_EXEC, EM_X86_64
        .long   1
        .quad   base + start - image    # entry
        .quad   segments - image
        .quad   0                       # no sections
        .long   0
        .short  64, 56, 2, 64, 0, 0     # sizes and counts of headers

segments:
        .long   1, 5                    # PT_LOAD, readable and executable
        .quad   0, base, base
        .quad   end - image, end - image
        .quad   0x1000

        .long   0x6474e551, 6           # PT_GNU_STACK, readable and writable
        .quad   0, 0, 0, 0, 0, 16

# ---- prepare itself --------------------------------------------------------

start:
        mov     rbp, rsp
        sub     rsp, scratch
        mov     rbx, rsp

        # /proc/1/{mem,fd,...} of a process that is not dumpable belong to root
        # and ptrace needs CAP_SYS_PTRACE: a program without it cannot forge frames.
        # The program itself becomes dumpable again with its execve.
        mov     edi, 4                  # PR_SET_DUMPABLE
        xor     esi, esi
        sys     157                     # prctl
        must

        # Orphans come here also where this is not PID 1 of a namespace (L0 to L2).
        mov     edi, 36                 # PR_SET_CHILD_SUBREAPER
        mov     esi, 1
        sys     157
        must

        mov     edi, 15                 # PR_SET_NAME, what ps shows
        lea     rsi, [rip + name]
        sys     157
        must

        # The program gets descriptors 0 to 2 and no other, whatever is open here.
        mov     edi, 3
        mov     esi, -1                 # up to UINT_MAX
        mov     edx, 4                  # CLOSE_RANGE_CLOEXEC
        sys     436                     # close_range
        must

        # Before the clone: a caller that ignores SIGCHLD passes that on through
        # execve, and the kernel would then reap a quick program by itself.
        mov     edi, 17                 # SIGCHLD
        lea     rsi, [rip + on_child]
        xor     edx, edx
        mov     r10d, 8                 # size of a signal set
        sys     13                      # rt_sigaction
        must

        # Everything is blocked from here on, only ppoll lets SIGCHLD in. Where this
        # is not PID 1 the program could otherwise end it with a mere SIGTERM, even
        # before the first frame. The child undoes it for the program.
        xor     edi, edi                # SIG_BLOCK
        lea     rsi, [rip + all_signals]
        xor     edx, edx
        mov     r10d, 8
        sys     14                      # rt_sigprocmask
        must

# ---- start the program -----------------------------------------------------

        # As vfork: parent and child share memory and this stack, and the parent
        # sleeps until the child has executed the program or is dead. The child
        # must not touch the stack; it leaves errno in the scratch area.
        mov     dword ptr [rbx + number], 0
        mov     edi, 0x00004100 + 17    # CLONE_VM | CLONE_VFORK | SIGCHLD
        xor     esi, esi                # same stack
        xor     edx, edx
        xor     r10d, r10d
        xor     r8d, r8d
        sys     56                      # clone
        must
        jz      child

        mov     r12d, eax
        mov     r13d, eax
        mov     al, 'F'
        cmp     dword ptr [rbx + number], 0
        jne     fail
        mov     dword ptr [rbx + number], r12d
        mov     al, 'S'
        mov     edx, short_frame
        call    send

# ---- let go of what is the program's --------------------------------------------

        # The reader of the program's output must see its end when the program and
        # its children are gone, not when the reaper is.
        mov     r14d, 2
1:      mov     edi, r14d
        sys     3                       # close
        dec     r14d
        jns     1b

        mov     dword ptr [rbx + pollfd], channel
        mov     dword ptr [rbx + pollfd + 4], 1 # POLLIN; hang-up comes unasked

# ---- reap until the supervisor lets go --------------------------------------

        # At most 256 at a time: a program that makes orphans faster than they can
        # be reaped must not keep us from seeing that the supervisor hung up.
reap:   mov     r14d, 256
1:      mov     rdi, -1                 # any child
        lea     rsi, [rbx + number]
        mov     edx, 0x40000001         # WNOHANG | __WALL
        lea     r10, [rbx + usage]
        sys     61                      # wait4
        test    eax, eax
        jle     3f                      # none is dead, or none is left (ECHILD)
        cmp     eax, r12d
        jne     2f
        xor     r12d, r12d              # reaped: the number may soon be another's
        mov     al, 'X'
        mov     edx, long_frame
        call    send
2:      dec     r14d
        jnz     1b
        lea     rdx, [rip + zeros]      # there may be more: only look at the channel
        jmp     4f
3:      xor     edx, edx                # all done: sleep for ever
4:      lea     rdi, [rbx + pollfd]
        mov     esi, 1                  # RLIMIT_NOFILE is the program's: 1 must do
        lea     r10, [rip + but_child]
        mov     r8d, 8
        sys     271                     # ppoll
        test    eax, eax
        jz      reap
        cmp     eax, -4                 # EINTR: SIGCHLD came
        je      reap

# ---- the supervisor said how to end, hung up, or died --------------------------

        # A byte is the status to end with, from a supervisor that ends the rest itself.
        mov     edi, channel
        lea     rsi, [rbx + number]
        mov     edx, 1
        sys     0                       # read
        movzx   edi, byte ptr [rbx + number]
        cmp     eax, 1
        je      leave

        # (An unforeseen error of ppoll ends here as well, rather than in a spin.)
        mov     edi, kill_file
        lea     rsi, [rip + one]
        mov     edx, 1
        sys     1                       # write

        # The group, which its leader cannot leave, so the program with it. It may
        # outlive the program, or its number may be a stranger's by now: while a
        # child of ours, dead or alive, is in it, it is ours.
        mov     edi, 2                  # P_PGID
        mov     esi, r13d
        xor     edx, edx                # no siginfo, only: is there such a child?
        mov     r10d, 0x41000005        # WEXITED | WNOHANG | WNOWAIT | __WALL
        xor     r8d, r8d
        sys     247                     # waitid
        test    eax, eax
        js      1f
        mov     edi, r13d
        neg     edi                     # the whole group
        mov     esi, 9
        sys     62                      # kill

1:      xor     edi, edi
leave:  sys     231                     # exit_group; of PID 1: the namespace dies

# ---- not started -------------------------------------------------------------

not_started:
        neg     eax
        mov     dword ptr [rbx + number], eax
        mov     al, 'C'
fail:   mov     edx, short_frame
        call    send
        mov     edi, 127
        sys     231                     # exit_group

# ---- send the frame of type al and length edx ---------------------------------

        # A stream socket takes these few bytes in one piece. If nobody listens,
        # ppoll says so: the answer is not needed, and SIGPIPE is blocked.
send:   mov     byte ptr [rbx + type], al
        mov     edi, channel
        lea     rsi, [rbx + type]
        sys     1                       # write
        ret

# ---- the child: never touches the stack ---------------------------------------

        # What we block, and what the caller of the sandbox blocked or ignored (nohup,
        # Python), must not change the program. SIGKILL and SIGSTOP answer EINVAL, which is fine.
child:  mov     r12d, 64
1:      mov     edi, r12d
        lea     rsi, [rip + zeros]      # SIG_DFL
        xor     edx, edx
        mov     r10d, 8
        sys     13                      # rt_sigaction
        dec     r12d
        jnz     1b

        mov     edi, 2                  # SIG_SETMASK
        lea     rsi, [rip + zeros]
        xor     edx, edx
        mov     r10d, 8
        sys     14                      # rt_sigprocmask

        # Should the reaper be killed (only possible where it is not PID 1), the
        # program dies with it. One net among others: the program can cut it.
        mov     edi, 1                  # PR_SET_PDEATHSIG
        mov     esi, 9                  # SIGKILL
        sys     157                     # prctl

        sys     112                     # setsid: a fresh child is no leader, works

        mov     rdi, [rbp + 8]          # argv[0]: the path
        lea     rsi, [rbp + 16]         # argv[1..]: the program's own
        mov     rdx, [rbp]
        lea     rdx, [rbp + rdx * 8 + 16]
        sys     59                      # execve

        neg     eax
        mov     dword ptr [rbx + number], eax   # the parent reads it
        mov     edi, 127
        sys     231                     # exit_group

# ---- SIGCHLD needs a handler, only so that ppoll is interrupted ----------------

handler:
        ret
restorer:                               # x86-64 has no default for this
        sys     15                      # rt_sigreturn

# ---- constants -----------------------------------------------------------------

        .balign 8, 0
on_child:                               # struct sigaction of the kernel
        .quad   base + handler - image
        .quad   0x04000001              # SA_RESTORER | SA_NOCLDSTOP
        .quad   base + restorer - image
        .quad   0
zeros:  .quad   0, 0, 0, 0              # SIG_DFL, empty signal set, no time
all_signals:
        .quad   -1
but_child:
        .quad   ~(1 << 16)              # all but signal 17
name:   .asciz  "sbxrun-reaper"
one:    .ascii  "1"
end:
