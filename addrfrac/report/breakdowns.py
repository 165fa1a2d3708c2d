"""Serving buckets and ranks side by side in, titled tables of plain cells out; every format draws the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from addrfrac import units
from addrfrac.records import Bucket, CollectiveRow, Range, RankRow, RankTable, Run, Serving
from addrfrac.report import facts
from addrfrac.report.names import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table before any format: plain text cells, one line each."""

    title: str
    columns: tuple[str, ...]
    """A column that starts with '>' holds numbers."""
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def listings(run: Run, policies: Sequence[str], limit: int | None = None) -> list[Listing]:
    """What a run has beyond its accounts: buckets of a serving trace, ranks, collectives, what ranks waited for.

    `policies` are the columns of shares; `limit` cuts the longer lists and says so.
    """
    found = []
    if run.serving is not None:
        found.append(_buckets(run.serving, policies))
    if run.ranks is not None:
        found += [_ranks(run.ranks, run.addressable.policy), _collectives(run.ranks), _causes(run.ranks)]
    return [_cut(listing, limit) for listing in found if listing.rows]


def _cut(listing: Listing, limit: int | None) -> Listing:
    if limit is None or len(listing.rows) <= limit:
        return listing
    left_out = f"{units.plural(len(listing.rows) - limit, 'more row')}: --format html lists all"
    return Listing(
        title=listing.title,
        columns=listing.columns,
        rows=listing.rows[:limit],
        notes=(*listing.notes, left_out),
    )


# --- serving ------------------------------------------------------------------------------------------------


def _buckets(serving: Serving, policies: Sequence[str]) -> Listing:
    weighted = ", ".join(
        f"{policy} {facts.range_percent(share)}"
        for policy, share in serving.share_of_busy.items()
        if policy in policies
    )
    return Listing(
        title=f"Steps by kind, cut at {one_line(serving.cut_at)}",
        columns=(
            "bucket",
            ">steps",
            ">weight",
            ">requests",
            ">tokens",
            ">span",
            ">95 %",
            ">busy",
            ">launches",
            *(f">{one_line(policy)}" for policy in policies),
        ),
        rows=tuple(_bucket(bucket, policies) for bucket in serving.buckets),
        notes=(
            f"weighted by {one_line(serving.weighted_by)}, addressable share of busy: {weighted or units.NOT_MEASURED}",
            f"between steps: {units.microseconds(serving.between_us)} a step",
            *map(one_line, serving.notes),
        ),
    )


def _bucket(bucket: Bucket, policies: Sequence[str]) -> tuple[str, ...]:
    shares = (bucket.share_of_busy.get(policy) for policy in policies)
    return (
        one_line(bucket.name),
        units.count(bucket.steps),
        units.percent(bucket.weight),
        _counts(bucket.requests),
        _counts(bucket.tokens),
        units.microseconds(bucket.span_us),
        units.microseconds_range(bucket.span_interval_us.low, bucket.span_interval_us.high, units.DASH),
        units.percent(bucket.busy_us / bucket.span_us if bucket.span_us else None, units.DASH),
        units.count(bucket.launches),
        *(units.DASH if share is None else facts.range_percent(share, units.DASH) for share in shares),
    )


def _counts(interval: Range) -> str:
    return units.count_range(interval.low, interval.high, units.DASH)


# --- ranks --------------------------------------------------------------------------------------------------


def _ranks(table: RankTable, policy: str) -> Listing:
    spread = "" if table.work_spread is None else f"work differs by {units.percent(table.work_spread)} of its median"
    straggler = "nobody waited" if table.straggler is None else f"rank {table.straggler} caused most waiting"
    return Listing(
        title="Ranks side by side, a step",
        columns=(
            "rank",
            ">span",
            ">busy",
            f">{one_line(policy)}",
            ">transfer",
            ">waiting",
            ">exposed",
            ">own work",
            ">came last",
            ">caused",
        ),
        rows=tuple(map(_rank, table.ranks)),
        notes=("; ".join(text for text in (straggler, spread) if text), *map(one_line, table.notes)),
    )


def _rank(row: RankRow) -> tuple[str, ...]:
    return (
        str(row.rank),
        units.microseconds(row.span_us),
        units.microseconds(row.busy_us),
        facts.range_percent(row.share_of_busy, units.DASH),
        units.microseconds(row.transfer_us),
        units.microseconds(row.waiting_us),
        units.microseconds(row.exposed_waiting_us),
        units.microseconds(row.work_us),
        units.count(row.came_last),
        units.microseconds(row.caused_us),
    )


def _collectives(table: RankTable) -> Listing:
    return Listing(
        title="Collectives, a step: the least duration is transfer, the rest waiting",
        columns=("collective", "group", ">ranks", "dtype", ">elements", ">count", ">transfer", ">waiting"),
        rows=tuple(map(_collective, table.collectives)),
    )


def _collective(row: CollectiveRow) -> tuple[str, ...]:
    return (
        one_line(row.name),
        one_line(row.group) or units.DASH,
        f"{row.ranks} of {row.group_size}" if row.group_size >= 0 else units.count(row.ranks),
        one_line(row.dtype) or units.DASH,
        units.count(row.elements) if row.elements >= 0 else units.DASH,
        units.count(row.count),
        units.microseconds(row.transfer_us),
        units.microseconds(row.waiting_us),
    )


def _causes(table: RankTable) -> Listing:
    return Listing(
        title="What the last rank did while the others waited",
        columns=("what", ">a step"),
        rows=tuple((one_line(cause.what), units.microseconds(cause.us)) for cause in table.causes),
    )
