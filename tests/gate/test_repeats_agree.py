"""A candidate that repeats, and repeats other words than the incumbent, fails."""

from __future__ import annotations

from lane_builder import LaneBuilder
from moegauge.records.observation import RepeatObservation


def test_a_candidate_that_repeats_wrong_words_fails() -> None:
    lane = LaneBuilder().to_authorized()
    found = [
        (kind, fields | {"digests": {"other": 4}})
        if kind is RepeatObservation and fields["arm"] == "candidate"
        else (kind, fields)
        for kind, fields in lane.observations()
    ]
    device = lane.gate.judge(lane.run(found)).devices[0]
    assert (str(device.status), device.reasons[0].sentence) == (
        "COMPONENT_FAILED",
        "scale-add, random/0: the candidate repeats other words than the incumbent.",
    )
