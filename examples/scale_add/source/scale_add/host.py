"""The host half: fixtures, oracle, guards and mutants. Imports no torch.

    scaled = BF16(float(routed) x scale)
    final  = BF16(float(shared) + float(scaled))

The candidate adds and scales in one operator, which rounds once. With a scale of 2 the first rounding never changes
anything, and one operator gives the same words; with 2.5 it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moegauge.gate.mutation import Mutant
from moegauge.records.lane import CheckResult

UInt16Array = NDArray[np.uint16]

SHAPE = (8, 1024)
SCALES = {"scale-2": 2.0, "scale-2.5": 2.5}
"""Scale of each subject that a registration may name."""

NAN = 0x7FC0
"""The word this oracle gives for every NaN. No fixture has one: which word torch gives depends on the length."""

NUM_RANDOM = 24
NUM_CHUNKS = 8


def widened(words: UInt16Array) -> NDArray[np.float32]:
    """BF16 words as FP32 numbers; exact."""
    return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(values: NDArray[np.float32]) -> UInt16Array:
    """BF16 words of FP32 numbers: nearest, ties to even; one word for every NaN."""
    bits = values.view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    words = ((bits + np.uint32(0x7FFF) + even) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(NAN), words)


def scale_add(routed: UInt16Array, shared: UInt16Array, scale: float) -> UInt16Array:
    """The literal sequence, with both roundings."""
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = rounded(widened(routed) * np.float32(scale))
        return rounded(widened(shared) + widened(scaled))


def applies(*, tokens: int, hidden: int, dtype: str, contiguous: bool, scale: float, subject: str) -> bool:
    """The contract: whether the candidate may run at all."""
    return (tokens, hidden) == SHAPE and dtype == "bfloat16" and contiguous and scale == SCALES[subject]


# --- fixtures ---------------------------------------------------------------------------------------------------------


def _finite(chunk: int) -> dict[str, UInt16Array]:
    """An eighth of the finite words at routed, against 1.0; the last eighth is filled up with first words."""
    finite = np.array([word for word in range(1 << 16) if word & 0x7F80 != 0x7F80], dtype=np.uint16)
    size = SHAPE[0] * SHAPE[1]
    routed = np.take(finite, np.arange(chunk * size, (chunk + 1) * size), mode="wrap")
    return {"routed": routed.reshape(SHAPE), "shared": np.full(SHAPE, 0x3F80, dtype=np.uint16)}


def _random(seed: int) -> dict[str, UInt16Array]:
    generator = np.random.Generator(np.random.Philox(seed))
    numbers = generator.standard_normal((2, *SHAPE), dtype=np.float32)
    return {"routed": rounded(numbers[0] * np.float32(5)), "shared": rounded(numbers[1] * np.float32(3))}


def _repeated(routed: list[int], shared: list[int]) -> dict[str, UInt16Array]:
    return {
        "routed": np.resize(np.array(routed, dtype=np.uint16), SHAPE),
        "shared": np.resize(np.array(shared, dtype=np.uint16), SHAPE),
    }


_BUILDERS: dict[str, Callable[[], dict[str, UInt16Array]]] = {
    **{f"finite/{chunk}": lambda chunk=chunk: _finite(chunk) for chunk in range(NUM_CHUNKS)},
    **{f"random/{seed}": lambda seed=seed: _random(seed) for seed in range(NUM_RANDOM)},
    "edges/signed-zero": lambda: _repeated([0x0000, 0x8000], [0x0000, 0x8000, 0x8000, 0x0000]),
    "edges/subnormal": lambda: _repeated([0x0001, 0x8001, 0x007F, 0x0000], [0x0000, 0x0001, 0x807F]),
    "edges/lost-rounding": lambda: _repeated([0x3FC3, 0x3F81], [0xC0F4, 0xC021]),
    "edges/infinity": lambda: _repeated([0x7F80, 0xFF80, 0x7F7F], [0x3F80, 0x0000, 0xBF80]),
}


class ScaleAddLane:
    """What the registration's ``code.lane`` names."""

    def fixtures(self, subject: str) -> tuple[str, ...]:
        """Every fixture; the same for each scale."""
        del subject
        return tuple(_BUILDERS)

    def inputs(self, subject: str, fixture: str) -> Mapping[str, UInt16Array]:
        """Words of routed and shared, [8, 1024]."""
        del subject
        return _BUILDERS[fixture]()

    def oracle(self, subject: str, fixture: str) -> Mapping[str, UInt16Array]:
        """The final words."""
        given = self.inputs(subject, fixture)
        return {"final": scale_add(given["routed"], given["shared"], SCALES[subject])}

    def checks(self) -> Iterator[CheckResult]:
        """Stage 0."""
        yield _guards()
        yield _literals()

    def mutants(self, subject: str) -> tuple[Mutant[Mapping[str, UInt16Array]], ...]:
        """Every wrong candidate of a scale."""

        def of_inputs(run: Callable[[UInt16Array, UInt16Array, float], UInt16Array]) -> Any:
            return lambda given: {"final": run(given["routed"], given["shared"], SCALES[subject])}

        return tuple(
            Mutant(name, breaks, of_inputs(run))
            for name, breaks, run in _MUTANTS
            if run is not _once_rounded or SCALES[subject] != 2.0
        )

    def coverage(self, subject: str) -> Mapping[str, int]:
        """Finite words at routed, counted over the fixtures."""
        seen = np.zeros(1 << 16, dtype=bool)
        for name in self.fixtures(subject):
            seen[self.inputs(subject, name)["routed"]] = True
        finite = (np.arange(1 << 16) & 0x7F80) != 0x7F80
        return {"finite words at routed": int(np.count_nonzero(seen & finite))}


