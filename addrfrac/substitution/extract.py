"""A workload in, its most valuable replaceable sites out: problems in KernelBench's format with what they are worth.

A site here is a connected region of the captured graph between library calls, whether any kernel fits it or not. A
file `X_solution.py` put beside `X.py` is verified and applied by `addrfrac apply --kernels DIR`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addrfrac import arms, capture, environment, measure, registry, store, units
from addrfrac.arms import EAGER, Arm, Job
from addrfrac.errors import AddrfracError
from addrfrac.measure import Order
from addrfrac.records import DeviceModel

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

    from addrfrac.substitution.session import Captured

SAMPLES = 12
PATIENCE_S = 900.0
FACTOR = 2.0
LIBRARY = (
    "aten.linear",
    "aten.mm",
    "aten.bmm",
    "aten.addmm",
    "aten.matmul",
    "aten.baddbmm",
    "aten._grouped_mm",
    "aten.conv",
    "aten.convolution",
    "aten.scaled_dot_product_attention",
    "aten._scaled_dot_product",
    "aten.cudnn_convolution",
)
"""Beginnings of calls that are the library's: products, convolutions, attention."""
HIDDEN = ".inputs"
"""Folder of the captured inputs of blind problems: for `apply`, not for who solves them."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`addrfrac extract` as typed."""

    workload: str
    batches: tuple[int, ...]
    seq_lens: tuple[int, ...]
    fields: Mapping[str, Any]
    device: str | None
    top: int
    blind: bool
    device_model: DeviceModel | None
    directory: Path


@dataclass(slots=True, kw_only=True)
class Region:
    """One distinct region of the captured graphs."""

    title: str
    text: str
    """Of the problem, with its input generator."""
    blind_text: str
    where: list[str] = field(default_factory=list)
    """Modules that it occurs in, one an occurrence."""
    values: list[Any] = field(default_factory=list)
    """Captured inputs of its first occurrence, on the CPU."""
    us: float = 0.0
    """Median of one occurrence, caches evicted."""
    bytes_moved: int = 0
    """Inputs and outputs once."""

    @property
    def step_us(self) -> float:
        """All occurrences in a step."""
        return self.us * len(self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """What a worker found."""

    regions: tuple[Region, ...]
    step_us: float
    notes: tuple[str, ...]


# --- in a worker ------------------------------------------------------------------------------------------------


def find_regions(job: Job) -> Regions:
    """Capture the step, cut its graphs at library calls, time each distinct region on its own values."""
    from torch.fx import Interpreter

    from addrfrac.substitution.apply import Recipe, _install

    workload = registry.find_workload(job.workload)
    device = environment.torch_device(job.device)
    if device.type == "cuda":
        import torch

        torch.cuda.set_device(device)
    arm = Arm(name="extract")
    configuration = arms.configured(job.configuration, arm.switches, arm.launch)
    found: dict[str, Region] = {}
    with arms.settings(configuration):
        step = arms.prepare(workload, job.configuration, (), device, EAGER)
        session = _install(Recipe(), step)
        for _ in range(3):
            step.run()
        step_us = min(measure._seconds(step.run, device) for _ in range(3)) * 1e6

        def watch(graph: Captured, arguments: Sequence[Any]) -> Any:
            runner = Interpreter(graph.whole, garbage_collect_values=False)
            result = runner.run(*arguments)
            for nodes in _partitions(graph.whole):
                _note(found, nodes, runner.env, device)
            return result

        session.watch = watch
        step.run()
        session.watch = None
    ordered = sorted(found.values(), key=lambda each: -each.step_us)
    return Regions(regions=tuple(ordered), step_us=step_us, notes=tuple(session.notes))


def _partitions(whole: GraphModule) -> list[list[Node]]:
    """Connected regions without a library call or a write in place, none of which waits for itself."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    from addrfrac.substitution.graph import mutates

    def is_replaceable(submodules: Any, node: Node) -> bool:
        if node.op != "call_function" or not str(node.target).startswith("aten.") or any(True for _ in mutates(node)):
            return False
        return not str(node.target).startswith(LIBRARY)

    support = create_op_support(is_replaceable)
    partitioner = CapabilityBasedPartitioner(whole, support, allows_single_node_partition=True)
    order = {node: number for number, node in enumerate(whole.graph.nodes)}
    return [
        sorted(connected, key=lambda node: order[node])
        for each in partitioner.propose_partitions()
        for connected in _connected(set(each.nodes))
    ]


def _connected(nodes: set[Node]) -> list[set[Node]]:
    """The parts that share no value: the partitioner puts neighbours together whether they do or not."""
    left, found = set(nodes), []
    while left:
        part, reached = set[Any](), [left.pop()]
        while reached:
            node = reached.pop()
            part.add(node)
            near = [each for each in (*node.all_input_nodes, *node.users) if each in left]
            left.difference_update(near)
            reached += near
        found.append(part)
    return found


def _note(found: dict[str, Region], nodes: Sequence[Node], env: Mapping[Node, Any], device: torch.device) -> None:
    """Add a region's occurrence; a region that only looks at tensors differently is none."""
    import torch

    from addrfrac.substitution.graph import is_cast, is_no_work, module_of
    from addrfrac.substitution.pairs import problem_text, region_graph
    from addrfrac.substitution.patterns import VIEWS

    inside = set(nodes)
    if all(is_cast(node) or is_no_work(node) or node.target in VIEWS for node in nodes):
        return
    inputs = list(dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside))
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    values = [env.get(node) for node in inputs]
    made = [env.get(node) for node in outputs]
    if not outputs or not inputs or not all(isinstance(each, torch.Tensor) for each in (*values, *made)):
        return
    graph = region_graph(inputs, outputs)
    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    title = ", ".join(dict.fromkeys(str(node.target).split(".")[1] for node in nodes))
    text = problem_text(graph, tensors, title)
    key = graph.graph.python_code("self").src + str([(each.shape, each.stride(), each.dtype) for each in tensors])
    region = found.get(key)
    if region is None:
        total = sum(each.numel() * each.element_size() for each in (*tensors, *made) if isinstance(each, torch.Tensor))
        region = found[key] = Region(
            title=title,
            text=text,
            blind_text=problem_text(graph, tensors, title, blind=True),
            values=[each.detach().cpu() for each in tensors],
            us=_timed(graph, tensors, device),
            bytes_moved=total,
        )
    region.where.append(module_of(outputs[-1]))


