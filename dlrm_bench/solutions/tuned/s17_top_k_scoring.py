"""Scores and each block's best in one pass over the items, for all users at once; then the blocks, then the items.

By Claude (Anthropic). Every one of the k best lies in one of the k blocks whose best are largest (of equal ones any),
so a pick of k from at most 16,384 numbers is made two or three times: by a search for the k-th largest, bit by bit, on
the numbers in registers.
"""

import torch
import triton
import triton.language as tl

from addrfrac.dlrm_bench.p17_top_k_scoring import Model

GROUP = 128
"""Items a block; blocks a group of blocks."""
MOST = 128
"""Kept at most by a pick; 128 groups of 128 are what one program holds."""
SCORE_WARPS, PICK_WARPS = 4, 16
MOST_USERS = 8


@triton.jit
def _score(
    items,
    users,
    scores,
    best,
    count,
    blocks,
    columns,
    many,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    USERS: tl.constexpr,
):
    block = tl.program_id(0)
    item = block * GROUP + tl.arange(0, GROUP)
    column = tl.arange(0, BLOCK)
    mask = (item < count)[:, None] & (column < columns)[None, :]
    rows = tl.load(items + item.to(tl.int64)[:, None] * columns + column[None, :], mask=mask, other=0.0)
    rows = rows.to(tl.float32)
    for one in tl.static_range(USERS):
        user = tl.program_id(1) * USERS + one
        known = user < many
        query = tl.load(users + user * columns + column, mask=(column < columns) & known, other=0.0).to(tl.float32)
        score = tl.where(item < count, tl.sum(rows * query[None, :], 1), float("-inf"))
        at = user.to(tl.int64) * blocks * GROUP + item
        tl.store(scores + at, score, mask=(item >= 0) & known)
        tl.store(best + user.to(tl.int64) * blocks + block, tl.max(score, 0), mask=known)


@triton.jit
def _pick(
    values, parents, places, stride, count, listed, keep, GROUP: tl.constexpr, LISTED: tl.constexpr, MOST: tl.constexpr
):
    """Places of the `keep` largest of the listed groups of values, in no order; -1 in what is left of MOST."""
    user = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LISTED * GROUP)
    parent = tl.load(parents + user * stride + lane // GROUP, mask=lane // GROUP < listed, other=-1).to(tl.int32)
    place = parent * GROUP + lane % GROUP
    there = (parent >= 0) & (place < count)
    value = tl.load(values + user * count + place, mask=there, other=0.0)
    bits = value.to(tl.int32, bitcast=True)
    key = tl.where(there, tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits), -2147483648)
    # the largest key that at least `keep` numbers reach, from its sign down
    bound = tl.where(tl.sum((key >= 0).to(tl.int32), 0) >= keep, 0, -2147483648)
    for step in range(31):
        raised = bound + (1 << (30 - step))
        enough = tl.sum((key >= raised).to(tl.int32), 0) >= keep
        bound = tl.where(enough, raised, bound)
    above, equal = key > bound, (key == bound) & there
    larger = tl.sum(above.to(tl.int32), 0)
    ahead = tl.cumsum(above.to(tl.int32), 0) - 1
    behind = larger + tl.cumsum(equal.to(tl.int32), 0) - 1
    rank = tl.where(above, ahead, behind)
    tl.store(places + user * MOST + rank, place, mask=(above | equal) & (rank < keep))


