"""A judgement is a status, a reason code and a sentence.

The codes are stable; sentences may improve. Every code stands in the table below with what it means.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Status(StrEnum):
    """Outcome of one comparison. Only MATCH is agreement; only DIVERGED is disagreement."""

    MATCH = "MATCH"
    INCONCLUSIVE = "INCONCLUSIVE"
    UNAVAILABLE = "UNAVAILABLE"
    DIVERGED = "DIVERGED"


_WORST_FIRST = (Status.DIVERGED, Status.UNAVAILABLE, Status.INCONCLUSIVE, Status.MATCH)


def worst(statuses: Iterable[Status]) -> Status:
    """The worst of several statuses, in the order DIVERGED, UNAVAILABLE, INCONCLUSIVE, MATCH.

    No statuses at all are UNAVAILABLE: an empty set of comparisons proves nothing.
    """
    found = set(statuses)
    return next((status for status in _WORST_FIRST if status in found), Status.UNAVAILABLE)


class Reason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why: a stable code (a key of :data:`CODES`) and one sentence for a person."""

    code: str
    sentence: str

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"reason code {self.code!r} is not in the table of records/decision.py")


CODES: dict[str, str] = {
    "WITHIN_TOLERANCE": "the interval of the relative difference lies inside the tolerance",
    "BEYOND_TOLERANCE": "the interval of the relative difference lies outside the tolerance",
    "STRADDLES_TOLERANCE": "the interval of the relative difference contains a tolerance bound",
    "TOO_FEW_PASSES": "fewer than six passes: the point estimate is shown, no interval exists",
    "CONDITION_DIFFERS": "a condition that must be held fixed was recorded and differs between the sides",
    "KERNEL_SET_DIFFERS": "the two sides did not run the same kernels inside the boundary",
    "LEFT_IS_ZERO": "the left time is 0, so a relative difference is undefined",
    "NO_MEASURED_ROWS": "the profile database holds no isolated measurement that matches",
    "NOT_ALL_MATCHED": "some captured work has no isolated measurement, so a total would be partial",
    "AMBIGUOUS_ROWS": "several measured rows match and nothing chooses between them",
    "NO_EXACT_INPUT": "the routed ids of the invocation were not captured",
    "ROUTED_ROWS_PARTIAL": "fewer routed rows were recorded than the kernel executed",
    "RANK_MISSING": "a rank of the invocation was not recorded",
    "NO_KERNELS": "the trace holds no kernel of the registered kind for this work",
    "NO_ITERATION_MARKERS": "the trace has no iteration boundaries and none were given",
    "ITERATION_NOT_MARKED": "the trace has no boundary for this iteration",
    "PATTERN_DOES_NOT_DIVIDE": "the kernels of the iteration do not divide into its layers",
    "GRAMMAR_MISMATCH": "an invocation's kernels are not the sequence its rows and experts call for",
    "STRAY_KERNEL": "a kernel of the registered kind belongs to no closed invocation",
    "INVALID_TIMESTAMPS": "a kernel of the iteration has no usable time stamps",
    "SCOPES_DISAGREE": "the kernels of one invocation lie in different iterations or layers",
    "TIME_NOT_CAPTURED": "no device time was recorded for this work",
    "ZERO_TOKENS": "the rank was declared to have no tokens",
    "SAMPLER_DIFFERS": "rungs 3 to 5 need one sampler, version and seed rule",
    "OTHER_ROW_CHOSEN": "a measured row of a served input under conditions that were not chosen",
    "COUNTERPART_INCOMPLETE": "a measured row of a served invocation whose other parts are missing",
    "INPUT_NOT_SERVED": "a measured row whose input the capture never served",
    "OUTSIDE_ITERATIONS": "kernels of the kind that lie outside every iteration",
    "NOTHING_CAPTURED": "the capture holds no complete unit to compare",
    "NO_CHECKS": "a set of checks is empty, so it shows nothing and fails",
    "CHECK_MISSING": "a planned check was not made",
    "WORDS_DIFFER": "two runs differ in at least one word of a boundary",
    "TORCH_UNEQUAL": "the words are equal and hold no NaN, but torch.equal says otherwise",
    "INPUT_NOT_REGISTERED": "the input of a run is not the one whose digest was registered",
    "INPUT_CHANGED": "a run left its input other than it was",
    "NOT_FULLY_WRITTEN": "an output still holds words of the poison it was filled with",
    "MUTANT_SURVIVED": "a wrong candidate gives every word of the fixture that has to kill it",
    "MUTANT_MISSING": "a kill is registered for a wrong candidate that does not exist",
    "KILL_NOT_REGISTERED": "no fixture is registered to kill a wrong candidate",
    "KILLER_MISSING": "the fixture that has to kill a wrong candidate is not in the corpus",
    "KILL_DIFFERS": "a wrong candidate is killed at another index or with other words than registered",
    "COVERAGE_SHORT": "the corpus covers less than it has to",
    "DEVICE_LIBRARY_LOADED": "stage 0 of a lane loaded a device library",
    "TREE_DIRTY": "a source of a lane has uncommitted or untracked files",
    "OUTSIDE_CHANGED": "a file outside the registered changes differs from the starting commit",
    "CHECK_FAILED": "a check of stage 0 failed",
    "AUDITS_MISSING": "fewer than two independent audits",
    "FINDING_OPEN": "an audit's finding has no closing commit",
    "CORPUS_INCOMPLETE": "the fixtures or the oracle are not those of the registered corpus",
    "REHEARSAL_FAILED": "a rehearsed campaign ended otherwise than it had to",
    "EXACT_AND_FAST_ENOUGH": "phase a: every word agrees and every registered bound of timing holds",
    "COUNTERS_HOLD": "phase b: every counter rule holds for both matched pairs and for the aggregate",
    "EVIDENCE_DAMAGED": "a file of a run is missing, extra, changed, unreadable or contradicts itself",
    "CHAIN_BROKEN": "observations of a run do not follow one another",
    "CLOCK_WENT_BACK": "an observation of a run is earlier than the one before it",
    "OBSERVATION_MISSING": "a run does not hold what the registration asks it to observe",
    "TIME_INVALID": "a timed arm has no time, or stood at another fixture than its turn",
    "THROTTLED": "a timed arm ran while the device was throttled, which the registration forbids",
    "COUNTER_MISSING": "a profile has no value of a registered metric",
    "PROFILE_INVALID": "a profile is not of the registered kernels, units or zero metrics",
    "IDENTITY_DIFFERS": "device, binaries, sources, arguments or environment are not those of the packet",
    "RUN_ENDED_EARLY": "the process of a run was stopped, or died, before its end",
    "RUNNER_FAILED": "the runner, the device or its driver reported an error",
    "INCUMBENT_NOT_REPEATABLE": "identical calls of the incumbent gave different words",
    "ORACLE_INVALID": "the incumbent does not give the words of the host oracle",
    "LAYOUT_BREACH": "an output has not the registered format or shape",
    "CANDIDATE_NOT_REPEATABLE": "identical calls of the candidate gave different words",
    "LAUNCHES_DIFFER": "an arm made another number of launches than registered",
    "TOO_FEW_WINS": "the candidate won fewer blocks than registered",
    "SAVING_TOO_SMALL": "the median saving is smaller than registered",
    "JOINT_SAVING_TOO_SMALL": "the median savings of all subjects add up to less than registered",
    "COUNTER_RULE_MISSED": "a counter rule does not hold for a pair or for the aggregate",
    "HEAD_NOT_WORSE": "the interval of head's served-weighted time over base's lies inside the margin",
    "HEAD_WORSE": "the interval of head's served-weighted time over base's lies beyond the margin",
    "HEAD_STRADDLES_MARGIN": "the interval of head's served-weighted time over base's contains the margin",
    "HEAD_NOT_REPEATABLE": "identical calls of head gave different words",
    "BASE_NOT_REPEATABLE": "identical calls of base gave different words",
    "BATCH_INVARIANCE_LOST": "head gives a token other words alone than in its batch, and base does not",
    "BEYOND_ERROR_BOUND": "head's error against float64 exceeds the declared bound",
}
"""Every reason code with its meaning; docs/glossary.md repeats the table and a test holds them together."""


def reason(code: str, sentence: str) -> Reason:
    """Build a :class:`Reason`; raises ValueError for a code outside the table."""
    return Reason(code=code, sentence=sentence)
