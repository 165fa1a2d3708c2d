"""What a figure depends on: read, never set; cheap where there is no GPU."""

import subprocess
import sys
import types

import pytest

from addrfrac import environment
from addrfrac.errors import AddrfracError


def test_a_machine_without_a_driver_is_told_without_importing_torch():
    code = (
        "import sys\n"
        "from addrfrac import environment\n"
        "environment.DRIVER_PATHS, environment.DRIVER_LIBRARIES = (), ()\n"
        "print(environment.has_cuda(), 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]


def test_a_hidden_gpu_is_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "DRIVER_PATHS", (str(tmp_path),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment.has_driver()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not environment.has_driver()


def test_a_driver_without_torch_names_the_extra_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "DRIVER_PATHS", (str(tmp_path),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AddrfracError, match=r"addrfrac\[models\]"):
        environment.has_cuda()


def test_the_cpu_is_described_with_versions_and_switches():
    torch = pytest.importorskip("torch")
    found = environment.describe(torch.device("cpu"))
    assert found.device_kind == "cpu"
    assert found.device == environment.cpu_name() != ""
    assert found.versions["torch"] == torch.__version__
    assert {"addrfrac", "numpy"} <= set(found.versions)
    assert found.settings["matmul.allow_tf32"] == "False"
    assert found.l2_bytes is None


def test_switches_are_those_in_force_at_the_call():
    torch = pytest.importorskip("torch")
    torch.backends.cudnn.benchmark = True
    try:
        assert environment.describe(torch.device("cpu")).settings["cudnn.benchmark"] == "True"
    finally:
        torch.backends.cudnn.benchmark = False


def test_a_state_that_cannot_be_read_is_none_and_not_zero():
    state = environment.device_state("before")
    assert state.when == "before"
    assert state.sm_clock_mhz is None
    assert state.power_w is None
    assert state.other_processes is None


class _Nvml(types.SimpleNamespace):
    """NVML with a GPU that runs hot, and a driver that refuses to tell its power."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert uuid == "GPU-1234"
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle, which):
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetTemperature(self, handle, which):
        return 61

    def nvmlDeviceGetPowerUsage(self, handle):
        raise self.NVMLError

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return 0x4 | 0x20

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [types.SimpleNamespace(pid=pid) for pid in self.pids]


def _state(monkeypatch, pids):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(environment, "_nvml", lambda: _Nvml(pids=pids))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace(uuid="1234"))
    return environment.device_state("after", torch.device("cuda", 0))


def test_clocks_heat_and_throttling_come_from_the_device_that_torch_uses(monkeypatch):
    state = _state(monkeypatch, pids=[environment.os.getpid(), 7])
    assert (state.sm_clock_mhz, state.memory_clock_mhz, state.temperature_c) == (1980, 3201, 61)
    assert state.throttle_reasons == ("software power cap", "software thermal slowdown")
    assert state.power_w is None
    assert state.other_processes == 1


def test_other_processes_are_unknown_where_our_own_is_not_shown(monkeypatch):
    assert _state(monkeypatch, pids=[7]).other_processes is None
