"""The seccomp profile of containers that make cells (pure).

A list of what is allowed, like a runtime's own default, and narrower: no tracing, no keys, no clock,
no module, no BPF, no io_uring. What it adds is what bubblewrap needs without any capability: a
process in namespaces of its own, and mounts in them. Calls that a node's library does not know are
passed over, so both processors share one list.
"""

from __future__ import annotations

import json

_FILES = """
access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock
fremovexattr fsetxattr fstat fstatfs fsync ftruncate getcwd getdents getdents64 getxattr
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl lchown lgetxattr link linkat
listxattr llistxattr lremovexattr lseek lsetxattr lstat memfd_create mkdir mkdirat mknod mknodat
newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink
readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr splice stat statfs
statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime
utimensat utimes vmsplice write writev
"""
_MEMORY = """
brk cachestat get_mempolicy madvise membarrier mincore mlock mlock2 mlockall mmap mprotect mremap
msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease
set_mempolicy_home_node mbind set_mempolicy
"""
_PROCESSES = """
arch_prctl capget capset clone execve execveat exit exit_group fork get_robust_list
get_thread_area getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority
getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get ioprio_set kill landlock_add_rule
landlock_create_ruleset landlock_restrict_self personality pidfd_open pidfd_send_signal prctl
prlimit64 rseq sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr
sched_setparam sched_setscheduler sched_yield seccomp set_robust_list set_thread_area
set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority setregid setresgid setresuid
setreuid setrlimit setsid setuid sysinfo tgkill times tkill uname vfork wait4 waitid
"""
_SIGNALS_AND_TIME = """
alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep pause restart_syscall
rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_tgsigqueueinfo setitimer sigaltstack signalfd signalfd4 time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""
_TALK = """
accept accept4 bind connect epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait
epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 futex futex_requeue futex_wait futex_waitv
futex_wake getpeername getrandom getsockname getsockopt listen mq_getsetattr mq_notify mq_open
mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd pipe pipe2 poll ppoll pselect6
recvfrom recvmmsg recvmsg select semctl semget semop semtimedop sendmmsg sendmsg sendto setsockopt
shmat shmctl shmdt shmget shutdown socketpair
"""
_CELLS = "mount umount2 pivot_root sethostname unshare"
"""With clone and its flags: all that bubblewrap needs beside the rest."""
_NOT_THERE = "clone3"
"""libc then takes clone, whose flags a cell's own filter sees."""
_VSOCK = 40
"""Sockets that know no network namespace."""
_ENOSYS = 38
_EPERM = 1


def cells_profile() -> str:
    """The file that lies on nodes, as container runtimes read it."""
    usual = sorted(f"{_FILES} {_MEMORY} {_PROCESSES} {_SIGNALS_AND_TIME} {_TALK}".split())
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": usual, "action": "SCMP_ACT_ALLOW"},
            {"names": _CELLS.split(), "action": "SCMP_ACT_ALLOW"},
            {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [_other_than(_VSOCK)]},
            {"names": _NOT_THERE.split(), "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        ],
    }
    return json.dumps(profile, indent=1) + "\n"


def _other_than(value: int) -> dict[str, object]:
    """The first argument is not `value`."""
    return {"index": 0, "value": value, "op": "SCMP_CMP_NE"}
