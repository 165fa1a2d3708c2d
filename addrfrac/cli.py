"""The command line: options in, one library call a command, results on stdout and progress on stderr."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from addrfrac import __version__
from addrfrac.errors import AddrfracError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from addrfrac.analysis import Options
    from addrfrac.records import Run

app = typer.Typer(
    name="addrfrac",
    help="How much of a real workload's GPU time can replacement kernels reach, and how much do they really win?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


class Dtype(StrEnum):
    BF16 = "bf16"
    FP16 = "fp16"
    TF32 = "tf32"
    FP32 = "fp32"
    AMP_BF16 = "amp-bf16"
    AMP_FP16 = "amp-fp16"


class Layout(StrEnum):
    CHANNELS_LAST = "channels-last"
    CONTIGUOUS = "contiguous"


class Mode(StrEnum):
    INFER = "infer"
    TRAIN = "train"
    PREFILL = "prefill"
    DECODE = "decode"


class Execution(StrEnum):
    EAGER = "eager"
    GRAPH = "graph"
    COMPILED = "compiled"


class Embedding(StrEnum):
    BAG = "bag"
    FBGEMM = "fbgemm"


class Indices(StrEnum):
    UNIFORM = "uniform"
    ZIPF = "zipf"


class Routing(StrEnum):
    BALANCED = "balanced"
    ZIPF = "zipf"


class Device(StrEnum):
    CUDA = "cuda"
    CPU = "cpu"
    RECORDED = "recorded"


class Format(StrEnum):
    TERMINAL = "terminal"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    CSV = "csv"


class Protocol(StrEnum):
    ADDRFRAC = "addrfrac"
    STUDY = "study"
    KERNELBENCH = "kernelbench"
    KERNELBENCH_VERIFIED = "kernelbench-verified"


class Precision(StrEnum):
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"


class VerifyDevice(StrEnum):
    CUDA = "cuda"
    CPU = "cpu"


class CeilingArm(StrEnum):
    EAGER = "eager"
    COMPILE = "compile"
    BEST_LIBRARY = "best-library"


class AppliedBase(StrEnum):
    EAGER = "eager"
    COMPILED = "compiled"
    BEST_LIBRARY = "best-library"


class ListFormat(StrEnum):
    TSV = "tsv"
    CSV = "csv"
    JSON = "json"


EXTENSIONS = {
    ".json": Format.JSON,
    ".md": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".csv": Format.CSV,
    ".txt": Format.TERMINAL,
}

PolicyOption = Annotated[
    str, typer.Option("--policy", metavar="paper|vendor|strict|FILE", help="What counts as addressable.")
]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="TOML with classification rules of your own.")
]
FloorsOption = Annotated[
    Path | None, typer.Option("--floors", metavar="FILE", help="Floors by this device model (see `addrfrac device`).")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
OutputFile = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there; the extension picks the format.")
]
FormatOption = Annotated[Format | None, typer.Option("--format", help="Default: terminal, or by -o's extension.")]

WorkloadArgument = Annotated[str, typer.Argument(help="A name (see `addrfrac workloads`) or path/to/file.py:NAME.")]
BatchOption = Annotated[str | None, typer.Option(metavar="N[,N...]", help="Samples a step; several make a sweep.")]
SeqLenOption = Annotated[str | None, typer.Option(metavar="N[,N...]", help="Tokens a sample; several make a sweep.")]
CacheLenOption = Annotated[int | None, typer.Option(metavar="N", help="Length of the static KV cache (decode).")]
DtypeOption = Annotated[Dtype | None, typer.Option(help="Default: bf16.")]
LayoutOption = Annotated[Layout | None, typer.Option(help="Default: channels-last for convolutional models.")]
ModeOption = Annotated[Mode | None, typer.Option(help="Default: infer; prefill for decoder models.")]
EmbeddingOption = Annotated[Embedding | None, typer.Option(help="DLRM: nn.EmbeddingBag or FBGEMM tables.")]
IndicesOption = Annotated[Indices | None, typer.Option(help="DLRM: distribution of the ids.")]
PoolingOption = Annotated[str | None, typer.Option(metavar="N|mlperf", help="DLRM: ids a bag.")]
RowsOption = Annotated[int | None, typer.Option(metavar="N", help="DLRM: rows a table.")]
RoutingOption = Annotated[Routing | None, typer.Option(help="Mixture of experts: how tokens spread.")]
LayersOption = Annotated[int | None, typer.Option(metavar="N", help="Run this many of the model's layers.")]
WeightsOption = Annotated[str, typer.Option(metavar="random|NAME", help="Random, or real weights by name or path.")]
RunFolder = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder of the run. [default: runs/...]")
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"addrfrac {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")] = (
        False
    ),
) -> None:
    pass


@app.command()
def profile(
    workload: WorkloadArgument,
    batch: BatchOption = None,
    seq_len: SeqLenOption = None,
    cache_len: CacheLenOption = None,
    dtype: DtypeOption = None,
    layout: LayoutOption = None,
    mode: ModeOption = None,
    execution: Annotated[Execution, typer.Option(help="How the step is run.")] = Execution.EAGER,
    embedding: EmbeddingOption = None,
    indices: IndicesOption = None,
    pooling: PoolingOption = None,
    rows: RowsOption = None,
    routing: RoutingOption = None,
    layers: LayersOption = None,
    weights: WeightsOption = "random",
    steps: Annotated[int, typer.Option(metavar="N", help="Profiled steps.")] = 10,
    warmup: Annotated[int, typer.Option(metavar="N", help="Steps before anything is measured.")] = 5,
    device: Annotated[
        Device | None, typer.Option(help="Default: cuda where there is one, else the recorded run.")
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Measure three depths and extrapolate to all layers.")
    ] = False,
    policy: PolicyOption = "paper",
    rules: RulesOption = None,
    floors: FloorsOption = None,
    output: RunFolder = None,
    quiet: QuietOption = False,
) -> None:
    """Run a real model under the profiler and show its addressable fraction."""
    from addrfrac import profiling

    request = profiling.Request(
        workload=workload,
        batches=_numbers("--batch", batch),
        seq_lens=_numbers("--seq-len", seq_len),
        fields=_fields(
            cache_len=cache_len,
            dtype=dtype,
            layout=layout,
            mode=mode,
            execution=execution,
            embedding=embedding,
            indices=indices,
            pooling=pooling,
            rows=rows,
            routing=routing,
            layers=layers,
            weights=weights,
            steps=steps,
            warmup=warmup,
        ),
        device=device and str(device),
        extrapolate=extrapolate,
        options=_options(policy=policy, rules=rules, command=_command(), floors=floors),
        directory=output,
    )
    outcome = profiling.profile(request, _progress(quiet))
    _print_terminal(outcome.runs)
    for line in outcome.files:
        typer.echo(line)
    if outcome.failures:
        raise AddrfracError("; ".join(outcome.failures))


@app.command()
def analyze(
    trace: Annotated[Path, typer.Argument(help="A torch.profiler trace (.json, .json.gz), or a folder of ranks.")],
    format: FormatOption = None,
    output: OutputFile = None,
    wall_ms: Annotated[
        float | None, typer.Option(metavar="X", help="Unprofiled step time, where the trace has none.")
    ] = None,
    steps: Annotated[str | None, typer.Option(metavar="A:B", help="Of the trace's steps only these.")] = None,
    annotation: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take the ranges of this name for steps.")
    ] = None,
    steps_by: Annotated[
        str | None,
        typer.Option(metavar="graph-launch|annotation:REGEX", help="Cut a serving trace into steps of several kinds."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML or bucket,weight table: how often each kind occurs.")
    ] = None,
    policy: PolicyOption = "paper",
    rules: RulesOption = None,
    capture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Label a graph replay by this capture or eager trace.")
    ] = None,
    floors: FloorsOption = None,
    timings: Annotated[bool, typer.Option("--timings", help="Say on stderr where the time went.")] = False,
) -> None:
    """Account for any torch.profiler trace; no torch needed."""
    from addrfrac.analysis import analyze as analyze_trace

    clock: dict[str, float] = {}
    options = _options(
        policy=policy,
        rules=rules,
        command=_command(),
        steps=steps,
        annotation=annotation,
        steps_by=steps_by,
        weights=weights,
        wall_ms=wall_ms,
        capture=capture,
        floors=floors,
    )
    runs = analyze_trace(trace, options, clock)
    _deliver(runs, format, output)
    if timings:
        for name, seconds in clock.items():
            typer.echo(f"{name:<12} {seconds:8.3f} s", err=True)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="run.json files, or the folders that hold them.")],
    format: FormatOption = None,
    output: OutputFile = None,
    shared_plotly: Annotated[
        str | None, typer.Option(metavar="URL", help="Let an HTML page load plotly from there instead of holding it.")
    ] = None,
) -> None:
    """Render saved runs; several give one comparison."""
    from addrfrac import store

    if any(path.name in ("verdicts.json", "selftest.json") for path in runs):
        _deliver_verdicts(runs, format, output)
        return
    if any(path.name == "bench.json" or (path / "bench.json").exists() for path in runs):
        _deliver_suite(runs, format, output)
        return
    _deliver([store.load(path) for path in runs], format, output, shared_plotly=shared_plotly)


def _deliver_verdicts(paths: Sequence[Path], format: Format | None, output: Path | None) -> None:
    """What `addrfrac verify -o` saved, rendered again."""
    from addrfrac import verification

    if len(paths) > 1:
        raise AddrfracError("verdicts are rendered one file at a time: name a single verdicts.json or selftest.json")
    saved = verification.load(paths[0])
    chosen = _format(format, output)
    if chosen is Format.HTML:
        _write(verification.page_of(saved), output)
    elif chosen is Format.JSON:
        _write(verification.encode(saved).decode() + "\n", output)
    elif chosen is Format.TERMINAL and output is None:
        _print_verdicts(saved)
    elif chosen is Format.TERMINAL:
        _write(verification.render_terminal(saved), output)
    else:
        raise AddrfracError(f"verdicts have no {chosen} form: use terminal, json or html")


def _deliver_suite(paths: Sequence[Path], format: Format | None, output: Path | None) -> None:
    """What `addrfrac bench` saved, rendered again."""
    from addrfrac.bench import page, results, table

    suite = results.load_several(paths)
    chosen = _format(format, output)
    if chosen is Format.HTML:
        _write(page.page_of(suite), output)
    elif chosen is Format.JSON:
        _write(results.encode(suite).decode(), output)
    elif chosen is Format.TERMINAL:
        _write("\n".join(table.suite_lines(suite)) + "\n", output)
    else:
        raise AddrfracError(f"a benchmark has no {chosen} form: use terminal, json or html")


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="run.json, or its folder.")],
    after: Annotated[Path, typer.Argument(help="run.json, or its folder.")],
    format: FormatOption = None,
    output: OutputFile = None,
    fail_above: Annotated[
        float | None,
        typer.Option(metavar="PCT", help="Exit with 3 when the step is surely slower by more than this."),
    ] = None,
) -> None:
    """Say what moved between two runs, with intervals."""
    from addrfrac import compare, store
    from addrfrac.report import render_diff

    found = compare.diff(store.load(before), store.load(after))
    chosen = _format(format, output)
    _write(render_diff(found, str(chosen)), output)
    low = found.slowdown.low
    if fail_above is not None and low is not None and low * 100 > fail_above:
        typer.echo(f"slower by at least {low * 100:.2f} %, more than the {fail_above:g} % allowed", err=True)
        raise typer.Exit(3)


@app.command()
def project(
    run: Annotated[Path, typer.Argument(help="run.json, or its folder.")],
    speedup: Annotated[
        str, typer.Option(metavar="NAME=X[,NAME=X...]", help="An op, op/provider or part of a kernel's name.")
    ],
    format: Annotated[Format, typer.Option("--format", help="terminal, json or markdown.")] = Format.TERMINAL,
) -> None:
    """Answer a what-if from a saved run: what if these kernels were so much faster?"""
    from addrfrac import store
    from addrfrac.project import what_if
    from addrfrac.report import render_what_if

    sys.stdout.write(render_what_if(what_if(store.load(run), _speedups(speedup)), str(format)))


@app.command()
def workloads() -> None:
    """List the workloads, built in and installed."""
    from addrfrac import registry
    from addrfrac.report.lists import print_workloads

    print_workloads(list(registry.workloads().values()))


@app.command()
def kernels() -> None:
    """List the kernels, built in and installed."""
    from addrfrac import registry
    from addrfrac.report.lists import print_kernels

    print_kernels(registry.kernels())


@app.command()
def verify(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET...]", help="Kernels by name or .py file, or folders of kernels or pairs."),
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option(metavar="FILE|DIR", help="KernelBench format: Model, get_inputs, get_init_inputs."),
    ] = None,
    solution: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="ModelNew; folders are paired by name or number.")
    ] = None,
    protocol: Annotated[
        list[Protocol] | None,
        typer.Option(help="Whose rules decide; several stand side by side. [default: addrfrac]", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer distributions, shapes and repeats.")] = False,
    dtype: Annotated[
        str, typer.Option(metavar="fp32|fp16|bf16|fp64", help="Floating inputs and parameters in it.")
    ] = "",
    device: Annotated[
        VerifyDevice | None, typer.Option(help="Default: cuda where there is one. A CPU checks values only.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="At a time; on a GPU only with --selftest.")] = 1,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds that one answer may take.")] = 60.0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every check, not only those that failed.")] = False,
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Run every planted fault and honest kernel; print the catch rate.")
    ] = False,
    corpora: Annotated[
        bool, typer.Option("--corpora", help="With --selftest: Inductor's and Liger-Kernel's kernels too.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Save verdicts.json and a page there.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Decide whether a kernel does the work; exit with 1 if one does not."""
    from addrfrac import verification
    from addrfrac.environment import has_cuda

    where = str(device) if device is not None else "cuda" if has_cuda() else "cpu"
    progress = _progress(quiet)
    name = "selftest" if selftest else "verdicts"
    if selftest:
        if targets or problem or solution:
            raise typer.BadParameter("it takes no targets: it brings its own", param_hint="--selftest")
        journal = output / "selftest.jsonl" if output is not None else None
        saved: Any = verification.selftest(where, jobs=jobs, progress=progress, journal=journal, verbose=verbose)
        if corpora:
            saved = verification.with_corpora(saved, jobs=jobs, progress=progress)
        clean = saved.clean
        if output is not None:
            verification.save(saved, output / "selftest.json")
            verification.write_page(saved, output / "selftest.html")
    else:
        if (problem is None) != (solution is None):
            raise typer.BadParameter("--problem and --solution go together", param_hint="--problem")
        if corpora:
            raise typer.BadParameter("it goes with --selftest", param_hint="--corpora")
        cases: list[Any] = list(targets or [])
        if problem is not None and solution is not None:
            cases += verification.pairs(problem, solution)
        if not cases:
            raise AddrfracError("nothing to verify: name a kernel or a folder, or give --problem and --solution")
        protocols = [str(each) for each in protocol or [Protocol.ADDRFRAC]]
        saved = verification.verify(
            cases,
            protocols,
            quick=quick,
            dtype=dtype,
            device=where,
            jobs=jobs,
            timeout=timeout,
            directory=output,
            progress=progress,
        )
        clean = all(case.decisive.passed for case in verification.by_case(saved))
    _print_verdicts(saved, verbose=verbose)
    if output is not None:
        typer.echo(f"saved  {output / name}.json and {name}.html")
        typer.echo(f"again  addrfrac report {output / name}.json")
    if not clean:
        raise typer.Exit(1)


