"""What the lane compares on every fixture, and where each arm's words come from."""

from __future__ import annotations

from moegauge.gate.exactness import ExactnessPlan
from moegauge.gate.word_comparison import Pair
from moegauge.lanes.laguna_m8.corpus import corpus
from moegauge.lanes.laguna_m8.sequence import FINAL, RANK_SUM, ROUTED, SCALED
from moegauge.records.exactness import Run

PAIRS = (
    Pair(ROUTED, Run.ORACLE, Run.INCUMBENT),
    Pair(ROUTED, Run.ORACLE, Run.CANDIDATE_DIAGNOSTIC),
    Pair(ROUTED, Run.INCUMBENT, Run.CANDIDATE_DIAGNOSTIC),
    Pair(SCALED, Run.ORACLE, Run.INCUMBENT),
    Pair(SCALED, Run.ORACLE, Run.CANDIDATE_DIAGNOSTIC),
    Pair(SCALED, Run.INCUMBENT, Run.CANDIDATE_DIAGNOSTIC),
    Pair(FINAL, Run.ORACLE, Run.INCUMBENT),
    Pair(FINAL, Run.ORACLE, Run.CANDIDATE),
    Pair(FINAL, Run.ORACLE, Run.CANDIDATE_DIAGNOSTIC),
    Pair(FINAL, Run.INCUMBENT, Run.CANDIDATE),
    Pair(FINAL, Run.INCUMBENT, Run.INCUMBENT_REPEAT),
    Pair(FINAL, Run.CANDIDATE, Run.CANDIDATE_REPEAT),
    Pair(RANK_SUM, Run.ORACLE, Run.INCUMBENT),
    Pair(RANK_SUM, Run.ORACLE, Run.CANDIDATE),
    Pair(RANK_SUM, Run.INCUMBENT, Run.CANDIDATE),
)
"""Every comparison of words. The incumbent stores routed and final words; its scaled words are those that
:func:`moegauge.lanes.laguna_m8.sequence.scaled_from` gives for the routed words it stored. A candidate that stores its
final words alone has a diagnostic build, which stores all three and has to give the same final words."""

INPUTS = (Run.INCUMBENT, Run.CANDIDATE, Run.CANDIDATE_DIAGNOSTIC)
"""Runs around which the inputs are digested."""

WRITTEN = ((Run.INCUMBENT, ROUTED), (Run.INCUMBENT, FINAL), (Run.CANDIDATE, FINAL))
"""Outputs that are poisoned before each of an arm's two runs."""


def exactness_plan() -> ExactnessPlan:
    """Every check that a complete exactness campaign of the lane owes, on the whole corpus."""
    return ExactnessPlan(fixtures=tuple(spec.name for spec in corpus()), pairs=PAIRS, inputs=INPUTS, written=WRITTEN)
