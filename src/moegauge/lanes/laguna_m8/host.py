"""The host half of the lane, as the gate's runner takes it: fixtures, oracle, mutants, coverage. No torch.

A platform adds the guards of its own contract: a subclass whose ``checks`` go on from these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.gate.mutation import Mutant
from moegauge.gate.ports import Inputs, Words
from moegauge.lanes.laguna_m8.corpus import corpus
from moegauge.lanes.laguna_m8.coverage import corpus_coverage
from moegauge.lanes.laguna_m8.fixture import Fixture, FixtureSpec
from moegauge.lanes.laguna_m8.manifest import check_manifest
from moegauge.lanes.laguna_m8.mutants import MUTANTS
from moegauge.lanes.laguna_m8.sequence import FINAL, RANK_SUM, Rounding, gather_finalize, rank_sum, words_of
from moegauge.numerics.words import UInt32Array
from moegauge.records.lane import CheckResult

MANIFEST = "manifest"
"""Name of the check that every fixture has the registered words."""


class LagunaM8:
    """What ``code.lane`` of a registration names. There is one subject, whatever it is called.

    Boundaries: ``routed``, ``scaled``, ``final``, and ``rank_sum`` of the four ranks behind the lane.
    """

    def __init__(self, specs: Iterable[FixtureSpec] | None = None) -> None:
        given = corpus() if specs is None else tuple(specs)
        self.specs = {fixture_name(spec): spec for spec in given}

    def checks(self) -> Iterable[CheckResult]:
        """Every fixture is built, and has the words that this release registers."""
        try:
            check_manifest(self.specs.values())
        except errors.DigestMismatch as error:
            yield CheckResult(name=MANIFEST, passed=False, num_cases=len(self.specs), sentence=f"found {error.found}")
        else:
            yield CheckResult(
                name=MANIFEST, passed=True, num_cases=len(self.specs), sentence="every word as registered"
            )

    def fixtures(self, subject: str) -> Sequence[str]:
        """Every fixture of the corpus, by family."""
        del subject
        return tuple(self.specs)

    def inputs(self, subject: str, fixture: str) -> Inputs:
        """What a kernel reads, and the outputs of the other ranks."""
        del subject
        return self._inputs(self._built(fixture))

    def oracle(self, subject: str, fixture: str) -> Mapping[str, Words]:
        """The literal words at every boundary."""
        del subject
        return words_of(self._roundings(fixture))

    def before_rounding(self, subject: str, fixture: str) -> Mapping[str, UInt32Array]:
        """The FP32 words that were rounded at every boundary."""
        del subject
        return {name: one.before for name, one in self._roundings(fixture).items()}

    def mutants(self, subject: str) -> Sequence[Mutant[Inputs]]:
        """Every wrong candidate of the lane."""
        del subject

        def of_inputs(mutant: Mutant[Fixture]) -> Mutant[Inputs]:
            return Mutant(mutant.name, mutant.breaks, lambda given: mutant.run(_fixture(given)))

        return tuple(of_inputs(mutant) for mutant in MUTANTS)

    def coverage(self, subject: str) -> Mapping[str, int]:
        """Counts over the fixtures, by what is counted."""
        del subject
        return self._counts

    @cached_property
    def _counts(self) -> Mapping[str, int]:
        return {row.what: row.num_covered for row in corpus_coverage(self.specs.values()).rows}

    def _roundings(self, fixture: str) -> Mapping[str, Rounding]:
        built = self._built(fixture)
        found = gather_finalize(built.rows, built.weights, built.shared)
        return {**found, RANK_SUM: rank_sum(built.outputs(found[FINAL].words))}

    def _built(self, fixture: str) -> Fixture:
        return self.specs[fixture].build()

    @staticmethod
    def _inputs(built: Fixture) -> dict[str, NDArray[np.generic]]:
        return {**built.inputs, "peers": built.peers, "rank": np.array(built.rank, dtype=np.int64)}


def fixture_name(spec: FixtureSpec) -> str:
    """Name of a fixture in a registration: family and name."""
    return f"{spec.family}/{spec.name}"


def _fixture(given: Inputs) -> Fixture:
    return Fixture(given["rows"], given["weights"], given["shared"], given["peers"], int(given["rank"]))


LANE = LagunaM8()
