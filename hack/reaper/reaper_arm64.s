// The reaper for arm64: PID 1 of a run. What it does, and the frames that it
// sends, are described in init/reaper.go. This file is the whole ELF image, header
// included: hack/reaper/build assembles it and strips the object file around it.
// reaper_amd64.s is its twin, line by line.
//
// System calls: number in x8; arguments in x0 to x5; the answer, or minus errno, in
// x0. The kernel keeps every other register.
//
//   x19  what the kernel left on the stack: argc, argv[], NULL, envp[], NULL
//   x20  the scratch area on our stack (the image has no writable segment)
//   w21  pid of the program, 0 once it was reaped
//   w22  pid of the program, for ever: the number of its session and process group
//   w23  children that may still be reaped before the supervisor is looked at

        .set    channel, 3              // the supervisor's socket
        .set    kill_file, 4            // cgroup.kill of the run, or anything else

        // Scratch area. A frame starts at the odd byte so that its number is
        // aligned and wait4 writes status and usage straight into it.
        .set    type, 3                 // byte
        .set    number, 4               // int32
        .set    usage, 8                // struct rusage, 144 bytes
        .set    pollfd, 152             // struct pollfd
        .set    scratch, 160
        .set    short_frame, 1 + 4
        .set    long_frame, 1 + 4 + 144

        .macro  sys     nr
        mov     x8, #\nr
        svc     #0
        .endm

        .macro  must                    // of what cannot fail on a sane kernel
        tbnz    w0, #31, not_started
        .endm

        .text

// ---- ELF header (elf(5)) ---------------------------------------------------

        .set    base, 0x400000
image:
        .byte   0x7f, 'E', 'L', 'F', 2, 1, 1, 0         // 64 bits, little endian
        .quad   0
        .short  2, 183                  // ET_EXEC, EM_AARCH64
        .long   1
        .quad   base + start - image    // entry
        .quad   segments - image
        .quad   0                       // no sections
        .long   0
        .short  64, 56, 2, 64, 0, 0     // sizes and counts of headers

segments:
        .long   1, 5                    // PT_LOAD, readable and executable
        .quad   0, base, base
        .quad   end - image, end - image
        .quad   0x10000                 // kernels with pages of 64 KiB too

        .long   0x6474e551, 6           // PT_GNU_STACK, readable and writable
        .quad   0, 0, 0, 0, 0, 16

// ---- prepare itself --------------------------------------------------------

start:
        mov     x19, sp
        sub     sp, sp, #scratch
        mov     x20, sp

        // /proc/1/{mem,fd,...} of a process that is not dumpable belong to root
        // and ptrace needs CAP_SYS_PTRACE: a program without it cannot forge frames.
        // The program itself becomes dumpable again with its execve.
        mov     x0, #4                  // PR_SET_DUMPABLE
        mov     x1, #0
        sys     167                     // prctl
        must

        // Orphans come here also where this is not PID 1 of a namespace (L0 to L2).
        mov     x0, #36                 // PR_SET_CHILD_SUBREAPER
        mov     x1, #1
        sys     167
        must

        mov     x0, #15                 // PR_SET_NAME, what ps shows
        adr     x1, name
        sys     167
        must

        // The program gets descriptors 0 to 2 and no other, whatever is open here.
        mov     w0, #3
        mov     w1, #-1                 // up to UINT_MAX
        mov     w2, #4                  // CLOSE_RANGE_CLOEXEC
        sys     436                     // close_range
        must

        // Before the clone: a caller that ignores SIGCHLD passes that on through
        // execve, and the kernel would then reap a quick program by itself.
        mov     x0, #17                 // SIGCHLD
        adr     x1, on_child
        mov     x2, #0
        mov     x3, #8                  // size of a signal set
        sys     134                     // rt_sigaction
        must

        // Everything is blocked from here on, only ppoll lets SIGCHLD in. Where this
        // is not PID 1 the program could otherwise end it with a mere SIGTERM, even
        // before the first frame. The child undoes it for the program.
        mov     x0, #0                  // SIG_BLOCK
        adr     x1, all_signals
        mov     x2, #0
        mov     x3, #8
        sys     135                     // rt_sigprocmask
        must