def _guards() -> CheckResult:
    """The contract holds for the call itself, and for none that differs in one field."""
    call = {"tokens": 8, "hidden": 1024, "dtype": "bfloat16", "contiguous": True, "scale": 2.0, "subject": "scale-2"}
    changes = [("tokens", m) for m in range(1, 8)] + [("tokens", 16), ("hidden", 1023), ("dtype", "float16")]
    changes += [("contiguous", False), ("scale", 2.5)]
    wrong = [f"{name}={value}" for name, value in changes if applies(**(call | {name: value}))]  # type: ignore[arg-type]
    passed = applies(**call) and not wrong  # type: ignore[arg-type]
    sentence = "the matching call and every corruption of it" if passed else f"let through: {wrong or 'not the call'}"
    return CheckResult(name="guards", passed=passed, num_cases=1 + len(changes), sentence=sentence)


_LITERALS = (  # routed, shared, scale, final; worked out by hand
    (0x3F80, 0x3F80, 2.0, 0x4040),  # 1 x 2 + 1 = 3
    (0x0001, 0x0000, 2.5, 0x0002),  # 2.5 units of the smallest subnormal, a tie to even
    (0x8000, 0x8000, 2.0, 0x8000),  # -0 + -0
    (0x8000, 0x0000, 2.0, 0x0000),
    (0x7F80, 0xFF80, 2.0, 0x7FC0),  # infinity - infinity
    (0x7F7F, 0x0000, 2.0, 0x7F80),  # overflow
)


def _literals() -> CheckResult:
    wrong = [
        f"{routed:04x}"
        for routed, shared, scale, final in _LITERALS
        if scale_add(_word(routed), _word(shared), scale)[0] != final
    ]
    return CheckResult(
        name="oracle", passed=not wrong, num_cases=len(_LITERALS), sentence=f"literal words, wrong: {wrong or 'none'}"
    )


def _truncated(routed: UInt16Array, shared: UInt16Array, scale: float) -> UInt16Array:
    scaled = widened(rounded(widened(routed) * np.float32(scale)))
    return ((widened(shared) + scaled).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def _flushed(routed: UInt16Array, shared: UInt16Array, scale: float) -> UInt16Array:
    def flush(words: UInt16Array) -> UInt16Array:
        return np.where(words & 0x7F80 == 0, words & np.uint16(0x8000), words)

    return flush(scale_add(flush(routed), flush(shared), scale))


def _once_rounded(routed: UInt16Array, shared: UInt16Array, scale: float) -> UInt16Array:
    return rounded(widened(shared) + widened(routed) * np.float32(scale))


_MUTANTS: tuple[tuple[str, str, Callable[[UInt16Array, UInt16Array, float], UInt16Array]], ...] = (
    ("truncation", "the final words cut, not rounded", _truncated),
    ("flush to zero", "subnormal words read and written as zero", _flushed),
    ("missing scaled rounding", "one rounding instead of two", _once_rounded),
)
"""Wrong candidates by name. One rounding gives the same words for a scale of 2, and is wrong for 2.5 alone."""


def _word(word: int) -> UInt16Array:
    return np.array([word], dtype=np.uint16)


LANE = ScaleAddLane()