def _print_verdicts(saved: Any, *, verbose: bool = False) -> None:
    from rich.console import Console

    from addrfrac import verification

    console = Console()
    text = verification.render_terminal(saved, width=console.width, verbose=verbose, colour=console.is_terminal)
    sys.stdout.write(text)


@app.command()
def ladder(
    workload: WorkloadArgument,
    batch: BatchOption = None,
    seq_len: SeqLenOption = None,
    cache_len: CacheLenOption = None,
    dtype: DtypeOption = None,
    layout: LayoutOption = None,
    mode: ModeOption = None,
    embedding: EmbeddingOption = None,
    indices: IndicesOption = None,
    pooling: PoolingOption = None,
    rows: RowsOption = None,
    routing: RoutingOption = None,
    layers: LayersOption = None,
    weights: WeightsOption = "random",
    steps: Annotated[int, typer.Option(metavar="N", help="Profiled steps of the base and of the best.")] = 10,
    only: Annotated[str | None, typer.Option(metavar="A[,B...]", help="Try these switches alone.")] = None,
    skip: Annotated[str | None, typer.Option(metavar="A[,B...]", help="Leave these switches out.")] = None,
    max_autotune: Annotated[
        bool, typer.Option("--max-autotune", help="Try torch.compile's max-autotune too: minutes a model.")
    ] = False,
    processes: Annotated[int, typer.Option(metavar="N", help="Processes an arm, in the final comparison.")] = 3,
    at_once: Annotated[
        int | None, typer.Option(metavar="N", help="Processes alive at a time. [default: as many as fit]")
    ] = None,
    switch_timeout: Annotated[float, typer.Option(metavar="S", help="Seconds that one switch may take.")] = 180.0,
    floors: FloorsOption = None,
    no_ceiling: Annotated[bool, typer.Option("--no-ceiling", help="Measure no ceiling above the arms.")] = False,
    warm_caches: Annotated[
        bool, typer.Option("--warm-caches", help="Only compile what will be needed; nothing is saved.")
    ] = False,
    device: Annotated[VerifyDevice | None, typer.Option(help="Default: cuda.")] = None,
    policy: PolicyOption = "paper",
    rules: RulesOption = None,
    output: RunFolder = None,
    quiet: QuietOption = False,
) -> None:
    """Try every free switch on a real model, keep what helps, and show what is left to win."""
    from addrfrac import ladder as climb

    plan = climb.Plan(
        only=_list(only),
        skip=_list(skip),
        processes=processes,
        max_autotune=max_autotune,
        switch_timeout_s=switch_timeout,
        at_once=at_once,
        ceilings=not no_ceiling,
        options=_options(policy=policy, rules=rules, command=_command(), floors=floors),
    )
    request = climb.Request(
        workload=workload,
        batches=_numbers("--batch", batch),
        seq_lens=_numbers("--seq-len", seq_len),
        fields=_fields(
            cache_len=cache_len,
            dtype=dtype,
            layout=layout,
            mode=mode,
            embedding=embedding,
            indices=indices,
            pooling=pooling,
            rows=rows,
            routing=routing,
            layers=layers,
            weights=weights,
            steps=steps,
        ),
        device=device and str(device),
        plan=plan,
        warm_caches=warm_caches,
        directory=output,
    )
    outcome = climb.run_request(request, _progress(quiet))
    if outcome.runs:
        _print_terminal(outcome.runs)
    for line in outcome.files:
        typer.echo(line)


