"""Records and their canonical bytes: nothing is lost, nothing is added, and every wrong head has its own error."""

from __future__ import annotations

import json
import types
import typing
from contextlib import suppress
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moegauge import errors
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.records.capture import CaptureRecord
from moegauge.records.comparison import LadderReport, Pair
from moegauge.records.decision import CODES, Reason, Status
from moegauge.records.identity import ModelShape, RankIdentity, Topology
from moegauge.records.measurement import Fact
from moegauge.records.profile import ProfileKey
from moegauge.records.schema import Record, canonical_bytes, check_schema, decode_record

RECORDS = (CaptureRecord, LadderReport)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), (1 << 63) - 1),
    str: TEXT,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that a record may hold."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {types.UnionType, typing.Union}:
        return st.one_of([any_of(one) for one in arguments])
    if origin is tuple:
        each = arguments[:-1] if arguments[-1] is Ellipsis else None
        return st.lists(any_of(each[0]), max_size=2).map(tuple) if each else st.tuples(*map(any_of, arguments))
    if origin is dict:
        return st.dictionaries(TEXT, any_of(arguments[1]), max_size=2)
    if issubclass(kind, StrEnum):
        return st.sampled_from(kind)
    return struct(kind)


@cache
def struct(kind: type[msgspec.Struct], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any record of a type, within what its own checks allow."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: any_of(hints[field.name]) for field in msgspec.structs.fields(kind)}
    if issubclass(kind, Record):
        fields["schema"] = st.just(kind.tag())
    return st.builds(kind, **(fields | OVERRIDES.get(kind, dict)()))


def positive() -> st.SearchStrategy[int]:
    return st.integers(8, 1 << 40)


OVERRIDES: dict[type[msgspec.Struct], Any] = {
    ModelShape: lambda: {
        "hidden_size": positive(),
        "intermediate_size": positive(),
        "num_experts": positive(),
        "top_k": st.integers(1, 8),
    },
    Reason: lambda: {"code": st.sampled_from(sorted(CODES))},
    Fact: lambda: {"source": st.sampled_from(["trace", "engine", "declared"])},
    RankIdentity: lambda: {"recorded": st.just(True), "why_missing": st.none()},
    Topology: lambda: {
        "world_size": st.just(1),
        "routed_scope": st.sampled_from(["global", "local"]),
        "ranks": st.tuples(struct(RankIdentity).map(lambda rank: msgspec.structs.replace(rank, rank=0))),
    },
    Pair: lambda: {
        "left_ns": PLAIN[int],
        "right_ns": PLAIN[int],
        "diff_ns": PLAIN[int],
        "interval_ratio": st.tuples(PLAIN[float], PLAIN[float]),
    },
}


@pytest.mark.parametrize("kind", [*RECORDS, ProfileKey, Pair])
def test_a_record_survives_its_canonical_bytes(kind: type[msgspec.Struct]) -> None:
    @given(struct(kind))
    def holds(record: msgspec.Struct) -> None:
        data = canonical_bytes(record)
        again = msgspec.json.decode(data, type=kind)
        assert again == record
        assert canonical_bytes(again) == data

    holds()


@pytest.mark.parametrize("kind", RECORDS)
def test_the_bytes_do_not_depend_on_how_the_json_was_laid_out(kind: type[Record]) -> None:
    @given(struct(kind), st.sampled_from([None, 0, 1, 7]))
    def holds(record: Record, indent: int | None) -> None:
        data = canonical_bytes(record)
        other = json.dumps(json.loads(data), indent=indent, sort_keys=False).encode()
        assert canonical_bytes(decode_record(other, kind, where="here")) == data

    holds()


def test_canonical_bytes_are_sorted_indented_utf8_with_one_newline_at_the_end() -> None:
    assert canonical_bytes({"b": [1, 0.5, None], "a": "µ→"}) == (
        '{\n  "a": "µ→",\n  "b": [\n    1,\n    0.5,\n    null\n  ]\n}\n'.encode()
    )


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_integer_ns_keep_every_digit(ns: int) -> None:
    assert canonical_bytes({"ns": ns}) == f'{{\n  "ns": {ns}\n}}\n'.encode()


CASES = [
    (b"{}", errors.SchemaMissing, "no schema"),
    (b'{"schema": null, "text": "x"}', errors.SchemaMissing, "no schema"),
    (b'{"schema": "moegauge/KIND/v0"}', errors.SchemaOlder, "moegauge/KIND/v0"),
    (b'{"schema": "moegauge/KIND/v2"}', errors.SchemaNewer, "moegauge/KIND/v2"),
    (b'{"schema": "moegauge/KIND/v999999"}', errors.SchemaNewer, "moegauge/KIND/v999999"),
    (b'{"schema": "moegauge/other/v1"}', errors.MalformedFile, "moegauge/other/v1"),
    (b'{"schema": "moegauge/KIND/v01"}', errors.MalformedFile, "moegauge/KIND/v01"),
    (b'{"schema": "moegauge/KIND/v1\\n"}', errors.MalformedFile, "moegauge/KIND/v1"),
    (b'{"schema": "KIND"}', errors.MalformedFile, '"KIND"'),
    (b'{"schema": 1}', errors.MalformedFile, "got `int`"),
    (b'{"schema": "moegauge/KIND/v1"}', errors.MalformedFile, "missing required field"),
    (b"[]", errors.MalformedFile, "got `array`"),
    (b"", errors.MalformedFile, r"\(0 bytes\)"),
    (b"\xff\xfe", errors.MalformedFile, r"\(2 bytes\)"),
    (b'{"schema": "moegauge/KIND/v1", "deep": ' + b"[" * 200_000, errors.MalformedFile, "recursion|Recursion"),
]


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize(("data", "error", "found"), CASES, ids=[str(data[:40]) for data, _, _ in CASES])
def test_each_wrong_head_has_its_own_error_with_where_expected_found_and_next(
    kind: type[Record], data: bytes, error: type[errors.EvidenceError], found: str
) -> None:
    with pytest.raises(errors.EvidenceError, match=found.replace("KIND", kind.kind)) as caught:
        decode_record(data.replace(b"KIND", kind.kind.encode()), kind, where="some.json")
    assert type(caught.value) is error
    assert caught.value.where == "some.json"
    assert f"moegauge/{kind.kind}/v1" in caught.value.expected
    assert caught.value.remedy


def test_older_newer_and_missing_are_three_codes() -> None:
    assert [one.code for one in (errors.SchemaOlder, errors.SchemaNewer, errors.SchemaMissing)] == [
        "SCHEMA_OLDER",
        "SCHEMA_NEWER",
        "SCHEMA_MISSING",
    ]


def test_the_schema_this_release_writes_is_accepted() -> None:
    check_schema("moegauge/capture/v1", CaptureRecord, where="here")
    check_schema("moegauge/ladder/v1", LadderReport, where="here")


def structs_in(kind: Any) -> set[type[msgspec.Struct]]:
    """Every struct a type is made of, itself included."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        inside = (structs_in(hints[field.name]) for field in msgspec.structs.fields(kind))
        return {kind}.union(*inside)
    return set().union(*map(structs_in, typing.get_args(kind)))


@pytest.mark.parametrize("kind", [*RECORDS, ProfileKey])
def test_an_unknown_field_is_refused_at_every_depth(kind: type[msgspec.Struct]) -> None:
    found = structs_in(kind)
    assert len(found) > 3
    assert [one.__name__ for one in found if not one.__struct_config__.forbid_unknown_fields] == []
    assert [one.__name__ for one in found if not one.__struct_config__.frozen] == []


def test_a_record_with_an_unknown_field_is_malformed(capture: CaptureFolder) -> None:
    data = (capture.path / "capture.json").read_bytes()
    for place in (b'{\n  "conditions"', b'{\n    "busy_ns"', b'{\n    "backend"'):
        assert place in data
        changed = data.replace(place, place.replace(b"{", b'{"also": 1,'), 1)
        with pytest.raises(errors.MalformedFile, match="unknown field `also`"):
            decode_record(changed, CaptureRecord, where="here")


def test_a_record_cut_anywhere_is_refused_as_malformed(capture: CaptureFolder) -> None:
    data = (capture.path / "capture.json").read_bytes()
    assert decode_record(data, CaptureRecord, where="here") == capture.record
    for length in range(len(data) - 2):
        with pytest.raises(errors.MalformedFile, match="here"):
            decode_record(data[:length], CaptureRecord, where="here")


@pytest.mark.parametrize("kind", RECORDS)
def test_any_bytes_at_all_are_read_or_refused_and_never_raise_anything_else(kind: type[Record]) -> None:
    @given(struct(kind), st.binary(max_size=40), st.integers(0, 4000))
    def holds(record: Record, junk: bytes, at: int) -> None:
        data = canonical_bytes(record)
        for candidate in (junk, data[:at] + junk + data[at + len(junk) :]):
            with suppress(errors.EvidenceError):
                decode_record(candidate, kind, where="here")

    holds()


def test_a_judged_pair_needs_both_times_and_an_interval() -> None:
    @given(struct(Pair), st.sampled_from([Status.MATCH, Status.DIVERGED]), st.data())
    def holds(pair: Pair, status: Status, data: st.DataObject) -> None:
        whole = msgspec.structs.asdict(pair) | {"status": status}
        Pair(**whole)
        for name in ("interval_ratio", "left_ns", "right_ns"):
            with pytest.raises(ValueError, match="needs both times and an interval"):
                Pair(**(whole | {name: None}))

    holds()


def test_a_reason_code_outside_the_table_cannot_be_built_or_read() -> None:
    with pytest.raises(ValueError, match="'MADE_UP' is not in the table"):
        Reason(code="MADE_UP", sentence="x")
    with pytest.raises(msgspec.ValidationError, match="MADE_UP"):
        msgspec.json.decode(b'{"code": "MADE_UP", "sentence": "x"}', type=Reason)
