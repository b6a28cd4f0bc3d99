"""Inputs that a person gives instead of a capture: a spec file, or flags that say the same. See docs/formats.

What runs follows from the spec alone, so the spec is stored beside the passes and verify derives the inputs again. A
draw depends on popularity, sampler, seed, rows and layer, and not on where in a list it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.profile_db import Artifact
from moegauge.adapters.runners.registry import runner_identity
from moegauge.adapters.runners.work import NUMERIC_FORMATS
from moegauge.evidence.capture_folder import open_capture
from moegauge.evidence.digest import bytes_digest, expert_map_digest, routed_ids_digest
from moegauge.evidence.store import read_bytes
from moegauge.jobs.expert_shards import ranks_of
from moegauge.jobs.profile_specs import (
    GIVEN,
    GIVEN_IDS,
    GIVEN_POPULARITY,
    InputChoice,
    InputSource,
    Spec,
    SpecSource,
)
from moegauge.kernels.registry import KINDS
from moegauge.records.profile import InputLabel, MatchKey, Subject
from moegauge.records.profile_spec import IdsInput, PopularityInput, ProfileSpec
from moegauge.records.schema import canonical_bytes, decode_record
from moegauge.routing.expert_load import as_topk_ids, check_expert_map
from moegauge.routing.reconstruction import given_popularity_digest, given_rows
from moegauge.routing.samplers import sampler_named

SPEC_NAME = "spec.json"
MAX_SIZE = (1 << 31) - 1
MAX_ROWS = 1 << 20
MAX_INVOCATIONS = 1 << 20
MAX_SLOTS = 1 << 28
MAX_COUNT = 1 << 53

_REMEDY = "Correct it; docs/formats/profile-spec.md says what it may hold."


@dataclass(frozen=True)
class Given:
    """A spec, and what to call it in a message: its file, or the flags it was made of."""

    spec: ProfileSpec
    where: str


def read_spec(path: Path) -> Given:
    """Read a spec that a person wrote.

    Raises:
        MissingFile, LimitExceeded, MalformedFile, SchemaMissing, SchemaOlder, SchemaNewer
    """
    return Given(decode_record(read_bytes(path), ProfileSpec, where=str(path)), str(path))


def read_popularity(text: str) -> Literal["uniform"] | tuple[int, ...]:
    """``uniform``, or the counts in a file: a JSON array of integers, one an expert.

    Raises:
        MissingFile, LimitExceeded, MalformedFile
    """
    if text == "uniform":
        return "uniform"
    try:
        return msgspec.json.decode(read_bytes(Path(text)), type=tuple[int, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MalformedFile(
            where=text,
            expected="a JSON array of integers, one an expert",
            found=str(error),
            remedy="Write counts, such as [12, 7, 0, 5]; shares have to become counts first.",
        ) from error


def open_inputs(inputs: Path | Given, runner: str, *, expert_parallel: int | None = None) -> InputSource:
    """What a run or a lookup takes its specs from.

    Args:
        inputs: capture folder, or what was given. runner: name; its kernel is the subject.
        expert_parallel: ranks to derive from a capture of one; None for the inputs as they are.

    Raises:
        EvidenceError: a capture that cannot be read. MisuseError: no such runner, or a spec that contradicts itself.
        LimitExceeded: a spec beyond the bounds.
    """
    kernel = runner_identity(runner)
    if isinstance(inputs, Given):
        return GivenSource(inputs, kernel=kernel)
    return ranks_of(SpecSource(open_capture(inputs), subject_kind=kernel), expert_parallel)


class GivenSource:
    """Specs of a ProfileSpec; an InputSource.

    Raises:
        MisuseError: the spec contradicts itself. LimitExceeded: it is beyond the bounds of this module.
    """

    capture_digest = None
    num_ranks = 1
    num_parts = 1

    def __init__(self, given: Given, *, kernel: tuple[str, str]) -> None:
        self.where, self._spec, self._kernel = given.where, given.spec, kernel
        self.model, self.numeric_format = given.spec.model, given.spec.numeric_format
        self._check_sizes()
        self._check_share()
        self.layers = tuple(range(given.spec.num_layers))
        self.ranks = {0: given.spec.num_local_experts}

    @cached_property
    def spec(self) -> Artifact:
        """The spec as a database keeps it."""
        data = canonical_bytes(self._spec)
        return Artifact(SPEC_NAME, data, bytes_digest(data))

    def specs(self, choice: InputChoice) -> list[Spec]:
        """Specs of every input in every layer, ordered by input and layer.

        Raises:
            MisuseError: another choice than GIVEN, ids that no router gives, or a popularity that cannot be drawn from.
        """
        if choice.type != GIVEN:
            raise self._refusal(f"inputs as given ({GIVEN})", choice.type)
        return [spec for number in range(len(self._spec.inputs)) for spec in self._of_input(number)]

    def _of_input(self, number: int) -> Iterator[Spec]:
        one = self._spec.inputs[number]
        place = f"{self.where}, input {number}"
        with _named(place):
            drawn: Sequence[tuple[NDArray[np.int32], InputLabel]]
            if isinstance(one, IdsInput):
                drawn = [(_ids(one, self.model.top_k, self.model.num_experts, place), InputLabel())] * len(self.layers)
            else:
                counts = _counts(one, self.model.num_experts, place)
                drawn = [self._drawn(one, counts, layer) for layer in self.layers]
        kind = GIVEN_IDS if isinstance(one, IdsInput) else GIVEN_POPULARITY
        share = self._spec.expert_map
        for layer, (ids, label) in zip(self.layers, drawn, strict=True):
            match = MatchKey(
                subject=self._subject,
                executed_rows=len(ids),
                input_type=kind,
                input_digest=routed_ids_digest(ids),
            )
            yield Spec(
                iteration=number,
                layer=layer,
                rank=0,
                match=match,
                label=label,
                topk_ids=ids,
                topk_weights=None,
                expert_map=None if share is None else np.array(share, dtype=np.int32),
                served_launch_mode=self._spec.launch_mode,
            )

    def _drawn(
        self, one: PopularityInput, counts: NDArray[np.int64], layer: int
    ) -> tuple[NDArray[np.int32], InputLabel]:
        ids = given_rows(counts, rows=one.rows, top_k=self.model.top_k, sampler=one.sampler, seed=one.seed, layer=layer)
        label = InputLabel(
            window="given uniform" if one.popularity == "uniform" else "given counts",
            sampler=one.sampler,
            version=sampler_named(one.sampler).version,
            seed=one.seed,
            popularity_digest=given_popularity_digest(counts),
        )
        return ids, label

    @property
    def _subject(self) -> Subject:
        spec, (kind, backend) = self._spec, self._kernel
        return Subject(
            kernel_kind=kind,
            backend=backend,
            numeric_format=spec.numeric_format,
            shape=spec.model,
            tp_size=spec.tp_size,
            ep_size=spec.ep_size,
            dp_size=spec.dp_size,
            num_local_experts=spec.num_local_experts,
            expert_map_digest=expert_map_digest(spec.expert_map),
        )

    def _check_sizes(self) -> None:
        spec, kind = self._spec, self._kernel[0]
        formats = KINDS[kind].numeric_formats if kind in KINDS else NUMERIC_FORMATS
        if spec.numeric_format not in formats:
            raise self._refusal(f"numeric format {' or '.join(formats)}, which {kind} takes", spec.numeric_format)
        if spec.num_layers < 1:
            raise self._refusal("at least 1 layer", str(spec.num_layers))
        if not spec.inputs:
            raise self._refusal("at least one input", "none")
        rows = [len(one.topk_ids) if isinstance(one, IdsInput) else one.rows for one in spec.inputs]
        bounds = [
            *((name, size, MAX_SIZE) for name, size in msgspec.structs.asdict(spec.model).items()),
            ("rows in one input", max(rows), MAX_ROWS),
            ("invocations", len(rows) * spec.num_layers, MAX_INVOCATIONS),
            ("slots (rows x top_k x layers)", sum(rows) * spec.model.top_k * spec.num_layers, MAX_SLOTS),
        ]
        for name, size, bound in bounds:
            if size > bound:
                raise errors.LimitExceeded(
                    where=self.where, expected=f"at most {bound}: {name}", found=f"{name}: {size}", remedy=_REMEDY
                )

    def _check_share(self) -> None:
        """Refuse parallel sizes and a share of the experts that contradict each other."""
        spec, num_experts = self._spec, self.model.num_experts
        if spec.tp_size not in {None, 1}:
            raise self._refusal(
                "tp_size 1, or null: no runner splits the intermediate size, so give that of one rank",
                str(spec.tp_size),
            )
        for name, size in (("ep_size", spec.ep_size), ("dp_size", spec.dp_size)):
            if size is not None and not 1 <= size <= MAX_SIZE:
                raise self._refusal(f"{name} of at least 1, or null", str(size))
        owned = num_experts if spec.expert_map is None else self._owned(spec.expert_map)
        if spec.num_local_experts != owned:
            raise self._refusal(f"num_local_experts {owned}, as expert_map says", str(spec.num_local_experts))
        if spec.ep_size is not None and (spec.ep_size > 1) != (owned < num_experts):
            sizes = "above 1" if owned < num_experts else "1"
            raise self._refusal(
                f"ep_size {sizes} or null for a rank with {owned} of {num_experts} experts", str(spec.ep_size)
            )

    def _owned(self, expert_map: tuple[int, ...]) -> int:
        """Experts of the rank by its expert map."""
        num_experts = self.model.num_experts
        wild = [index for index in expert_map if not -1 <= index < num_experts]
        if wild:
            raise self._refusal(f"local indices in -1..{num_experts - 1} in expert_map", str(wild[0]))
        with _named(self.where):
            check_expert_map(np.array(expert_map, dtype=np.int32), num_experts=num_experts, where=self.where)
        owned = sum(index >= 0 for index in expert_map)
        if not owned:
            raise self._refusal("at least one expert on the rank", "none")
        return owned

    def _refusal(self, expected: str, found: str) -> errors.MisuseError:
        return _refusal(self.where, expected, found)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Whatever is refused inside is a request that makes no sense, at this place."""
    try:
        yield
    except (errors.Inconsistent, errors.MisuseError) as error:
        raise _refusal(where, error.expected, error.found) from error


