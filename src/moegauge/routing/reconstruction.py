"""Reconstruction: a popularity and the shape of a captured invocation become routed rows again.

What a rung measures with it is how much of the kernel's time the compression lost; only the routed ids change,
every other input of the invocation stays the captured one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.records.workload import (
    ExactInput,
    FullRunPopularity,
    IterationPopularity,
    Padding,
    Reconstruction,
)
from moegauge.routing.expert_load import SKIPPED, expert_load
from moegauge.routing.samplers import sample, sampler_named

Int32Array = NDArray[np.int32]
Popularity = IterationPopularity | FullRunPopularity


def iteration_popularity(exact: ExactInput, num_experts: int) -> IterationPopularity:
    """Count the logical rows of one captured invocation.

    Args:
        exact: the invocation; padded rows and skipped slots are not counted.
        num_experts: logical experts of the model.

    Raises:
        MisuseError: something else than an ExactInput.
        Inconsistent: an id beyond the experts.
    """
    _require_exact(exact)
    logical = exact.topk_ids[: exact.num_logical_rows]
    if logical.size and logical.max() >= num_experts:
        raise _refusal(exact, f"ids below {num_experts} (the experts)", f"id {int(logical.max())}")
    load = expert_load(logical, num_experts=num_experts)
    return IterationPopularity(
        layer=exact.layer, iteration=exact.iteration, expert_load=load.counts, num_tokens=load.num_tokens
    )


def full_run_popularity(iterations: Sequence[IterationPopularity]) -> FullRunPopularity:
    """Add up the iterations of one layer over a capture; every token weighs the same.

    Args:
        iterations: one for each iteration of the window, in any order.

    Raises:
        Inconsistent: none; an iteration twice; or popularities of different layers or numbers of experts.
    """
    window = sorted(one.iteration for one in iterations)
    expected, found = "", ""
    if not window:
        expected, found = "at least one iteration", "none"
    elif len(layers := {one.layer for one in iterations}) > 1:
        expected, found = "one layer", f"layers {sorted(layers)}"
    elif len(set(window)) != len(window):
        expected, found = "each iteration once", f"iterations {window}"
    elif len(sizes := {len(one.expert_load) for one in iterations}) > 1:
        expected, found = "one number of experts", " and ".join(map(str, sorted(sizes)))
    if expected:
        raise errors.Inconsistent(
            where="full-run popularity",
            expected=expected,
            found=found,
            remedy="Give one popularity for each iteration of one layer of one capture.",
        )
    return FullRunPopularity(
        layer=iterations[0].layer,
        expert_load=np.sum([one.expert_load for one in iterations], axis=0, dtype=np.int64),
        num_tokens=sum(one.num_tokens for one in iterations),
        first_iteration=window[0],
        last_iteration=window[-1],
    )


def rebuild(
    popularity: Popularity, captured: ExactInput, *, sampler: str, seed: int, padding: str = "captured"
) -> Reconstruction:
    """Redraw the rows of a captured invocation from a popularity.

    Args:
        popularity: of the invocation's layer, over a window that holds its iteration.
        captured: gives the rows, the top_k and, with padding ``captured``, the ids of the padded rows.
        sampler: name in :data:`moegauge.routing.samplers.SAMPLERS`.
        seed: 0 .. 2**64 - 1; the invocation's own numbers come from (seed, iteration, layer), so ranks that share
            their tokens share the drawn rows.
        padding: ``captured`` keeps the padded rows as they ran and draws the logical rows only; ``drawn`` draws all
            executed rows.

    Raises:
        MisuseError: captured is no ExactInput; unknown sampler or padding.
        Inconsistent: layer, window or tokens of the two differ; skipped slots among the logical tokens (no sampler
            draws those); or see :func:`moegauge.routing.samplers.sample`.
    """
    _require_exact(captured)
    _check_match(popularity, captured)
    policy = _padding(padding)
    executed, top_k = captured.topk_ids.shape
    rows = captured.num_logical_rows if policy == "captured" else executed
    drawn = sample(
        sampler,
        popularity.expert_load,
        rows=rows,
        top_k=top_k,
        seed=seed,
        stream=stream_of(captured.iteration, captured.layer),
    )
    return Reconstruction(
        iteration=captured.iteration,
        layer=captured.layer,
        rank=captured.rank,
        topk_ids=np.concatenate([drawn, captured.topk_ids[rows:]]),
        num_logical_rows=captured.num_logical_rows,
        sampler=sampler,
        version=sampler_named(sampler).version,
        seed=seed,
        window=popularity.window,
        popularity_digest=popularity_digest(popularity),
        padding=policy,
    )


def given_rows(
    popularity: NDArray[np.int64], *, rows: int, top_k: int, sampler: str, seed: int, layer: int
) -> Int32Array:
    """Draw rows from a popularity that belongs to no captured invocation.

    Args:
        popularity: int64 [num_experts], counts of any sum.
        rows, layer: name the draw, together with the seed; no list decides what is drawn.
        top_k, sampler, seed: see :func:`moegauge.routing.samplers.sample`, also for what it raises.

    Returns:
        int32 [rows, top_k].
    """
    return sample(sampler, popularity, rows=rows, top_k=top_k, seed=seed, stream=_stream(f"given {rows} {layer}"))


def given_popularity_digest(popularity: NDArray[np.int64]) -> str:
    """SHA-256 over the number of experts and little-endian int64 counts: ``given-popularity-v1+sha256:<hex>``."""
    digest = hashlib.sha256(f"given-popularity-v1 experts {len(popularity)}\n".encode())
    digest.update(np.ascontiguousarray(popularity, dtype="<i8").tobytes())
    return "given-popularity-v1+sha256:" + digest.hexdigest()


def stream_of(iteration: int, layer: int) -> int:
    """64-bit stream of an invocation's random numbers: first 8 bytes of a SHA-256, little-endian."""
    return _stream(f"{iteration} {layer}")