@app.command()
def ceiling(
    workload: WorkloadArgument,
    batch: BatchOption = None,
    seq_len: SeqLenOption = None,
    cache_len: CacheLenOption = None,
    dtype: DtypeOption = None,
    layout: LayoutOption = None,
    mode: ModeOption = None,
    embedding: EmbeddingOption = None,
    indices: IndicesOption = None,
    pooling: PoolingOption = None,
    rows: RowsOption = None,
    routing: RoutingOption = None,
    layers: LayersOption = None,
    weights: WeightsOption = "random",
    steps: Annotated[int, typer.Option(metavar="N", help="Profiled replays.")] = 10,
    warmup: Annotated[int, typer.Option(metavar="N", help="Steps before anything is measured.")] = 5,
    arm: Annotated[CeilingArm, typer.Option(help="Which way of running the step is captured.")] = CeilingArm.EAGER,
    ladder: Annotated[
        Path | None, typer.Option(metavar="RUN.json", help="A ladder that says what best-library is.")
    ] = None,
    classes: Annotated[
        list[str] | None, typer.Option("--class", metavar="C", help="Only this class, e.g. normalization; repeatable.")
    ] = None,
    sites: Annotated[
        list[str] | None, typer.Option("--site", metavar="S", help="Only kernels whose name, ops or module hold S.")
    ] = None,
    all_classes: Annotated[
        bool, typer.Option("--all-classes", help="Every class, the library's and the unknown too.")
    ] = False,
    floors: FloorsOption = None,
    policy: PolicyOption = "paper",
    rules: RulesOption = None,
    output: RunFolder = None,
    quiet: QuietOption = False,
) -> None:
    """Measure what a step would cost if kernels were free: its CUDA graph with them deleted."""
    from addrfrac import ceiling_process
    from addrfrac.ceiling_rows import Wanted

    request = ceiling_process.Request(
        workload=workload,
        batches=_numbers("--batch", batch),
        seq_lens=_numbers("--seq-len", seq_len),
        fields=_fields(
            cache_len=cache_len,
            dtype=dtype,
            layout=layout,
            mode=mode,
            embedding=embedding,
            indices=indices,
            pooling=pooling,
            rows=rows,
            routing=routing,
            layers=layers,
            weights=weights,
            steps=steps,
            warmup=warmup,
        ),
        arm=str(arm),
        ladder=ladder,
        wanted=Wanted(classes=tuple(classes or ()), sites=tuple(sites or ()), all_classes=all_classes),
        options=_options(policy=policy, rules=rules, command=_command(), floors=floors),
        directory=output,
    )
    outcome = ceiling_process.ceiling(request, _progress(quiet))
    _print_terminal(outcome.runs)
    for line in outcome.files:
        typer.echo(line)


