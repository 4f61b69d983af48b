"""What containers that make cells may ask of the kernel."""

from __future__ import annotations

import json

import pytest

from ebbtide.generate.chart.cells import cells_profile

FORBIDDEN = """
setns bpf ptrace kexec_load init_module finit_module keyctl add_key perf_event_open process_vm_readv
io_uring_setup open_by_handle_at userfaultfd move_mount fsopen fsmount open_tree clone3 reboot swapon
settimeofday iopl syslog acct quotactl vhangup
"""
PROFILE = json.loads(cells_profile())


def action(call: str) -> str:
    rules = [rule["action"] for rule in PROFILE["syscalls"] if call in rule["names"]]
    assert len(rules) <= 1, f"two rules for {call}"
    return rules[0] if rules else PROFILE["defaultAction"]


@pytest.mark.parametrize("call", ["clone", "unshare", "mount", "umount2", "pivot_root", "execve"])
def test_a_cell_can_be_made(call: str) -> None:
    assert action(call) == "SCMP_ACT_ALLOW"


@pytest.mark.parametrize("call", FORBIDDEN.split())
def test_what_no_scorer_needs_is_refused(call: str) -> None:
    assert action(call) == "SCMP_ACT_ERRNO"


def test_no_call_is_listed_twice() -> None:
    names = [name for rule in PROFILE["syscalls"] for name in rule["names"]]
    assert len(names) == len(set(names))