def _refusal(where: str, expected: str, found: str) -> errors.MisuseError:
    return errors.MisuseError(where=where, expected=expected, found=found, remedy=_REMEDY)


def _ids(one: IdsInput, top_k: int, num_experts: int, where: str) -> NDArray[np.int32]:
    """The ids of an input as int32 [rows, top_k], checked as those of a capture are."""
    if not one.topk_ids:
        raise _refusal(where, "at least one row", "none")
    for number, row in enumerate(one.topk_ids):
        if len(row) != top_k:
            raise _refusal(where, f"{top_k} ids in every row (the model's top_k)", f"{len(row)} in row {number}")
        for slot, expert in enumerate(row):
            if not -1 <= expert < num_experts:
                raise _refusal(where, f"ids in -1..{num_experts - 1}", f"id {expert} at row {number}, slot {slot}")
    ids = np.array(one.topk_ids, dtype=np.int64)
    return as_topk_ids(ids, top_k=top_k, num_experts=num_experts, where=where)


def _counts(one: PopularityInput, num_experts: int, where: str) -> NDArray[np.int64]:
    """The popularity of an input as int64 [num_experts]."""
    if one.rows < 1:
        raise _refusal(where, "at least one row", str(one.rows))
    if one.popularity == "uniform":
        return np.ones(num_experts, dtype=np.int64)
    if len(one.popularity) != num_experts:
        raise _refusal(where, f"{num_experts} counts, one an expert", f"{len(one.popularity)} counts")
    for expert, count in enumerate(one.popularity):
        if not 0 <= count < MAX_COUNT:
            expected = "counts >= 0" if count < 0 else "counts below 2**53"
            raise _refusal(where, expected, f"{count} for expert {expert}")
    return np.array(one.popularity, dtype=np.int64)
