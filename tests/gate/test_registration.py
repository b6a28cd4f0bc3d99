"""What a registration refuses to say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lane_builder import REGISTRATION, registration
from moegauge.records.registration import Registration


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("subjects", [], "subjects: at least one"),
        ("stage0__required_checks", [], "required_checks: at least one"),
        ("identities", [], "identities: at least one"),
        ("exclusions", [], "exclusions: at least one"),
        ("contract__predicates", [], "predicates: at least one"),
        ("subjects__0__boundaries", [], "boundaries: at least one"),
        ("subjects__0__corpus", [], "corpus: at least one"),
        ("subjects__0__exactness__num_repeats", 1, "one call repeats nothing"),
        ("subjects__0__exactness__poison_words", [5, 5], "two different words"),
        ("subjects__0__exactness__repeat_fixtures", ["none/0"], "'none/0' is of no registered family"),
        ("subjects__0__timing__min_wins", 32, "32 of 31 blocks can never be reached"),
        ("subjects__0__timing__min_median_saving_ratio", "2%", "a ratio is a decimal"),
        ("subjects__0__incumbent__launches_per_cycle", 0, "at least 1, not 0"),
        ("devices__names", ["card0", "card0"], "names: at least one, each once"),
        ("sources__0__starting_commit", "main", "40 hexadecimal digits"),
        ("code__lane", "my lane", "an entry is package.module:NAME"),
        ("lane", "My Lane", "lower-case letters"),
        ("question", " ", "question: empty"),
        ("contract__platform", "tpu", "Invalid enum value 'tpu'"),
    ],
)
def test_a_registration_that_decides_nothing_or_names_nothing_is_refused(path: str, value: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        registration(**{path: value})


@pytest.mark.parametrize("where", [(), ("contract",), ("subjects", 0), ("subjects", 0, "timing"), ("counters",)])
def test_an_unknown_field_is_refused_at_every_level(where: tuple[str | int, ...]) -> None:
    data = msgspec.to_builtins(msgspec.convert(REGISTRATION, Registration))
    inner = data
    for step in where:
        inner = inner[step]
    inner["tolerance"] = 1
    with pytest.raises(msgspec.ValidationError, match="unknown field `tolerance`"):
        msgspec.convert(data, Registration)


def test_a_joint_bound_over_a_subject_without_timing_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="a sum of savings needs timing of every subject"):
        registration(subjects__0__timing=None, joint={"min_sum_of_median_savings_ns": 1})
