"""The system calls that no program in a cell may make, as a filter for the kernel (pure).

Beside what namespaces and limits hold back: memory that no limit counts, sockets that know no
network namespace (vsock), and parts of the kernel in which holes are found most often.
Classic BPF, see seccomp(2) and linux/seccomp.h.
"""

from __future__ import annotations

import struct

_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_X32 = 0x40000000
_UNIX_SOCKETS = 1
_NAMESPACES = 0x7E020000
"""The flags of clone that make one."""
_SOCKET, _CLONE, _CLONE3 = 0, 1, 2

# socket, clone, clone3, then: shmget shmat shmctl semget msgget ptrace process_vm_readv
# process_vm_writev kexec_load add_key request_key keyctl unshare setns mount umount2 pivot_root
# perf_event_open bpf userfaultfd memfd_create memfd_secret open_by_handle_at io_uring_setup
# io_uring_enter io_uring_register pidfd_getfd open_tree move_mount fsopen fsmount kcmp
_CALLS = {
    "x86_64": (
        0xC000003E,
        (
            "41 56 435 29 30 31 64 68 101 310 311 246 248 249 250 272 308 165 166 155"
            " 298 321 323 319 447 304 425 426 427 438 428 429 430 432 312"
        ),
    ),
    "aarch64": (
        0xC00000B7,
        (
            "198 220 435 194 196 195 190 186 117 270 271 104 217 218 219 97 268 40 39 41"
            " 241 280 282 279 447 265 425 426 427 438 428 429 430 432 272"
        ),
    ),
}
MACHINES = tuple(_CALLS)
"""Names (uname -m) of the processors whose calls are known here."""


def program(machine: str) -> bytes:
    """The filter for `machine`, one of MACHINES."""
    tag, numbers = _CALLS[machine]
    calls = [int(number) for number in numbers.split()]
    denied = calls[_CLONE3 + 1 :]
    steps = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, tag),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        # From here on: jump over the next step unless it is meant.
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _DENY | _ENOSYS),
        (_EQUAL, 0, 1, calls[_CLONE3]),
        (_RETURN, 0, 0, _DENY | _ENOSYS),  # libc then takes clone, whose flags are seen
    ]
    for number in denied:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY | _EPERM)]
    steps += [
        (_EQUAL, 0, 4, calls[_CLONE]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_OF, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _DENY | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 1, 0, calls[_SOCKET]),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, _UNIX_SOCKETS),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _DENY | _EPERM),
    ]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