def _stream(name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"moegauge-stream-v1 {name}".encode()).digest()[:8], "little")


def popularity_digest(popularity: Popularity) -> str:
    """SHA-256 over layer, window, tokens and little-endian int64 counts: ``popularity-v1+sha256:<hex>``."""
    head = f"popularity-v1 layer {popularity.layer} {popularity.window} tokens {popularity.num_tokens} "
    digest = hashlib.sha256(f"{head}experts {len(popularity.expert_load)}\n".encode())
    digest.update(np.ascontiguousarray(popularity.expert_load, dtype="<i8").tobytes())
    return "popularity-v1+sha256:" + digest.hexdigest()


def _require_exact(captured: ExactInput) -> None:
    if not isinstance(captured, ExactInput):
        raise errors.MisuseError(
            where="routed input",
            expected="an ExactInput (rows a kernel really ran)",
            found=type(captured).__name__,
            remedy="Give the captured invocation; drawn rows cannot stand for it.",
        )


def _padding(name: str) -> Padding:
    if name == "captured":
        return "captured"
    if name == "drawn":
        return "drawn"
    raise errors.MisuseError(where="padding", expected="captured | drawn", found=name, remedy="Name one of the two.")


def _check_match(popularity: Popularity, captured: ExactInput) -> None:
    if popularity.layer != captured.layer:
        raise _refusal(captured, f"a popularity of layer {captured.layer}", f"one of layer {popularity.layer}")
    if isinstance(popularity, IterationPopularity):
        inside = popularity.iteration == captured.iteration
        if inside and popularity.num_tokens != captured.num_logical_rows:
            raise _refusal(
                captured, f"{captured.num_logical_rows} tokens", f"{popularity.num_tokens} in its popularity"
            )
    else:
        inside = popularity.first_iteration <= captured.iteration <= popularity.last_iteration
    if not inside:
        raise _refusal(captured, f"a window that holds iteration {captured.iteration}", popularity.window)
    total, top_k = int(popularity.expert_load.sum()), captured.topk_ids.shape[1]
    if total != popularity.num_tokens * top_k:
        raise _refusal(
            captured, f"counts that add up to tokens x top_k = {popularity.num_tokens} x {top_k}", f"a sum of {total}"
        )
    if (captured.topk_ids[: captured.num_logical_rows] == SKIPPED).any():
        raise _refusal(captured, "logical rows without skipped slots", f"id {SKIPPED} among them")


def _refusal(exact: ExactInput, expected: str, found: str) -> errors.Inconsistent:
    return errors.Inconsistent(
        where=f"iteration {exact.iteration}, layer {exact.layer}, rank {exact.rank}",
        expected=expected,
        found=found,
        remedy="Take the popularity from the same capture, layer and window.",
    )
