"""The inputs on which both arms are compared: every one named, seeded, and the same on every machine."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from moegauge import errors
from moegauge.lanes.laguna_m8.boundary_fixtures import boundary_specs
from moegauge.lanes.laguna_m8.edge_fixtures import edge_specs
from moegauge.lanes.laguna_m8.fixture import FixtureSpec
from moegauge.lanes.laguna_m8.route_fixtures import route_specs

SEED = 0x6D6F_6567
VERSION = 1
"""Any change of a word of any fixture raises it."""

FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "routed-finite": "every finite BF16 word at the routed boundary, through each slot",
        "shared-finite": "every finite BF16 word at the shared boundary",
        "finite-pairs": "every finite BF16 word on both sides of the final sum, across all magnitudes",
        "tie-routed": "every exact tie of the routed rounding",
        "tie-final": "exact ties of the final rounding",
        "residue-scaled": "the shared output cancels the scaled words, which leaves what that rounding took away",
        "residue-routed": "the same with sums that the routed rounding changes",
        "signed-zero": "every choice of sign for ten products and the shared word; all of them -0",
        "subnormal": "subnormal rows, weights alone, products, and words at the routed and the shared boundary",
        "infinity": "infinities that come in and that arise at each rounding; no NaN",
        "nan": "every NaN word, and every operation that makes one",
        "weight-edges": "FP32 weights: zeros, subnormals, next to 1, powers of two, the largest",
        "canonical-slot": "one slot alone, every row unlike the others",
        "all-local": "no row zero-filled",
        "all-remote": "every row zero-filled",
        "mixed-remote": "some rows zero-filled, by mask",
        "sum-fma": "products that cancel only if each was rounded",
        "sum-order": "sums that depend on the order, for every three slots",
        "random": "random full fixtures of four kinds, each unlike the others",
    }
)
"""Every family of fixtures and what it is there for."""


def corpus() -> tuple[FixtureSpec, ...]:
    """Every fixture of the lane, in the order in which they run."""
    return (*boundary_specs(), *edge_specs(SEED), *route_specs(SEED))


def fixture_spec(name: str) -> FixtureSpec:
    """Look a fixture up.

    Raises:
        MisuseError: there is none of that name.
    """
    found = next((spec for spec in corpus() if spec.name == name), None)
    if found is None:
        raise errors.MisuseError(
            where="fixture of laguna_m8",
            expected="a name of the corpus",
            found=name,
            remedy="moegauge.lanes.laguna_m8.corpus.corpus() lists them.",
        )
    return found