@app.command()
def apply(
    workload: WorkloadArgument,
    batch: BatchOption = None,
    seq_len: SeqLenOption = None,
    cache_len: CacheLenOption = None,
    dtype: DtypeOption = None,
    layout: LayoutOption = None,
    mode: ModeOption = None,
    embedding: EmbeddingOption = None,
    indices: IndicesOption = None,
    pooling: PoolingOption = None,
    rows: RowsOption = None,
    routing: RoutingOption = None,
    layers: LayersOption = None,
    weights: WeightsOption = "random",
    steps: Annotated[int, typer.Option(metavar="N", help="Profiled steps of the base.")] = 10,
    kernels: Annotated[
        str, typer.Option(metavar="auto|NAME|FILE|DIR[,...]", help="Which kernels may be put in.")
    ] = "auto",
    base: Annotated[AppliedBase, typer.Option(help="What they are put into.")] = AppliedBase.EAGER,
    ladder: Annotated[
        Path | None, typer.Option(metavar="RUN.json", help="A ladder that says what best-library is.")
    ] = None,
    processes: Annotated[int, typer.Option(metavar="N", help="Processes an arm.")] = 3,
    rounds: Annotated[int, typer.Option(metavar="N", help="Blocks of steps a process.")] = 6,
    at_once: Annotated[
        int | None, typer.Option(metavar="N", help="Processes alive at a time. [default: as many as fit]")
    ] = None,
    even_if_slower: Annotated[
        bool, typer.Option("--even-if-slower", help="Put verified kernels in where they are no faster, too.")
    ] = False,
    fresh_verdicts: Annotated[
        bool, typer.Option("--fresh-verdicts", help="Verify every site anew, whatever is known of it.")
    ] = False,
    floors: FloorsOption = None,
    device: Annotated[VerifyDevice | None, typer.Option(help="Default: cuda.")] = None,
    policy: PolicyOption = "paper",
    rules: RulesOption = None,
    output: RunFolder = None,
    quiet: QuietOption = False,
) -> None:
    """Put verified kernels into a real model, prove that they run, and measure what they are worth."""
    from addrfrac.substitution import apply as application

    plan = application.Plan(
        kernels=_list(kernels),
        base=str(base),
        ladder=ladder,
        processes=processes,
        rounds=rounds,
        at_once=at_once,
        need_gain=False if even_if_slower else None,
        use_cache=not fresh_verdicts,
        options=_options(policy=policy, rules=rules, command=_command(), floors=floors),
    )
    request = application.Request(
        workload=workload,
        batches=_numbers("--batch", batch),
        seq_lens=_numbers("--seq-len", seq_len),
        fields=_fields(
            cache_len=cache_len,
            dtype=dtype,
            layout=layout,
            mode=mode,
            embedding=embedding,
            indices=indices,
            pooling=pooling,
            rows=rows,
            routing=routing,
            layers=layers,
            weights=weights,
            steps=steps,
        ),
        device=device and str(device),
        plan=plan,
        directory=output,
    )
    outcome = application.run_request(request, _progress(quiet))
    _print_terminal(outcome.runs)
    for line in outcome.files:
        typer.echo(line)


@app.command()
def extract(
    workload: WorkloadArgument,
    batch: BatchOption = None,
    seq_len: SeqLenOption = None,
    cache_len: CacheLenOption = None,
    dtype: DtypeOption = None,
    layout: LayoutOption = None,
    mode: ModeOption = None,
    embedding: EmbeddingOption = None,
    indices: IndicesOption = None,
    pooling: PoolingOption = None,
    rows: RowsOption = None,
    routing: RoutingOption = None,
    layers: LayersOption = None,
    weights: WeightsOption = "random",
    top: Annotated[int, typer.Option(metavar="N", help="How many sites, the most valuable first.")] = 5,
    blind: Annotated[
        bool, typer.Option("--blind", help="Leave the input generator out of the problem's text.")
    ] = False,
    floors: FloorsOption = None,
    device: Annotated[VerifyDevice | None, typer.Option(help="Default: cuda.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of the problems.")] = Path(
        "problems"
    ),
    quiet: QuietOption = False,
) -> None:
    """Write the most valuable replaceable sites of a model as problems in KernelBench's format."""
    from addrfrac.substitution import extract as extraction

    model = None
    if floors is not None:
        from addrfrac.device_model import load_device_model

        model = load_device_model(floors)
    request = extraction.Request(
        workload=workload,
        batches=_numbers("--batch", batch),
        seq_lens=_numbers("--seq-len", seq_len),
        fields=_fields(
            cache_len=cache_len,
            dtype=dtype,
            layout=layout,
            mode=mode,
            embedding=embedding,
            indices=indices,
            pooling=pooling,
            rows=rows,
            routing=routing,
            layers=layers,
            weights=weights,
        ),
        device=device and str(device),
        top=top,
        blind=blind,
        device_model=model,
        directory=output,
    )
    for line in extraction.run_request(request, _progress(quiet)):
        typer.echo(line)


@app.command()
def explain(
    trace: Annotated[Path, typer.Argument(help="A torch.profiler trace.")],
    kernel: Annotated[str, typer.Argument(help="A kernel's name, or a part of it.")],
    rules: RulesOption = None,
    policy: PolicyOption = "paper",
) -> None:
    """Tell in plain words what one kernel is, who owns it, and how we know."""
    from addrfrac.classify import classify as classify_trace
    from addrfrac.classify import explain as explain_kernel
    from addrfrac.parse import read_trace

    options = _options(policy=policy, rules=rules, command="")
    read = read_trace(trace)
    typer.echo(explain_kernel(read, classify_trace(read, options.rules), kernel, options.policies, options.rules))


@app.command()
def classify(
    names: Annotated[str, typer.Argument(metavar="FILE|-", help="Kernel names: one a line, or TSV/CSV with a header.")],
    format: Annotated[ListFormat, typer.Option("--format", help="tsv, csv or json.")] = ListFormat.TSV,
    output: OutputFile = None,
    rules: RulesOption = None,
    policy: PolicyOption = "paper",
) -> None:
    """Label a plain list of kernel names, in the order given."""
    from addrfrac.classify import classify_rows, read_names, write_names

    options = _options(policy=policy, rules=rules, command="")
    rows = classify_rows(read_names(names), options.rules, options.policies[options.policy])
    _write(write_names(rows, str(format)), output)


@app.command()
def device(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where the device model is kept.")
    ] = Path("device.json"),
    quiet: QuietOption = False,
) -> None:
    """Measure this GPU once: bandwidths by access type, matrix peaks, launch costs; for --floors."""
    from addrfrac.device_model import measure_device, save_device_model
    from addrfrac.report.device import device_lines

    model = measure_device(command=_command(), progress=_progress(quiet))
    save_device_model(model, output)
    for line in device_lines(model):
        typer.echo(line)
    typer.echo(f"saved     {output}")
    typer.echo(f"use it    addrfrac profile WORKLOAD --floors {output}")


bench_app = typer.Typer(
    help="Suites of kernel problems against the baselines that production uses.", no_args_is_help=True
)
app.add_typer(bench_app, name="bench")


@bench_app.command("list")
def bench_list() -> None:
    """The problems of DLRM-Bench with what they train, what does them in production, and their solutions."""
    from addrfrac.bench.table import problem_lines

    for line in problem_lines():
        typer.echo(line)


@bench_app.command("dlrm")
def bench_dlrm(
    problem: Annotated[
        str | None, typer.Option("--problem", metavar="N[,N...]", help="Numbers or names. [default: all]")
    ] = None,
    solutions: Annotated[
        str, typer.Option(metavar="NAME|DIR[,...]", help="A shipped set, or a folder of ModelNew files.")
    ] = "first",
    size: Annotated[str, typer.Option(metavar="SIZE[,...]", help="tiny, small, medium or production.")] = "medium",
    indices: Annotated[str, typer.Option(metavar="KIND[,...]", help="uniform, zipf or both.")] = "uniform",
    protocol: Annotated[Protocol, typer.Option(help="Whose rules decide what is right.")] = Protocol.ADDRFRAC,
    device: Annotated[VerifyDevice | None, typer.Option(help="Default: cuda where there is one.")] = None,
    processes: Annotated[int, typer.Option(metavar="N", help="An arm; a claim rests on three.")] = 3,
    rounds: Annotated[int, typer.Option(metavar="N", help="Blocks a process, in turns.")] = 6,
    jobs: Annotated[int, typer.Option(metavar="N", help="Verified at a time; 0: half of the cores.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in -o stopped.")] = False,
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile as a baseline. [default: on a GPU]")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Without it only what -o has a verdict of counts as right.")
    ] = True,
    time: Annotated[bool, typer.Option("--time/--no-time", help="Only verify.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer of the verifier's trials.")] = False,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds that one answer may take.")] = 120.0,
    floors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A device model that `addrfrac device` saved.")
    ] = None,
    runs: Annotated[
        str | None, typer.Option(metavar="DIR[,...]", help="Profiled models to project the suite's wins onto.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where results are kept.")] = Path(
        "runs/bench-dlrm"
    ),
    quiet: QuietOption = False,
) -> None:
    """Verify every solution, time it beside every baseline, and say what share wins and by how much."""
    from addrfrac.bench import dlrm, page, table
    from addrfrac.device_model import load_device_model
    from addrfrac.environment import has_cuda

    where = str(device) if device is not None else "cuda" if has_cuda() else "cpu"
    request = dlrm.Request(
        problems=_list(problem),
        solutions=_list(solutions),
        sizes=_list(size),
        indices=_list(indices),
        protocol=str(protocol),
        device=where,
        processes=processes,
        rounds=rounds,
        jobs=jobs,
        resume=resume,
        compile=where == "cuda" if compile is None else compile,
        verify=verify,
        quick=quick,
        time=time,
        timeout_s=timeout,
        device_model=load_device_model(floors) if floors is not None else None,
        directory=output,
        command=_command(),
    )
    models = [str(path) for path in _list(runs)]
    suite = dlrm.run(request, _progress(quiet))
    for line in table.suite_lines(suite, models):
        typer.echo(line)
    page.write(suite, output / "report.html", models)
    typer.echo(f"saved  {output / 'bench.json'}, evaluations.jsonl and report.html")
    typer.echo(f"again  addrfrac report {output}")


@bench_app.command("kernelbench")
def bench_kernelbench(
    problems: Annotated[
        Path, typer.Option(metavar="DIR|FILE", help="A KernelBench checkout, level*/N_name.py, or JSON with ref_code.")
    ],
    solutions: Annotated[str, typer.Option(metavar="DIR|FILE[,...]", help="ModelNew files by number, or JSON rows.")],
    level: Annotated[str | None, typer.Option(metavar="N[,N...]", help="[default: all]")] = None,
    number: Annotated[str | None, typer.Option(metavar="N[,N...]", help="Problems of these numbers.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many problems, evenly by number; 0: all.")] = 0,
    protocol: Annotated[
        str, typer.Option(metavar="NAME[,...]|all", help="addrfrac, study, kernelbench, kernelbench-verified.")
    ] = "all",
    precision: Annotated[Precision, typer.Option(help="fp32 accepts no TF32; bf16 runs both sides in it.")] = (
        Precision.TF32
    ),
    device: Annotated[VerifyDevice | None, typer.Option(help="Default: cuda where there is one.")] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Evaluations under way; 0: by the number of cores.")] = 0,
    gpus: Annotated[
        int, typer.Option(metavar="N", help="GPUs of this machine; each measures one thing at a time.")
    ] = 1,
    cluster: Annotated[str, typer.Option(metavar="ADDRESS|local", help="Spread over machines by Ray.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in -o stopped.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer of the verifier's trials, one process a side.")] = False,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds that one answer may take.")] = 120.0,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where results are kept.")] = Path(
        "runs/bench-kernelbench"
    ),
    quiet: QuietOption = False,
) -> None:
    """Judge published kernels of KernelBench's problems under several protocols side by side."""
    from addrfrac.bench.kernelbench import run
    from addrfrac.environment import has_cuda

    request = run.Request(
        problems=problems,
        solutions=tuple(Path(source) for source in _list(solutions)),
        levels=_numbers("--level", level),
        numbers=_numbers("--number", number),
        limit=limit,
        protocols=tuple(str(each) for each in Protocol) if protocol == "all" else _list(protocol),
        precision=str(precision),
        device=str(device) if device is not None else "cuda" if has_cuda() else "cpu",
        jobs=jobs,
        gpus=gpus,
        cluster=cluster,
        resume=resume,
        quick=quick,
        timeout_s=timeout,
        directory=output,
        command=_command(),
    )
    study = run.run(request, _progress(quiet))
    typer.echo(f"problems  {study.selection}")
    for name, counted in run.statuses(study).items():
        said = ", ".join(f"{status} {count}" for status, count in sorted(counted.items(), key=lambda each: -each[1]))
        typer.echo(f"{name}  {said}")
    typer.echo(f"saved  {output / run.FILE} and evaluations.jsonl")


def main() -> None:
    """Entry point: what a user can mend is one line on stderr and exit code 1; our own bugs keep their traceback."""
    try:
        app()
    except AddrfracError as error:
        typer.echo(f"addrfrac: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def _command() -> str:
    """The command as the user typed it, so that a run can be made again."""
    import shlex

    return shlex.join(["addrfrac", *sys.argv[1:]])


def _fields(**asked: Any) -> dict[str, Any]:
    """Configuration fields as the registry takes them: what was chosen from a list as plain text."""
    return {name: str(value) if isinstance(value, StrEnum) else value for name, value in asked.items()}


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number or a list like 1,16,64", param_hint=option) from None


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def _speedups(text: str) -> dict[str, float]:
    pairs = [part.rpartition("=") for part in text.split(",")]
    try:
        return {name: float(value) for name, equals, value in pairs if (equals and name) or _reject(text)}
    except ValueError:
        _reject(text)
    return {}


def _reject(text: str) -> bool:
    raise typer.BadParameter(f"{text!r} is not of the form NAME=X[,NAME=X...]", param_hint="--speedup")


def _options(*, policy: str, rules: Path | None, command: str, floors: Path | None = None, **window: Any) -> Options:
    from addrfrac.analysis import Options
    from addrfrac.classify import BUILT_IN, POLICIES

    policies = dict(POLICIES)
    if policy not in policies:
        file = Path(policy)
        if not file.exists():
            known = ", ".join(policies)
            raise AddrfracError(f"no policy {policy!r}; choose {known}, or name a TOML file")
        from addrfrac.classify import load_policy

        own = load_policy(file)
        policies[own.name] = own
        policy = own.name
    table = BUILT_IN
    if rules is not None:
        from addrfrac.classify import load_rules

        table = load_rules(rules)
    model = None
    if floors is not None:
        from addrfrac.device_model import load_device_model

        model = load_device_model(floors)
    return Options(
        policy=policy,
        policies=policies,
        rules=table,
        command=command,
        device_model=model,
        **window,
    )


def _progress(quiet: bool) -> Any:
    """A function that shows what is going on, on stderr; it holds its tongue when asked or when piped."""
    from addrfrac.report.progress import progress

    return progress(quiet)


def _format(format: Format | None, output: Path | None) -> Format:
    if format is not None:
        return format
    if output is None:
        return Format.TERMINAL
    if output.suffix.lower() not in EXTENSIONS:
        known = ", ".join(EXTENSIONS)
        raise AddrfracError(f"cannot tell a format from {output.name!r}; use one of {known}, or --format")
    return EXTENSIONS[output.suffix.lower()]


def _deliver(
    runs: Sequence[Run], format: Format | None, output: Path | None, *, shared_plotly: str | None = None
) -> None:
    chosen = _format(format, output)
    if chosen is Format.JSON:  # by the fast road: no table or figure library is loaded
        from addrfrac import store

        content = store.encode(runs[0] if len(runs) == 1 else list(runs))
        _write(content.decode(), output)
    elif chosen is Format.TERMINAL and output is None:
        _print_terminal(runs)
    else:
        from addrfrac.report import render

        _write(render(runs, str(chosen), shared_plotly=shared_plotly), output)


def _print_terminal(runs: Sequence[Run]) -> None:
    from rich.console import Console

    from addrfrac.report import print_terminal

    print_terminal(runs, Console())


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    from addrfrac.store import write_whole

    write_whole(output, text.encode())
    typer.echo(f"wrote {output}", err=True)
