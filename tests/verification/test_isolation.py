"""Workers: how each way to fail is told, and what foreign code cannot do."""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch

from addrfrac.verification.channel import Arena, ChannelError, checked_slot
from addrfrac.verification.processes import Group, Server, Worker, WorkerFailure
from addrfrac.verification.records import Status
from addrfrac.verification.reference import Arguments, Handle, ReferenceRaised
from addrfrac.verification.sources import Source

HEAD = "import os, time, torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"


@pytest.fixture(scope="module")
def server():
    with Server("cpu") as running:
        yield running


def run(server, body, timeout_s=20.0):
    """One call of a module whose forward is `body`."""
    source = Source(text=HEAD + "".join(f"        {line}\n" for line in body.splitlines()))
    handle = Handle(server, source, role="candidate", timeout_s=timeout_s)
    try:
        handle.build(Arguments(tree={"l": []}, tensors=[]), seed=1, dtype="float32")
        return handle.call(Arguments(tree={"l": [{"t": 0}]}, tensors=[torch.arange(6.0)]), seed=1)
    finally:
        handle.close()


def test_an_output_comes_back_bit_for_bit(server):
    assert torch.equal(run(server, "return x * 3").tensors[0], torch.arange(6.0) * 3)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("os._exit(0)", Status.CRASHED),
        ("os.kill(os.getpid(), 11)", Status.CRASHED),
        ("time.sleep(60)", Status.TIMEOUT),
        (
            "for fd in range(3, 40):\n    try: os.write(fd, b'{\"ok\": true}')\n    except OSError: pass",
            Status.TAMPERED,
        ),
    ],
)
def test_a_process_without_a_valid_answer_fails_by_name(server, body, status):
    with pytest.raises(WorkerFailure) as caught:
        run(server, body, timeout_s=2.0)
    assert caught.value.status is status


@pytest.mark.parametrize("raised", ["SystemExit(0)", "KeyboardInterrupt()", "ValueError('no')"])
def test_what_foreign_code_raises_is_a_value_whatever_it_is(server, raised):
    with pytest.raises(ReferenceRaised, match=raised.partition("(")[0]):
        run(server, f"raise {raised}")


def test_changed_inputs_are_seen_in_the_trusted_side_s_own_memory(server):
    output = run(server, "y = x.clone()\nx.data.zero_()\nreturn y")
    assert torch.equal(output.inputs_after[0], torch.zeros(6))


def test_memory_is_filled_before_a_call_and_unwritten_bytes_show_it(server):
    source = Source(text=HEAD + "        return torch.empty(1000)\n")
    with Handle(server, source, role="candidate") as handle:
        handle.build(Arguments(tree={"l": []}, tensors=[]), seed=1, dtype="float32")
        arguments = Arguments(tree={"l": [{"t": 0}]}, tensors=[torch.ones(3)])
        for byte in (0x7F, 0xAA):
            found = handle.call(arguments, seed=1, poison=byte).tensors[0]
            assert set(found.view(torch.uint8).tolist()) == {byte}


@pytest.mark.skipif(os.getuid() != 0, reason="another user id needs root")
def test_a_candidate_is_another_user_and_cannot_signal_its_parent(server):
    body = f"try:\n    os.kill({os.getpid()}, 0)\nexcept PermissionError:\n    return x * 0\nreturn x * 0 + 1"
    assert float(run(server, body).tensors[0].sum()) == 0.0


def test_missing_layers_are_named(server):
    source = Source(text=HEAD + "        return x\n")
    with Handle(server, source, role="candidate") as handle:
        names = {layer.name for layer in handle.worker.layers}
        assert names == {"process group", "network namespace", "user id", "landlock"}
        assert all(layer.detail for layer in handle.worker.layers)


def test_a_slot_whose_sizes_do_not_fit_is_refused():
    good = {"shape": [2, 3], "strides": [3, 1], "dtype": "float32", "offset": 0, "span": 24}
    assert checked_slot(good, 1 << 20).span == 24
    for changed in ({"span": 2400}, {"shape": [2, -3]}, {"dtype": "object"}, {"strides": [3]}, {"offset": -64}):
        with pytest.raises(ChannelError):
            checked_slot(good | changed, 1 << 20)


def test_guard_bands_tell_a_write_beside_an_input():
    arena = Arena([torch.ones(5), torch.ones(7)])
    assert not arena.guards_changed()
    arena.map[arena.slots[0].offset + arena.slots[0].span] = 1
    assert arena.guards_changed()
    arena.close()


def test_a_group_that_is_ended_lets_go_of_whoever_waits_for_its_workers(server):
    group = Group(server)
    source = Source(text=HEAD + "        time.sleep(60)\n        return x\n")
    handle = Handle(group, source, role="candidate", timeout_s=60.0)
    handle.build(Arguments(tree={"l": []}, tensors=[]), seed=1, dtype="float32")
    told: list[Status] = []

    def wait() -> None:
        try:
            handle.call(Arguments(tree={"l": [{"t": 0}]}, tensors=[torch.ones(3)]), seed=1)
        except WorkerFailure as failure:
            told.append(failure.status)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    group.end()
    thread.join(10)
    assert told == [Status.CRASHED]
    with pytest.raises(WorkerFailure):
        Handle(group, source, role="candidate")


def test_a_request_that_was_begun_is_waited_for_before_the_next(server):
    worker = Worker(server)
    worker.begin({"op": "probe"})
    assert "raised" not in worker.ask({"op": "probe"})
    worker.end()


def test_a_spare_worker_is_handed_out_and_replaced(server):
    server.most_spares = 1
    try:
        server.warm_spares()
        spare = server.spares[0]
        taken = server.worker(timeout_s=5.0)
        assert taken is spare
        assert taken.timeout_s == 5.0
        assert len(server.spares) == 1
        assert server.spares[0] is not spare
        server.spares_ready()
        taken.end()
    finally:
        server.most_spares = 0
        while server.spares:
            server.spares.pop().end()
