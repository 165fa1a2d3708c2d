"""The whole self-test on a CPU, as `addrfrac verify --selftest --device cpu --jobs 2` runs it."""

from __future__ import annotations

import pytest

from addrfrac.verification.protocols import ADDRFRAC
from addrfrac.verification.render import render_terminal
from addrfrac.verification.self_test import selftest


@pytest.mark.slow
def test_every_fault_is_caught_every_honest_kernel_passes_and_mutants_are_killed(capsys):
    result = selftest("cpu", jobs=2)
    with capsys.disabled():
        print("\n" + render_terminal(result))
    wrong = [f"{o.id}: {o.status}, wanted {o.expected} ({o.reason})" for o in result.outcomes if not o.right]
    assert not wrong, "\n".join(wrong)
    killed = {score.protocol: score.killed.share for score in result.mutation}
    assert killed[ADDRFRAC.name] >= 0.99
    assert all(share < killed[ADDRFRAC.name] for name, share in killed.items() if name != ADDRFRAC.name)