// ---- start the program -----------------------------------------------------

        // As vfork: parent and child share memory and this stack, and the parent
        // sleeps until the child has executed the program or is dead. The child
        // must not touch the stack; it leaves errno in the scratch area.
        str     wzr, [x20, #number]
        mov     x0, #0x4100 + 17        // CLONE_VM | CLONE_VFORK | SIGCHLD
        mov     x1, #0                  // same stack
        mov     x2, #0
        mov     x3, #0
        mov     x4, #0
        sys     220                     // clone
        must
        cbz     w0, child

        mov     w21, w0
        mov     w22, w0
        mov     w3, #'F'
        ldr     w1, [x20, #number]
        cbnz    w1, fail
        str     w21, [x20, #number]
        mov     w3, #'S'
        mov     x2, #short_frame
        bl      send

// ---- let go of what is the program's -------------------------------------------

        // The reader of the program's output must see its end when the program and
        // its children are gone, not when the reaper is.
        mov     w23, #2
1:      mov     w0, w23
        sys     57                      // close
        subs    w23, w23, #1
        b.pl    1b

        mov     w0, #channel
        mov     w1, #1                  // POLLIN; hang-up comes unasked
        stp     w0, w1, [x20, #pollfd]

// ---- reap until the supervisor lets go --------------------------------------

        // At most 256 at a time: a program that makes orphans faster than they can
        // be reaped must not keep us from seeing that the supervisor hung up.
reap:   mov     w23, #256
1:      mov     x0, #-1                 // any child
        add     x1, x20, #number
        mov     w2, #1                  // WNOHANG |
        movk    w2, #0x4000, lsl #16    // __WALL
        add     x3, x20, #usage
        sys     260                     // wait4
        cmp     w0, #0
        b.le    3f                      // none is dead, or none is left (ECHILD)
        cmp     w0, w21
        b.ne    2f
        mov     w21, #0                 // reaped: the number may soon be another's
        mov     w3, #'X'
        mov     x2, #long_frame
        bl      send
2:      subs    w23, w23, #1
        b.ne    1b
        adr     x2, zeros               // there may be more: only look at the channel
        b       4f
3:      mov     x2, #0                  // all done: sleep for ever
4:      add     x0, x20, #pollfd
        mov     x1, #1                  // RLIMIT_NOFILE is the program's: 1 must do
        adr     x3, but_child
        mov     x4, #8
        sys     73                      // ppoll
        cbz     w0, reap
        cmn     w0, #4                  // EINTR: SIGCHLD came
        b.eq    reap

// ---- the supervisor said how to end, hung up, or died --------------------------

        // A byte is the status to end with, from a supervisor that ends the rest itself.
        mov     x0, #channel
        add     x1, x20, #number
        mov     x2, #1
        sys     63                      // read
        mov     w1, w0
        ldrb    w0, [x20, #number]
        cmp     w1, #1
        b.eq    leave

        // (An unforeseen error of ppoll ends here as well, rather than in a spin.)
        mov     x0, #kill_file
        adr     x1, one
        mov     x2, #1
        sys     64                      // write

        // The group, which its leader cannot leave, so the program with it. It may
        // outlive the program, or its number may be a stranger's by now: while a
        // child of ours, dead or alive, is in it, it is ours.
        mov     x0, #2                  // P_PGID
        mov     w1, w22
        mov     x2, #0                  // no siginfo, only: is there such a child?
        mov     w3, #5                  // WEXITED | WNOHANG |
        movk    w3, #0x4100, lsl #16    // WNOWAIT | __WALL
        mov     x4, #0
        sys     95                      // waitid
        tbnz    w0, #31, 1f
        neg     w0, w22                 // the whole group
        mov     x1, #9
        sys     129                     // kill

1:      mov     x0, #0
leave:  sys     94                      // exit_group; of PID 1: the namespace dies

// ---- not started -------------------------------------------------------------

not_started:
        neg     w0, w0
        str     w0, [x20, #number]
        mov     w3, #'C'
fail:   mov     x2, #short_frame
        bl      send
        mov     x0, #127
        sys     94                      // exit_group

// ---- send the frame of type w3 and length x2 ----------------------------------

        // A stream socket takes these few bytes in one piece. If nobody listens,
        // ppoll says so: the answer is not needed, and SIGPIPE is blocked.
send:   strb    w3, [x20, #type]
        mov     x0, #channel
        add     x1, x20, #type
        sys     64                      // write
        ret

// ---- the child: never touches the stack ---------------------------------------

        // What we block, and what the caller of the sandbox blocked or ignored (nohup,
        // Python), must not change the program. SIGKILL and SIGSTOP answer EINVAL, which is fine.
child:  mov     w21, #64
1:      mov     w0, w21
        adr     x1, zeros               // SIG_DFL
        mov     x2, #0
        mov     x3, #8
        sys     134                     // rt_sigaction
        subs    w21, w21, #1
        b.ne    1b

        mov     x0, #2                  // SIG_SETMASK
        adr     x1, zeros
        mov     x2, #0
        mov     x3, #8
        sys     135                     // rt_sigprocmask

        // Should the reaper be killed (only possible where it is not PID 1), the
        // program dies with it. One net among others: the program can cut it.
        mov     x0, #1                  // PR_SET_PDEATHSIG
        mov     x1, #9                  // SIGKILL
        sys     167                     // prctl

        sys     157                     // setsid: a fresh child is no leader, works

        ldr     x0, [x19, #8]           // argv[0]: the path
        add     x1, x19, #16            // argv[1..]: the program's own
        ldr     x2, [x19]
        add     x2, x1, x2, lsl #3
        sys     221                     // execve

        neg     w0, w0
        str     w0, [x20, #number]      // the parent reads it
        mov     x0, #127
        sys     94                      // exit_group

// ---- SIGCHLD needs a handler, only so that ppoll is interrupted ----------------

handler:
        ret                             // to the vDSO, which calls rt_sigreturn

// ---- constants -----------------------------------------------------------------

        .balign 8, 0
on_child:                               // struct sigaction of the kernel
        .quad   base + handler - image
        .quad   1                       // SA_NOCLDSTOP
        .quad   0
        .quad   0
zeros:  .quad   0, 0, 0, 0              // SIG_DFL, empty signal set, no time
all_signals:
        .quad   -1
but_child:
        .quad   ~(1 << 16)              // all but signal 17
name:   .asciz  "sbxrun-reaper"
one:    .ascii  "1"
end:
