"""The machine in, what a figure depends on besides the workload out; everything is read, nothing is set."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addrfrac import __version__
from addrfrac.errors import AddrfracError
from addrfrac.records import DeviceState, Environment

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "triton", "transformers", "torchvision", "torchrec", "fbgemm-gpu", "numpy", "nvidia-ml-py")
DRIVER_PATHS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg", "/dev/kfd")
DRIVER_LIBRARIES = ("libcuda.so.1", "nvcuda.dll")

# Bits of nvmlClocksEventReasons (nvml.h); the names are NVIDIA's, shortened.
THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "application clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}


def has_driver() -> bool:
    """Whether a GPU's driver is installed and not hidden; costs no import and no device call."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return any(os.path.exists(path) for path in DRIVER_PATHS) or any(map(_loads, DRIVER_LIBRARIES))


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def has_cuda() -> bool:
    """Whether torch can use a GPU here. Without a driver the answer is immediate: torch is not imported.

    Raises AddrfracError where there is a driver but no torch.
    """
    if not has_driver():
        return False
    if importlib.util.find_spec("torch") is None:
        raise AddrfracError("there is a GPU driver here but no torch; install it with: pip install 'addrfrac[models]'")
    import torch

    return bool(torch.cuda.is_available())


def torch_device(name: str) -> torch.device:
    """The torch device of that name, with its index. Raises AddrfracError where torch or the device is missing."""
    try:
        import torch
    except ImportError as error:
        raise AddrfracError("torch is not installed; install it with: pip install 'addrfrac[models]'") from error
    if name == "cpu":
        return torch.device("cpu")
    if not has_cuda():
        raise AddrfracError("no CUDA device here; use --device cpu, or analyze a trace recorded elsewhere")
    index = torch.device(name).index
    return torch.device("cuda", torch.cuda.current_device() if index is None else index)


def describe(device: torch.device, states: tuple[DeviceState, ...] = ()) -> Environment:
    """The environment of a figure measured on `device`, with the numeric switches in force at the call."""
    import torch

    if device.type != "cuda":
        return Environment(
            device=cpu_name(),
            device_kind=device.type,
            device_memory_bytes=None,
            multiprocessors=None,
            l2_bytes=None,
            driver="",
            host_cpu=cpu_name(),
            python=platform.python_version(),
            platform=platform.platform(),
            versions=_versions(),
            settings=_settings() | {"threads": str(torch.get_num_threads())},
            states=states,
        )
    properties = torch.cuda.get_device_properties(device)
    return Environment(
        device=properties.name,
        device_kind="hip" if torch.version.hip else "cuda",
        device_memory_bytes=properties.total_memory,
        multiprocessors=properties.multi_processor_count,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        driver=_driver_version(),
        host_cpu=cpu_name(),
        python=platform.python_version(),
        platform=platform.platform(),
        versions=_versions(),
        settings=_settings(),
        states=states,
    )


def cpu_name() -> str:
    """The CPU's model name, or its architecture where the system does not tell."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    import torch

    found = {"addrfrac": __version__}
    for package in PACKAGES:
        for name in (package, f"{package}-cpu"):  # fbgemm-gpu has a package of its own for CPUs
            try:
                found[package] = version(name)
                break
            except PackageNotFoundError:
                continue
    found["torch"] = str(torch.__version__)
    if torch.version.cuda:
        found["cuda"] = str(torch.version.cuda)
    if torch.version.hip:
        found["hip"] = str(torch.version.hip)
    cudnn: Any = torch.backends.cudnn
    if cudnn.is_available():
        found["cudnn"] = str(cudnn.version())
    return found


def _settings() -> dict[str, str]:
    import torch

    cuda: Any = torch.backends.cuda
    matmul, cudnn = cuda.matmul, torch.backends.cudnn
    return {
        "matmul.allow_tf32": str(matmul.allow_tf32),
        "cudnn.allow_tf32": str(cudnn.allow_tf32),
        "matmul.allow_bf16_reduced_precision_reduction": str(matmul.allow_bf16_reduced_precision_reduction),
        "matmul.allow_fp16_reduced_precision_reduction": str(matmul.allow_fp16_reduced_precision_reduction),
        "cudnn.benchmark": str(cudnn.benchmark),
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "sdp.flash": str(cuda.flash_sdp_enabled()),
        "sdp.mem_efficient": str(cuda.mem_efficient_sdp_enabled()),
        "sdp.cudnn": str(cuda.cudnn_sdp_enabled()),
        "sdp.math": str(cuda.math_sdp_enabled()),
        "PYTORCH_CUDA_ALLOC_CONF": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
    }


def _nvml() -> Any:
    """NVML, started; None where the package or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _driver_version() -> str:
    nvml = _nvml()
    if nvml is None:
        return ""
    found = nvml.nvmlSystemGetDriverVersion()
    return found.decode() if isinstance(found, bytes) else str(found)


def device_state(when: str, device: torch.device | None = None) -> DeviceState:
    """Clocks, heat and throttling of `device` now ('before' or 'after'); a field that cannot be read is None."""
    nvml = _nvml()
    handle = None
    if nvml is not None and device is not None and device.type == "cuda":
        handle = _handle(nvml, device)
    if handle is None:
        return DeviceState(
            when=when,
            sm_clock_mhz=None,
            memory_clock_mhz=None,
            temperature_c=None,
            power_w=None,
            throttle_reasons=(),
            other_processes=None,
        )
    power_mw = _read(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    return DeviceState(
        when=when,
        sm_clock_mhz=_read(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=_read(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
        temperature_c=_read(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=None if power_mw is None else power_mw / 1000,
        throttle_reasons=_throttle_reasons(nvml, handle),
        other_processes=_other_processes(nvml, handle),
    )


def _handle(nvml: Any, device: torch.device) -> Any:
    """NVML's handle of a CUDA device. By UUID, since CUDA_VISIBLE_DEVICES renumbers torch's devices and not NVML's."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        return None
    name = str(uuid)
    return _read(nvml, nvml.nvmlDeviceGetHandleByUUID, name if name.startswith("GPU-") else f"GPU-{name}")


def _read(nvml: Any, call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _throttle_reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    call = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )
    bits = None if call is None else _read(nvml, call, handle)
    return tuple(name for bit, name in THROTTLE_REASONS.items() if (bits or 0) & bit)


def _other_processes(nvml: Any, handle: Any) -> int | None:
    """Processes on the device besides this one; None where the driver does not show ours, as in some containers."""
    processes = _read(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if processes is None or os.getpid() not in {process.pid for process in processes}:
        return None
    return len(processes) - 1
