"""What the corpus covers, counted over its fixtures and over what the oracle makes of them; nothing is asserted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from moegauge.lanes.laguna_m8.corpus import FAMILIES
from moegauge.lanes.laguna_m8.edge_fixtures import EDGE_WEIGHTS
from moegauge.lanes.laguna_m8.fixture import ONE, Fixture, FixtureSpec, by_slot
from moegauge.lanes.laguna_m8.mutants import MUTANTS
from moegauge.lanes.laguna_m8.sequence import BOUNDARIES, FINAL, ROUTED, SCALED, TOP_K, Rounding, gather_finalize
from moegauge.numerics import bf16
from moegauge.numerics.words import FP32_INFINITY, FP32_SIGN, BoolArray, UInt16Array, UInt32Array, WordClass, word_class
from moegauge.records.adequacy import CorpusResult, CoverageRow, FamilyRow
from moegauge.records.decision import reason

_WORDS = np.arange(1 << 16, dtype=np.uint16)
_FINITE = word_class(_WORDS) < WordClass.INFINITY
_NAN = word_class(_WORDS) == WordClass.NAN
_SUBNORMAL = word_class(_WORDS) == WordClass.SUBNORMAL
_EDGES = {edge | sign for edge in EDGE_WEIGHTS for sign in (0, FP32_SIGN)}


def corpus_coverage(specs: Iterable[FixtureSpec]) -> CorpusResult:
    """Build every fixture, run the oracle on it, and count what there is."""
    tally = _Tally()
    for spec in specs:
        tally.add(spec, spec.build())
    rows = tuple(
        CoverageRow(what=what, num_covered=count(tally), num_required=required) for what, required, count in _ROWS
    )
    reasons = tuple(
        reason("COVERAGE_SHORT", f"{row.what}: {row.num_covered:,} of {row.num_required:,}.")
        for row in rows
        if row.num_covered < row.num_required
    )
    families = tuple(
        FamilyRow(family=family, purpose=purpose, num_fixtures=tally.families[family])
        for family, purpose in FAMILIES.items()
    )
    return CorpusResult(families=families, rows=rows, passed=not reasons, reasons=reasons)


class _Tally:
    """What was seen so far, word by word."""

    def __init__(self) -> None:
        self.families: Counter[str] = Counter()
        self.random: set[str] = set()
        self.by_slot = np.zeros((TOP_K, len(_WORDS)), dtype=bool)
        self.rows = np.zeros(len(_WORDS), dtype=bool)
        self.shared = np.zeros(len(_WORDS), dtype=bool)
        self.routed = np.zeros(len(_WORDS), dtype=bool)
        self.ties = {boundary: np.zeros(len(_WORDS), dtype=bool) for boundary in BOUNDARIES}
        self.zero_signs = np.zeros(1 << (TOP_K + 1), dtype=bool)
        self.masks: set[int] = set()
        self.edges: set[int] = set()
        self.slots_alone: set[int] = set()
        self.num: Counter[str] = Counter()

    def add(self, spec: FixtureSpec, fixture: Fixture) -> None:
        """Count one fixture."""
        self.families[spec.family] += 1
        if spec.family == "random":
            self.random.add(fixture.digest)
        self._add_inputs(fixture)
        self._add_routes(fixture)
        roundings = gather_finalize(fixture.rows, fixture.weights, fixture.shared)
        self._add_roundings(roundings)
        if spec.family in {"sum-fma", "sum-order"}:
            self._add_witnesses(fixture, roundings[FINAL].words)

    def _add_inputs(self, fixture: Fixture) -> None:
        slots = by_slot(fixture.rows)
        for slot in range(TOP_K):
            self.by_slot[slot][slots[fixture.weights[:, slot] == ONE, slot].ravel()] = True
        self.rows[fixture.rows.ravel()] = True
        self.shared[fixture.shared.ravel()] = True
        magnitude = fixture.weights & np.uint32(FP32_INFINITY | 0x007F_FFFF)
        self.edges |= _EDGES & set(fixture.weights.ravel().tolist())
        self.num["subnormal weights"] += bool(((magnitude > 0) & (magnitude < 0x0080_0000)).all())
        self.num["negative zero"] += bool((fixture.rows == 0x8000).all() and (fixture.shared == 0x8000).all())
        self._add_zero_signs(slots, fixture.weights, fixture.shared)

    def _add_zero_signs(self, slots: UInt16Array, weights: UInt32Array, shared: UInt16Array) -> None:
        """Signs of ten products that are all zero, and of a shared word that is zero."""
        token, column = np.nonzero((shared & np.uint16(0x7FFF)) == 0)
        rows, weight = slots[token, :, column], weights[token]
        zero = ((rows & np.uint16(0x7FFF)) == 0) | ((weight & np.uint32(0x7FFF_FFFF)) == 0)
        finite = ((rows & np.uint16(0x7F80)) != 0x7F80) & ((weight & np.uint32(FP32_INFINITY)) != FP32_INFINITY)
        negative = (rows >> 15) ^ (weight >> np.uint32(31)).astype(np.uint16)
        signs = (negative << np.arange(TOP_K)).sum(axis=1) + ((shared[token, column] >> 15).astype(np.int64) << TOP_K)
        self.zero_signs[signs[(zero & finite).all(axis=1)]] = True

    def _add_routes(self, fixture: Fixture) -> None:
        filled = (by_slot(fixture.rows) != 0).any(axis=2)
        self.num["all local"] += bool(filled.all())
        self.num["all remote"] += bool(not filled.any())
        self.masks |= {int(mask) for mask in (~filled << np.arange(TOP_K)).sum(axis=1)}
        weighted = fixture.weights != 0
        alone = (weighted.sum(axis=1) == 1) & filled.all(axis=1)
        self.slots_alone |= {int(slot) for slot in np.argmax(weighted[alone], axis=1)}

    def _add_roundings(self, roundings: dict[str, Rounding]) -> None:
        self.routed[roundings[ROUTED].words.ravel()] = True
        for boundary, rounding in roundings.items():
            ties = rounding.before[bf16.is_tie(rounding.before)]
            self.ties[boundary][ties >> np.uint32(16)] = True
        classes = [word_class(rounding.words) for rounding in roundings.values()]
        nan = any((one == WordClass.NAN).any() for one in classes)
        infinity = any((one == WordClass.INFINITY).any() for one in classes)
        self.num["nan"] += nan
        self.num["infinity"] += infinity and not nan

    def _add_witnesses(self, fixture: Fixture, final: UInt16Array) -> None:
        for mutant in MUTANTS:
            if mutant.name in {"fma", "reversed-sum"}:
                self.num[mutant.name] += int(np.count_nonzero(mutant.run(fixture)[FINAL] != final))


def _num(seen: BoolArray) -> int:
    return int(np.count_nonzero(seen))


def _finite(seen: BoolArray) -> int:
    return _num(seen & _FINITE)


_ROWS: tuple[tuple[str, int, Callable[[_Tally], int]], ...] = (
    ("random fixtures, each unlike the others", 256, lambda seen: len(seen.random)),
    ("finite words in the slot that has the fewest, at weight 1", 65_280, lambda seen: min(map(_finite, seen.by_slot))),
    ("finite words that come out of the routed rounding", 65_280, lambda seen: _finite(seen.routed)),
    ("finite words at the shared boundary", 65_280, lambda seen: _finite(seen.shared)),
    ("subnormal words that come out of the routed rounding", 254, lambda seen: _num(seen.routed & _SUBNORMAL)),
    ("exact ties of the routed rounding", 65_280, lambda seen: _num(seen.ties[ROUTED])),
    ("exact ties of the scaled rounding", 12_752, lambda seen: _num(seen.ties[SCALED])),
    ("exact ties of the final rounding", 63_702, lambda seen: _num(seen.ties[FINAL])),
    ("NaN words in a row", 254, lambda seen: _num(seen.rows & _NAN)),
    ("NaN words at the shared boundary", 254, lambda seen: _num(seen.shared & _NAN)),
    ("fixtures with a NaN in a result", 2, lambda seen: seen.num["nan"]),
    ("fixtures with an infinity and no NaN in a result", 2, lambda seen: seen.num["infinity"]),
    ("edge weights of either sign", 40, lambda seen: len(seen.edges)),
    ("fixtures whose weights are all subnormal", 1, lambda seen: seen.num["subnormal weights"]),
    ("fixtures of -0 alone", 1, lambda seen: seen.num["negative zero"]),
    ("choices of sign for ten products and a shared word, all zero", 2_048, lambda seen: _num(seen.zero_signs)),
    ("fixtures without a zero-filled row", 1, lambda seen: seen.num["all local"]),
    ("fixtures of zero-filled rows alone", 1, lambda seen: seen.num["all remote"]),
    ("patterns of zero-filled rows among the ten slots", 32, lambda seen: len(seen.masks)),
    ("slots that alone have a weight, with every row filled", 10, lambda seen: len(seen.slots_alone)),
    ("elements that show a product added without its rounding", 1, lambda seen: seen.num["fma"]),
    ("elements that show the sum taken in reverse", 1, lambda seen: seen.num["reversed-sum"]),
)
"""What is counted, how much there has to be, and how it is counted.

2.5 times a word lies between two words at 25 of the 128 significands of a normal binade: 12,752 ties are all there are.
"""
