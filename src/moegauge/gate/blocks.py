"""A-B-B-A blocks: savings, wins, medians and launches, in exact arithmetic.

A block times incumbent, candidate, candidate, incumbent (A1 B1 B2 A2), each arm over the same number of cycles. Its
saving per cycle is (A1 + A2 - B1 - B2) / (2 x cycles); a drift that is linear in time cancels in it. Savings are
fractions of nanoseconds, and no threshold is met or missed by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from moegauge.records.decision import Reason, reason
from moegauge.records.observation import ArmSample, BlockObservation
from moegauge.records.ratio import parse_ratio, ratio_text
from moegauge.records.registration import Joint
from moegauge.records.subject import Subject, Timing
from moegauge.records.verdict import SubjectFigures


@dataclass(frozen=True)
class Savings:
    """What the blocks of one subject came to, per cycle.

    Attributes:
        savings_ns: saving of each block. ratios: saving / incumbent time of each block.
    """

    savings_ns: tuple[Fraction, ...]
    ratios: tuple[Fraction, ...]

    @property
    def num_wins(self) -> int:
        """Blocks with a saving above 0; a saving of 0 is no win."""
        return sum(saving > 0 for saving in self.savings_ns)

    @property
    def median_ns(self) -> Fraction:
        """Median saving."""
        return median(self.savings_ns)

    @property
    def median_ratio(self) -> Fraction:
        """Median of saving / incumbent time."""
        return median(self.ratios)


def block_savings(timing: Timing, blocks: Sequence[BlockObservation]) -> Savings:
    """Savings of blocks whose every arm has an elapsed time above 0."""
    per_block = 2 * timing.cycles_per_arm
    incumbent = [block.a1.elapsed_ns + block.a2.elapsed_ns for block in blocks]
    candidate = [block.b1.elapsed_ns + block.b2.elapsed_ns for block in blocks]
    pairs = list(zip(incumbent, candidate, strict=True))
    return Savings(
        savings_ns=tuple(Fraction(a - b, per_block) for a, b in pairs),
        ratios=tuple(Fraction(a - b, a) for a, b in pairs),
    )


def median(values: Sequence[Fraction]) -> Fraction:
    """The middle value; the mean of the two middle ones of an even number.

    Raises:
        ValueError: of no values.
    """
    if not values:
        raise ValueError("no median of no values")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def invalid_blocks(subject: Subject, blocks: Sequence[BlockObservation], *, throttle: str) -> list[Reason]:
    """Reasons that the blocks of a subject are no evidence: missing, out of turn, without a time, or throttled."""
    timing = subject.timing
    wanted = list(range(timing.num_blocks)) if timing is not None else []
    found: list[Reason] = []
    if [block.block for block in blocks] != wanted:
        found.append(
            reason("OBSERVATION_MISSING", f"{subject.name}: {len(blocks)} blocks; {len(wanted)} are registered.")
        )
    num_fixtures = sum(family.num_fixtures for family in subject.corpus)
    for block in blocks:
        where = f"{subject.name}, block {block.block}"
        if block.first_fixture != block.block * subject.calls_per_cycle % num_fixtures:
            found.append(reason("TIME_INVALID", f"{where}: the rotation stood at fixture {block.first_fixture}."))
        for name, sample in _samples(block):
            if sample.elapsed_ns < 1:
                found.append(reason("TIME_INVALID", f"{where}, {name}: {sample.elapsed_ns} ns is no time."))
            if throttle == "forbidden" and sample.throttle not in {None, "none"}:
                found.append(reason("THROTTLED", f"{where}, {name}: the device ran slower for {sample.throttle}."))
    return found


def timing_failures(subject: Subject, blocks: Sequence[BlockObservation]) -> tuple[SubjectFigures, list[Reason]]:
    """Figures of a timed subject with valid blocks, and every registered bound they miss."""
    timing = subject.timing
    if timing is None:
        return SubjectFigures(subject=subject.name), []
    found = block_savings(timing, blocks)
    launches = {
        arm: [sample.num_launches for block in blocks for name, sample in _samples(block) if name[0] == arm]
        for arm in "ab"
    }
    figures = SubjectFigures(
        subject=subject.name,
        num_wins=found.num_wins,
        num_blocks=len(blocks),
        median_saving_ns=ratio_text(found.median_ns),
        median_saving_ratio=ratio_text(found.median_ratio),
        incumbent_launches=_per_cycle(launches["a"], timing),
        candidate_launches=_per_cycle(launches["b"], timing),
    )
    return figures, [*_launches(subject, timing, launches), *_too_slow(subject, timing, found)]


def _samples(block: BlockObservation) -> tuple[tuple[str, ArmSample], ...]:
    return ("a1", block.a1), ("b1", block.b1), ("b2", block.b2), ("a2", block.a2)


def _per_cycle(launches: Sequence[int], timing: Timing) -> str:
    return ratio_text(Fraction(sum(launches), len(launches) * timing.cycles_per_arm))


def _launches(subject: Subject, timing: Timing, launches: dict[str, list[int]]) -> list[Reason]:
    """Every arm of every block has exactly its registered launches; two wrong ones never make up for each other."""
    found = []
    for arm, title, registered in (("a", "incumbent", subject.incumbent), ("b", "candidate", subject.candidate)):
        wanted = registered.launches_per_cycle * timing.cycles_per_arm
        wrong = [number for number in launches[arm] if number != wanted]
        if wrong:
            found.append(
                reason(
                    "LAUNCHES_DIFFER",
                    f"{subject.name}: {len(wrong)} {title} arms made {wrong[0]} launches in {timing.cycles_per_arm} "
                    f"cycles; {wanted} are registered.",
                )
            )
    return found


def _too_slow(subject: Subject, timing: Timing, found: Savings) -> list[Reason]:
    reasons = []
    if found.num_wins < timing.min_wins:
        reasons.append(
            reason(
                "TOO_FEW_WINS",
                f"{subject.name}: the candidate won {found.num_wins} of {timing.num_blocks} blocks; "
                f"{timing.min_wins} are registered.",
            )
        )
    absolute, relative = timing.min_median_saving_ns, timing.min_median_saving_ratio
    if absolute is not None and found.median_ns < absolute:
        reasons.append(
            reason(
                "SAVING_TOO_SMALL",
                f"{subject.name}: the median saving is {float(found.median_ns):.1f} ns per cycle; at least "
                f"{absolute} ns is registered.",
            )
        )
    if relative is not None and found.median_ratio < parse_ratio(relative):
        reasons.append(
            reason(
                "SAVING_TOO_SMALL",
                f"{subject.name}: the median saving is {float(found.median_ratio):.6f} of the incumbent's time; at "
                f"least {relative} is registered.",
            )
        )
    return reasons


def joint_failures(joint: Joint | None, figures: Sequence[SubjectFigures]) -> list[Reason]:
    """Whether the subjects together reach what is registered, on one device."""
    if joint is None:
        return []
    total = sum((parse_ratio(one.median_saving_ns) for one in figures if one.median_saving_ns), Fraction(0))
    if total >= joint.min_sum_of_median_savings_ns:
        return []
    return [
        reason(
            "JOINT_SAVING_TOO_SMALL",
            f"{', '.join(one.subject for one in figures)}: median savings add up to {float(total):.1f} ns per cycle; "
            f"at least {joint.min_sum_of_median_savings_ns} ns is registered.",
        )
    ]