def _timed(graph: GraphModule, tensors: Sequence[Any], device: torch.device) -> float:
    import torch

    from addrfrac.substitution import trial

    clock = trial._on_device if device.type == "cuda" else trial._on_host

    def run(values: Sequence[Any]) -> Any:
        with torch.no_grad():
            return graph(*values)

    samples = sorted(clock(lambda: list(tensors), run, device) for _ in range(SAMPLES))
    return samples[len(samples) // 2]


# --- the parent ---------------------------------------------------------------------------------------------------


def run_request(request: Request, progress: Progress) -> list[str]:
    """Write the problems and say what each is worth. Raises AddrfracError where the step cannot be captured."""
    import torch

    from addrfrac.substitution.apply import configurations

    if request.top < 1:
        raise AddrfracError(f"--top {request.top}: give 1 or more")
    lines: list[str] = []
    for configuration in configurations(request, "sites are timed"):
        progress(f"capturing {capture.title(configuration)}")
        job = Job(workload=request.workload, configuration=configuration, device=configuration.device)
        workers, lost = measure.start_all(
            [Order(name="extract", prepare=find_regions, arguments=(job,), timeout=PATIENCE_S)], 1
        )
        measure.end_all(workers.values())
        if lost:
            raise AddrfracError(f"{capture.title(configuration)} cannot be captured: {lost['extract']}")
        found: Regions = workers["extract"].said
        request.directory.mkdir(parents=True, exist_ok=True)
        table = []
        for number, region in enumerate(found.regions[: request.top], 1):
            name = f"{number}_{'_'.join(region.title.split(', ')[:3])}"
            worth = _worth(region, found.step_us, request.device_model)
            text = region.blind_text if request.blind else region.text + _CAPTURED.format(name=name)
            head = f'"""{region.title}: {region.where[0] or "a site"} and {len(region.where) - 1} more.\n\n{worth}\n"""'
            body = text.split('"""', 2)[2]
            store.write_whole(request.directory / f"{name}.py", (head + body).encode())
            inputs = request.directory / (f"{HIDDEN}/{name}.pt" if request.blind else f"{name}.inputs.pt")
            inputs.parent.mkdir(exist_ok=True)
            torch.save(region.values, inputs)
            table.append(f"{name}.py  {worth.splitlines()[0]}")
        lines += table or ["no replaceable site was found"]
        lines += [f"note      {note}" for note in found.notes]
    solved = f"X_solution.py beside X.py; then: addrfrac apply {request.workload} --kernels {request.directory}"
    return [*lines, f"saved     {request.directory}", f"solve     {solved}"]


_CAPTURED = '''

def captured_inputs():
    """The inputs of the first such site in the step that was captured."""
    from pathlib import Path

    return torch.load(Path(__file__).with_name("{name}.inputs.pt"), weights_only=True)
'''


def _worth(region: Region, step_us: float, model: DeviceModel | None) -> str:
    """In words: time, floor where the device was measured, and what a kernel twice as fast is worth end to end."""
    total = region.step_us
    lines = [
        f"{units.plural(len(region.where), 'site')} of {units.microseconds(region.us)}, {units.microseconds(total)} "
        f"of a step of {units.microseconds(step_us)}; twice as fast is worth "
        f"{units.percent(total * (1 - 1 / FACTOR) / step_us)} of the step"
    ]
    fit = (
        None
        if model is None
        else next((each for each in model.fits if (each.access, each.residency) == ("stream", "cold")), None)
    )
    if fit is not None:
        floor = fit.t0_us + region.bytes_moved / fit.gb_per_s / 1e3
        lines.append(
            f"Floor: {units.bytes_(region.bytes_moved)} in and out once, {units.microseconds(floor)} by this card's fit"
        )
    else:
        lines.append(f"Moves at least {units.bytes_(region.bytes_moved)}: inputs and outputs once")
    return "\n".join(lines)
