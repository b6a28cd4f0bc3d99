"""Requests to serve: each wrong line is named, and drawing them again draws the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from moegauge import errors
from moegauge.jobs.workload import Mix, drawn_requests, encoded, read_requests
from moegauge.records.serving_run import ServedRequest

FORMS = '{"max_tokens": N, "prompt_token_ids": [..]} or {"max_tokens": N, "prompt_tokens": N}'
MIX = Mix(num_requests=20, seed=3, prompt_lengths=(4, 9), output_lengths=(2, 5))


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "w.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path, *, seed: int = 0) -> list[ServedRequest]:
    return read_requests(path, seed=seed, vocabulary=100)


def test_token_ids_are_taken_and_lengths_are_drawn(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{"max_tokens": 3, "prompt_token_ids": [0, 99]}', "", '{"prompt_tokens": 5, "max_tokens": 1}'
    )
    first, second = read(path)
    assert first == ServedRequest(prompt_token_ids=(0, 99), max_tokens=3)
    assert (len(second.prompt_token_ids), second.max_tokens) == (5, 1)
    assert all(10 <= token < 100 for token in second.prompt_token_ids)


def test_a_drawn_prompt_depends_on_the_seed_alone(tmp_path: Path) -> None:
    path = written(tmp_path, '{"max_tokens": 1, "prompt_tokens": 8}')
    assert read(path) == read(path)
    assert read(path) != read(path, seed=1)


@pytest.mark.parametrize(
    ("line", "expected", "found"),
    [
        ("{", FORMS, "Input data was truncated"),
        ("[]", FORMS, "Expected `object`, got `array`"),
        ('{"prompt_tokens": 4}', FORMS, "Object missing required field `max_tokens`"),
        (
            '{"max_tokens": 1, "prompt_tokens": 4, "temperature": 0}', FORMS,
            "Object contains unknown field `temperature`",
        ),
        ('{"max_tokens": "1", "prompt_tokens": 4}', FORMS, "Expected `int`, got `str` - at `$.max_tokens`"),
        ('{"max_tokens": 1}', FORMS, '{"max_tokens": 1}'),
        (
            '{"max_tokens": 1, "prompt_tokens": 1, "prompt_token_ids": [1]}', FORMS,
            '{"max_tokens": 1, "prompt_tokens": 1, "prompt_token_ids": [1]}',
        ),
        ('{"max_tokens": 0, "prompt_tokens": 4}', FORMS, '{"max_tokens": 0, "prompt_tokens": 4}'),
        ('{"max_tokens": 1048577, "prompt_tokens": 4}', FORMS, '{"max_tokens": 1048577, "prompt_tokens": 4}'),
        ('{"max_tokens": 1, "prompt_tokens": 0}', "1 to 1048576 tokens", "0"),
        ('{"max_tokens": 1, "prompt_tokens": 1048577}', "1 to 1048576 tokens", "1048577"),
        ('{"max_tokens": 1, "prompt_token_ids": []}', "token ids in 0..99", "none"),
        ('{"max_tokens": 1, "prompt_token_ids": [5, 100]}', "token ids in 0..99", "5 to 100"),
        ('{"max_tokens": 1, "prompt_token_ids": [-1, 7]}', "token ids in 0..99", "-1 to 7"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(tmp_path: Path, line: str, expected: str, found: str) -> None:
    path = written(tmp_path, '{"max_tokens": 1, "prompt_tokens": 4}', "", line)
    with pytest.raises(errors.MalformedFile) as caught:
        read(path)
    assert (caught.value.where, caught.value.expected) == (f"{path}, line 3", expected)
    assert caught.value.found == found


@pytest.mark.parametrize("data", [b'{"max_tokens": 1, "prompt_tokens": "\xff"}', b"\xff\xfe", b'{"\xff": 1}'])
def test_a_line_that_is_no_utf8_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(data)
    with pytest.raises(errors.MalformedFile) as caught:
        read(path)
    assert caught.value.where == f"{path}, line 1"


@pytest.mark.parametrize("lines", [(), ("", "  ")])
def test_a_file_without_requests_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(errors.EvidenceError):
        read(written(tmp_path, *lines))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.MissingFile):
        read(tmp_path / "none.jsonl")


def test_a_mix_is_the_same_again_and_another_with_another_seed() -> None:
    first = drawn_requests(MIX, vocabulary=100)
    assert first == drawn_requests(MIX, vocabulary=100)
    other = Mix(num_requests=20, seed=4, prompt_lengths=(4, 9), output_lengths=(2, 5))
    assert first != drawn_requests(other, vocabulary=100)


def test_a_mix_has_the_lengths_it_was_asked_for() -> None:
    found = drawn_requests(MIX, vocabulary=100)
    assert len(found) == 20
    assert {len(one.prompt_token_ids) for one in found} == {4, 9}
    assert {one.max_tokens for one in found} == {2, 5}
    assert all(10 <= token < 100 for one in found for token in one.prompt_token_ids)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_requests": 0}, {"num_requests": 1 << 21}, {"prompt_lengths": ()}, {"output_lengths": ()},
        {"prompt_lengths": (4, 0)}, {"output_lengths": (-1,)},
    ],
    ids=str,
)  # fmt: skip
def test_a_mix_that_makes_no_sense_is_misuse(changes: dict[str, object]) -> None:
    fields = {"num_requests": 2, "seed": 0, "prompt_lengths": (4,), "output_lengths": (2,)} | changes
    with pytest.raises(errors.MisuseError) as caught:
        drawn_requests(Mix(**fields), vocabulary=100)  # type: ignore[arg-type]
    assert caught.value.expected == "requests, prompt and output lengths from 1 to 1048576"


@pytest.mark.parametrize("vocabulary", [1, 10])
def test_a_vocabulary_too_small_to_draw_from_is_refused(vocabulary: int) -> None:
    with pytest.raises(errors.MisuseError):
        drawn_requests(MIX, vocabulary=vocabulary)


def test_encoded_requests_are_a_line_each_and_read_back(tmp_path: Path) -> None:
    drawn = drawn_requests(MIX, vocabulary=100)
    path = tmp_path / "w.jsonl"
    path.write_bytes(encoded(drawn))
    assert read(path) == drawn
    lines = path.read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=ServedRequest) for line in lines] == drawn
