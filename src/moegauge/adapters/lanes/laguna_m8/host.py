"""The lane's arithmetic in torch on the host: what the arms of the CPU lane run. Tensors as in ``launch``.

Products and sums are torch's own FP32 operators, one rounding each; BF16 roundings are done in integers, as in the
kernels. torch must not flush subnormals on the calling thread (``torch.set_flush_denormal``).
"""

import torch
from torch import Tensor

from moegauge.adapters.lanes.laguna_m8.tensor_facts import facts
from moegauge.lanes.laguna_m8.contract import check_tensors
from moegauge.lanes.laguna_m8.sequence import HIDDEN_SIZE, NUM_TOKENS, TOP_K
from moegauge.numerics.words import BF16_NAN, FP32_INFINITY


def moe_gather(routed: Tensor, rows: Tensor, weights: Tensor, route_map: Tensor | None = None) -> None:
    """Write routed [8, 3072]; a slot of -1 in the map adds nothing."""
    given = {"rows": rows, "weights": weights} | ({} if route_map is None else {"route_map": route_map})
    check_tensors(outputs={"routed": facts(routed)}, inputs={name: facts(one) for name, one in given.items()})
    if route_map is None:
        routed.copy_(rounded(_accumulated(rows, weights)))
        return
    accum = torch.zeros(NUM_TOKENS, HIDDEN_SIZE)
    for slot in range(TOP_K):
        index = route_map[:, slot].long()
        product = rows[index.clamp(min=0)].float() * weights[:, slot, None]
        accum = torch.where((index == -1)[:, None], accum, accum + product)
    routed.copy_(rounded(accum))


def scale_add(out: Tensor, shared: Tensor, routed: Tensor) -> None:
    """Write out [8, 3072] = BF16(shared + BF16(2.5 x routed))."""
    check_tensors(outputs={"out": facts(out)}, inputs={"shared": facts(shared), "routed": facts(routed)})
    out.copy_(_finalized(shared, _scaled(routed)))


def gather_finalize(out: Tensor, rows: Tensor, weights: Tensor, shared: Tensor) -> None:
    """Write out [8, 3072], no routed tensor in between."""
    given = {"rows": rows, "weights": weights, "shared": shared}
    check_tensors(outputs={"out": facts(out)}, inputs={name: facts(one) for name, one in given.items()})
    out.copy_(_finalized(shared, _scaled(rounded(_accumulated(rows, weights)))))


def gather_finalize_diagnostic(
    *, routed: Tensor, scaled: Tensor, out: Tensor, rows: Tensor, weights: Tensor, shared: Tensor
) -> None:
    """The candidate with its routed and scaled words stored, each [8, 3072]."""
    written = {"routed": routed, "scaled": scaled, "out": out}
    given = {"rows": rows, "weights": weights, "shared": shared}
    check_tensors(
        outputs={name: facts(one) for name, one in written.items()},
        inputs={name: facts(one) for name, one in given.items()},
    )
    routed.copy_(rounded(_accumulated(rows, weights)))
    scaled.copy_(_scaled(routed))
    out.copy_(_finalized(shared, scaled))


def _accumulated(rows: Tensor, weights: Tensor) -> Tensor:
    by_slot = rows.view(NUM_TOKENS, TOP_K, HIDDEN_SIZE).float()
    accum = torch.zeros(NUM_TOKENS, HIDDEN_SIZE)
    for slot in range(TOP_K):
        product = by_slot[:, slot] * weights[:, slot, None]
        accum = accum + product
    return accum


def _scaled(routed: Tensor) -> Tensor:
    return rounded(routed.float() * 2.5)


def _finalized(shared: Tensor, scaled: Tensor) -> Tensor:
    return rounded(shared.float() + scaled.float())


def rounded(numbers: Tensor) -> Tensor:
    """BF16 of FP32 numbers: nearest, ties to even, 0x7FC0 for every NaN; on any device."""
    words = numbers.view(torch.int32).long() & 0xFFFF_FFFF
    upper = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    upper = torch.where((words & 0x7FFF_FFFF) > FP32_INFINITY, BF16_NAN, upper)
    return upper.to(torch.int32).to(torch.int16).view(torch.bfloat16)