@triton.jit
def _finish(
    scores,
    places,
    items,
    users,
    best_scores,
    again,
    padded,
    columns,
    keep,
    MOST: tl.constexpr,
    BLOCK: tl.constexpr,
    PER: tl.constexpr,
):
    """The kept items in falling order, and their scores once more; PER items a program, each sorts for itself."""
    user, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, MOST)
    place = tl.load(places + user * MOST + lane, mask=lane < keep, other=0)
    score = tl.load(scores + user * padded + place, mask=lane < keep, other=float("-inf"))
    bits = score.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    # each lane's rank: how many are larger, or equal and named before
    mine, theirs = key[:, None], key[None, :]
    before = (theirs > mine) | ((theirs == mine) & (lane[None, :] < lane[:, None]))
    before = before & (lane[None, :] < keep)
    rank = tl.sum(before.to(tl.int32), 1)
    wanted = part * PER + tl.arange(0, PER)
    hit = (rank[None, :] == wanted[:, None]) & (lane[None, :] < keep)
    item = tl.sum(tl.where(hit, place[None, :], 0), 1)
    kept = wanted < keep
    column = tl.arange(0, BLOCK)
    mask = kept[:, None] & (column < columns)[None, :]
    rows = tl.load(items + item[:, None] * columns + column[None, :], mask=mask, other=0.0).to(tl.float32)
    query = tl.load(users + user * columns + column, mask=column < columns, other=0.0).to(tl.float32)
    product = tl.sum(rows * query[None, :], 1)
    chosen = tl.sum(tl.where(hit, score[None, :], 0.0), 1)
    at = user * keep + wanted
    tl.store(best_scores + at, chosen.to(best_scores.dtype.element_ty), mask=kept)
    tl.store(again + at, product.to(again.dtype.element_ty), mask=kept)


def levels(scores: torch.Tensor, best: torch.Tensor) -> list[torch.Tensor]:
    """Scores, each block's best, and the best of groups of those until one program can hold them all."""
    found = [scores, best]
    while found[-1].shape[1] > MOST * GROUP:
        last = found[-1]
        missing = -last.shape[1] % GROUP
        padded = torch.nn.functional.pad(last, (0, missing), value=float("-inf"))
        found[-1] = padded
        found.append(padded.unflatten(1, (-1, GROUP)).amax(2))
    return found


def picked(scores: torch.Tensor, best: torch.Tensor, keep: int) -> torch.Tensor:
    """(users, MOST) places of the `keep` best scores, in no order."""
    users = scores.shape[0]
    parents, stride, listed = torch.arange(MOST, device=scores.device), 0, MOST
    for values in reversed(levels(scores, best)):
        wanted = min(keep, values.shape[1])
        places = torch.empty(users, MOST, dtype=torch.int64, device=scores.device)
        _pick[(users,)](
            values,
            parents,
            places,
            stride,
            values.shape[1],
            listed,
            wanted,
            GROUP=GROUP,
            LISTED=MOST,
            MOST=MOST,
            num_warps=PICK_WARPS,
        )
        parents, stride, listed = places, MOST, wanted
    return parents


class ModelNew(Model):
    def forward(self, users: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        users, items = users.contiguous(), self.items.contiguous()
        count, columns = items.shape
        many, keep = users.shape[0], self.best
        if keep > min(MOST, count):
            raise ValueError(f"at most {min(MOST, count)} are kept")
        blocks = triton.cdiv(count, GROUP)
        scores = torch.empty(many, blocks * GROUP, dtype=torch.float32, device=users.device)
        best = torch.empty(many, blocks, dtype=torch.float32, device=users.device)
        at_once = min(MOST_USERS, triton.next_power_of_2(many))
        wide = triton.next_power_of_2(columns)
        _score[(blocks, triton.cdiv(many, at_once))](
            items,
            users,
            scores,
            best,
            count,
            blocks,
            columns,
            many,
            GROUP=GROUP,
            BLOCK=wide,
            USERS=at_once,
            num_warps=SCORE_WARPS,
        )
        places = picked(scores, best, keep)
        found = torch.empty(many, keep, dtype=users.dtype, device=users.device)
        again = torch.empty_like(found)
        _finish[(many, triton.cdiv(keep, 16))](
            scores,
            places,
            items,
            users,
            found,
            again,
            scores.shape[1],
            columns,
            keep,
            MOST=MOST,
            BLOCK=wide,
            PER=16,
            num_warps=4,
        )
        return found, again
