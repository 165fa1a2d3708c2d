"""A device model in, lines for a terminal out."""

from __future__ import annotations

from collections.abc import Iterator

from addrfrac import units
from addrfrac.records import AccessFit, DeviceModel, MatmulPeak


def device_lines(model: DeviceModel) -> Iterator[str]:
    """The model as aligned plain lines: fits, peaks, launch costs, clocks, notes."""
    environment = model.environment
    yield f"{environment.device}, driver {environment.driver or 'unknown'}, measured {model.created}"
    if model.fits:
        yield ""
        yield f"{'access':<11}{'data':<6}{'t0':>9}{'GB/s':>9}{'95 % interval':>16}{'error':>8}  sizes"
    yield from (_fit_line(fit) for fit in model.fits)
    if model.peaks:
        yield ""
        yield f"{'product':<11}{'M=N=K':>6}{'TFLOP/s':>18}{'95 % interval':>16}"
    yield from (_peak_line(peak) for peak in model.peaks)
    yield ""
    yield f"launch    {units.microseconds(model.launch_us)} of the host for one eager kernel"
    yield f"graph     {units.microseconds(model.graph_node_us)} a node beyond its kernel"
    for state in environment.states:
        clocks = f"SM {state.sm_clock_mhz} MHz, memory {state.memory_clock_mhz} MHz, {state.temperature_c} C"
        limits = ", ".join(state.throttle_reasons) or "no limits reported"
        yield f"{state.when:<10}{clocks if state.sm_clock_mhz is not None else 'clocks not read'}, {limits}"
    yield from (f"note      {note}" for note in model.notes)


def _fit_line(fit: AccessFit) -> str:
    interval = f"{fit.low_gb_per_s:.0f}-{fit.high_gb_per_s:.0f}"
    spread = f"{units.bytes_(fit.sizes_bytes[0])} to {units.bytes_(fit.sizes_bytes[-1])}"
    return (
        f"{fit.access:<11}{fit.residency:<6}{units.microseconds(fit.t0_us):>9}{fit.gb_per_s:>9.0f}{interval:>16}"
        f"{units.percent(fit.largest_error):>8}  {spread}"
    )


def _peak_line(peak: MatmulPeak) -> str:
    interval = f"{peak.low_tflops:.1f}-{peak.high_tflops:.1f}"
    return f"{peak.dtype:<11}{peak.size:>6}{peak.tflops:>18.1f}{interval:>16}"
