"""The host half of the lane on each platform: that of every platform, with the guards of the platform's contract."""

from collections.abc import Iterable, Mapping

from moegauge.gate.ports import Words
from moegauge.lanes.laguna_m8.contract_cases import check_contract
from moegauge.lanes.laguna_m8.facts import Platform
from moegauge.lanes.laguna_m8.fixture import FixtureSpec
from moegauge.lanes.laguna_m8.host import LagunaM8
from moegauge.lanes.laguna_m8.sequence import FINAL
from moegauge.numerics.words import UInt32Array
from moegauge.records.lane import CheckResult

DIAGNOSTIC = "diagnostic"
"""Final words of the diagnostic build, which has to give what the timed candidate gives."""


class PlatformLane(LagunaM8):
    """What ``code.lane`` of a platform's registration names.

    Boundaries: those of LagunaM8, and ``diagnostic``, whose literal words are the final ones.
    """

    def __init__(self, platform: Platform, specs: Iterable[FixtureSpec] | None = None) -> None:
        super().__init__(specs)
        self.platform = platform

    def checks(self) -> Iterable[CheckResult]:
        """Every fixture as registered, and the contract against every corruption of one field."""
        yield from super().checks()
        yield check_contract(self.platform)

    def oracle(self, subject: str, fixture: str) -> Mapping[str, Words]:
        """The literal words at every boundary."""
        words = super().oracle(subject, fixture)
        return {**words, DIAGNOSTIC: words[FINAL]}

    def before_rounding(self, subject: str, fixture: str) -> Mapping[str, UInt32Array]:
        """The FP32 words that were rounded at every boundary."""
        before = super().before_rounding(subject, fixture)
        return {**before, DIAGNOSTIC: before[FINAL]}


CUDA = PlatformLane("cuda")
XPU = PlatformLane("xpu")
CPU = PlatformLane("cpu")
