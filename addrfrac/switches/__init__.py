"""The free switches: what makes a step faster by calling other functions of installed libraries, no kernel written.

`SWITCHES` is in the order tried and, within a stage, applied. Each finds out by the structure of the step's model
whether it means anything there, so a user's own model profits as the built-in workloads do.
"""

from addrfrac.errors import AddrfracError
from addrfrac.switches.addmm_activation import ADDMM_ACTIVATION
from addrfrac.switches.aligned_linears import ALIGNED_LINEARS
from addrfrac.switches.attention import SDPA_CUDNN, SDPA_EFFICIENT, SDPA_FLASH, SDPA_GQA, SDPA_PACKED
from addrfrac.switches.channels_last import CHANNELS_LAST
from addrfrac.switches.compiled import COMPILE, COMPILE_FREEZING, COMPILE_MAX_AUTOTUNE, COMPILE_REDUCE_OVERHEAD
from addrfrac.switches.cudnn_benchmark import CUDNN_BENCHMARK
from addrfrac.switches.cudnn_epilogues import CUDNN_EPILOGUES
from addrfrac.switches.fbgemm import FBGEMM, FBGEMM_NO_BOUNDS_CHECK
from addrfrac.switches.fold_bn import FOLD_BN
from addrfrac.switches.fused_rmsnorm import FUSED_RMSNORM
from addrfrac.switches.grouped_mm import GROUPED_MM, GROUPED_MM_LEAN
from addrfrac.switches.merged_linears import MERGED_GATE_UP, MERGED_QKV
from addrfrac.switches.native_gelu import NATIVE_GELU
from addrfrac.switches.optimizers import OPTIMIZER_CAPTURABLE, OPTIMIZER_FOREACH, OPTIMIZER_FUSED
from addrfrac.switches.switch import Stage, Switch
from addrfrac.switches.tf32 import TF32

__all__ = ["SWITCHES", "Stage", "Switch", "find_switch"]

SWITCHES: tuple[Switch, ...] = (
    CHANNELS_LAST,
    TF32,
    FBGEMM,
    # Optimizers: what makes a graph possible first.
    OPTIMIZER_CAPTURABLE,
    OPTIMIZER_FOREACH,
    OPTIMIZER_FUSED,
    # Of the model: whole kernels first. Those that trace the model (the last two) come after those that swap modules,
    # because a traced forward keeps the modules that it saw.
    FBGEMM_NO_BOUNDS_CHECK,
    SDPA_GQA,
    SDPA_PACKED,
    SDPA_FLASH,
    SDPA_CUDNN,
    SDPA_EFFICIENT,
    GROUPED_MM,
    GROUPED_MM_LEAN,
    ALIGNED_LINEARS,
    NATIVE_GELU,
    FUSED_RMSNORM,
    MERGED_QKV,
    MERGED_GATE_UP,
    CUDNN_BENCHMARK,
    FOLD_BN,
    ADDMM_ACTIVATION,
    CUDNN_EPILOGUES,
    COMPILE,
    COMPILE_FREEZING,
    COMPILE_REDUCE_OVERHEAD,
    COMPILE_MAX_AUTOTUNE,
)


def find_switch(name: str) -> Switch:
    """The switch of that name. Raises AddrfracError, naming those there are."""
    for switch in SWITCHES:
        if switch.name == name:
            return switch
    known = ", ".join(switch.name for switch in SWITCHES)
    raise AddrfracError(f"no switch {name!r}; there are {known}")
