"""Specs and shape flags that make no sense: exit status 2, one message that names the place, and no database."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cases.literal_bundle import moegauge
from moegauge.adapters.runners.work import ModelSpec
from moegauge.evidence.capture_folder import CaptureFolder

SPEC: dict[str, Any] = {
    "schema": "moegauge/profile-spec/v1",
    "model": {"hidden_size": 16, "intermediate_size": 8, "num_experts": 4, "top_k": 2},
    "numeric_format": "float32",
    "num_layers": 2,
    "launch_mode": "eager",
    "tp_size": 1,
    "ep_size": 1,
    "dp_size": 1,
    "num_local_experts": 4,
    "expert_map": None,
    "inputs": [
        {"type": "given_ids", "topk_ids": [[0, 1], [2, 3]]},
        {"type": "given_popularity", "popularity": [3, 2, 2, 1], "rows": 4, "sampler": "counts_exact", "seed": 0},
    ],
}
IDS, POPULARITY = 0, 1

Change = Callable[[dict[str, Any]], object]


def fields(**values: object) -> Change:
    return lambda spec: spec.update(values)


def model(**values: object) -> Change:
    return lambda spec: spec["model"].update(values)


def given(index: int, **values: object) -> Change:
    return lambda spec: spec["inputs"][index].update(values)


@dataclass(frozen=True)
class Desk:
    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def path(self) -> Path:
        return self.folder / "spec.json"

    def write(self, change: Change) -> None:
        spec = json.loads(json.dumps(SPEC))
        change(spec)
        self.path.write_text(json.dumps(spec))

    def refused(self, code: str, *arguments: object, verb: str = "run") -> dict[str, str]:
        """The error of a refused call that wrote nothing."""
        before = sorted(path.name for path in self.folder.iterdir())
        db = self.folder / "profile.db"
        state = ("--cache-state", "warm", "--passes", 1) if verb == "run" else ()
        runner = () if "--runner" in arguments else ("--runner", "torch_moe")
        outcome = moegauge(self.capsys, "profile", verb, "--db", db, *runner, *state, *arguments, "--json")
        assert outcome.status == 2, outcome
        assert "Traceback" not in outcome.err
        error: dict[str, str] = outcome.json["error"]
        assert error["code"] == code, error
        assert all(error.values())
        assert sorted(path.name for path in self.folder.iterdir()) == before
        return error

    def refused_spec(self, code: str, change: Change) -> dict[str, str]:
        self.write(change)
        error = self.refused(code, "--spec", self.path)
        assert str(self.path) in error["where"]
        return error


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    (tmp_path / "desk").mkdir()
    return Desk(tmp_path / "desk", capsys)


# The file


def test_a_spec_that_is_not_there_is_named(desk: Desk) -> None:
    assert desk.refused("MISSING_FILE", "--spec", desk.path)["where"] == str(desk.path)


def test_an_empty_spec_is_named(desk: Desk) -> None:
    desk.path.write_text("")
    assert desk.refused("MISSING_FILE", "--spec", desk.path)["found"] == "0 bytes"


def test_a_folder_is_no_spec(desk: Desk) -> None:
    desk.refused("MISSING_FILE", "--spec", desk.folder)


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '"spec"', "\x00", "{}}", "[" * 100_000], ids=lambda value: value[:6]
)
def test_what_is_no_json_object_is_malformed(desk: Desk, text: str) -> None:
    desk.path.write_text(text)
    assert desk.refused("MALFORMED_FILE", "--spec", desk.path)["where"] == str(desk.path)


def test_text_that_is_not_utf_8_is_malformed(desk: Desk) -> None:
    desk.path.write_bytes(json.dumps(SPEC).encode().replace(b"float32", b"\xff\xfe"))
    desk.refused("MALFORMED_FILE", "--spec", desk.path)


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ("moegauge/profile-spec/v0", "SCHEMA_OLDER"),
        ("moegauge/profile-spec/v2", "SCHEMA_NEWER"),
        ("moegauge/capture/v1", "MALFORMED_FILE"),
        ("profile-spec", "MALFORMED_FILE"),
    ],
)
def test_another_schema_is_refused(desk: Desk, schema: str, code: str) -> None:
    assert schema in desk.refused_spec(code, fields(schema=schema))["found"]


def test_a_spec_without_a_schema_is_refused(desk: Desk) -> None:
    desk.refused_spec("SCHEMA_MISSING", lambda spec: spec.pop("schema"))


@pytest.mark.parametrize("name", [name for name in SPEC if name != "schema"])
def test_a_missing_field_is_refused_where_null_is_allowed_too(desk: Desk, name: str) -> None:
    assert f"`{name}`" in desk.refused_spec("MALFORMED_FILE", lambda spec: spec.pop(name))["found"]


@pytest.mark.parametrize("name", list(SPEC["model"]))
def test_a_missing_dimension_is_refused(desk: Desk, name: str) -> None:
    assert f"`{name}`" in desk.refused_spec("MALFORMED_FILE", lambda spec: spec["model"].pop(name))["found"]


@pytest.mark.parametrize(
    ("index", "name"), [(index, name) for index in (IDS, POPULARITY) for name in SPEC["inputs"][index]]
)
def test_a_missing_field_of_an_input_is_refused(desk: Desk, index: int, name: str) -> None:
    assert f"`{name}`" in desk.refused_spec("MALFORMED_FILE", lambda spec: spec["inputs"][index].pop(name))["found"]


@pytest.mark.parametrize(
    "change",
    [
        fields(kernel_kind="torch_moe"),
        model(num_shared_experts=1),
        given(IDS, topk_weights=[[0.5, 0.5], [0.5, 0.5]]),
        given(IDS, rows=2),
        given(POPULARITY, layer=0),
    ],
    ids=["kernel_kind", "num_shared_experts", "topk_weights", "rows of ids", "layer"],
)
def test_an_unknown_field_is_refused(desk: Desk, change: Change) -> None:
    assert "unknown field" in desk.refused_spec("MALFORMED_FILE", change)["found"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (model(hidden_size="16"), "$.model.hidden_size"),
        (model(hidden_size=16.0), "$.model.hidden_size"),
        (model(top_k=True), "$.model.top_k"),
        (fields(model=[16, 8, 4, 2]), "$.model"),
        (fields(numeric_format=32), "$.numeric_format"),
        (fields(num_layers="2"), "$.num_layers"),
        (fields(num_layers=None), "$.num_layers"),
        (fields(num_layers=[0, 1]), "$.num_layers"),
        (fields(launch_mode="as-served"), "$.launch_mode"),
        (fields(launch_mode=None), "$.launch_mode"),
        (fields(tp_size="1"), "$.tp_size"),
        (fields(dp_size=1.5), "$.dp_size"),
        (fields(num_local_experts=None), "$.num_local_experts"),
        (fields(expert_map=[0, 1, None, -1]), "$.expert_map[2]"),
        (fields(inputs={}), "$.inputs"),
        (fields(inputs=[[0, 1]]), "$.inputs[0]"),
        (given(IDS, type="exact"), "$.inputs[0].type"),
        (given(IDS, topk_ids=[0, 1]), "$.inputs[0].topk_ids[0]"),
        (given(IDS, topk_ids=[[0, 1.0]]), "$.inputs[0].topk_ids[0][1]"),
        (given(IDS, topk_ids=[[0, None]]), "$.inputs[0].topk_ids[0][1]"),
        (given(POPULARITY, popularity="zipf"), "$.inputs[1].popularity"),
        (given(POPULARITY, popularity=[0.4, 0.3, 0.2, 0.1]), "$.inputs[1].popularity[0]"),
        (given(POPULARITY, popularity=None), "$.inputs[1].popularity"),
        (given(POPULARITY, rows="4"), "$.inputs[1].rows"),
        (given(POPULARITY, rows=[4, 8]), "$.inputs[1].rows"),
        (given(POPULARITY, sampler=None), "$.inputs[1].sampler"),
        (given(POPULARITY, seed=0.5), "$.inputs[1].seed"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(desk: Desk, change: Change, place: str) -> None:
    assert f"`{place}`" in desk.refused_spec("MALFORMED_FILE", change)["found"]


# What it says


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (model(hidden_size=0), "hidden_size must be at least 1, not 0"),
        (model(intermediate_size=-8), "intermediate_size must be at least 1, not -8"),
        (model(top_k=5), "top_k 5 exceeds num_experts 4"),
    ],
)
def test_dimensions_that_no_model_has_are_refused(desk: Desk, change: Change, found: str) -> None:
    assert found in desk.refused_spec("MALFORMED_FILE", change)["found"]


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        (fields(numeric_format="fp8"), "bfloat16 or float32", "fp8"),
        (fields(num_layers=0), "at least 1 layer", "0"),
        (fields(num_layers=-1), "at least 1 layer", "-1"),
        (fields(tp_size=0), "tp_size 1, or null", "0"),
        (fields(tp_size=2), "tp_size 1, or null", "2"),
        (fields(dp_size=0), "dp_size of at least 1, or null", "0"),
        (fields(ep_size=-2), "ep_size of at least 1, or null", "-2"),
        (fields(num_local_experts=3), "num_local_experts 4", "3"),
        (fields(num_local_experts=3, expert_map=[0, 1, -1, -1], ep_size=2), "num_local_experts 2", "3"),
        (fields(num_local_experts=0, expert_map=[-1] * 4, ep_size=2), "at least one expert", "none"),
        (fields(expert_map=[0, 1, 2]), "expert_map [4]", "[3]"),
        (fields(expert_map=[0, 2, -1, -1]), "local indices 0..n-1 once each", "[0, 2, -1, -1]"),
        (fields(expert_map=[0, 0, -1, -1]), "local indices 0..n-1 once each", "[0, 0, -1, -1]"),
        (fields(expert_map=[0, 1, 2, -2]), "local indices in -1..3", "-2"),
        (fields(expert_map=[0, 1, 2, 2**80]), "local indices in -1..3", "1208925819614629174706176"),
        (fields(expert_map=[0, 1, -1, -1], num_local_experts=2), "ep_size above 1 or null", "1"),
        (fields(ep_size=2), "ep_size 1 or null", "2"),
        (fields(inputs=[]), "at least one input", "none"),
    ],
)
def test_a_rank_that_contradicts_itself_is_refused(desk: Desk, change: Change, expected: str, found: str) -> None:
    error = desk.refused_spec("MISUSE", change)
    assert expected in error["expected"]
    assert found in error["found"]


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        (given(IDS, topk_ids=[]), "at least one row", "none"),
        (given(IDS, topk_ids=[[]]), "2 ids in every row", "0 in row 0"),
        (given(IDS, topk_ids=[[0, 1], [2]]), "2 ids in every row", "1 in row 1"),
        (given(IDS, topk_ids=[[0, 1, 2]]), "2 ids in every row", "3 in row 0"),
        (given(IDS, topk_ids=[[0, 1], [2, 4]]), "ids in -1..3", "id 4 at row 1, slot 1"),
        (given(IDS, topk_ids=[[0, -2]]), "ids in -1..3", "id -2 at row 0, slot 1"),
        (given(IDS, topk_ids=[[0, 2**32]]), "ids in -1..3", "id 4294967296 at row 0, slot 1"),
        (given(IDS, topk_ids=[[2**70, 0]]), "ids in -1..3", "id 1180591620717411303424 at row 0, slot 0"),
        (given(IDS, topk_ids=[[0, 1], [3, 3]]), "distinct experts in a token", "id 3 twice in row 1"),
    ],
)
def test_ids_that_no_router_gives_are_refused(desk: Desk, change: Change, expected: str, found: str) -> None:
    error = desk.refused_spec("MISUSE", change)
    assert error["where"] == f"{desk.path}, input 0"
    assert expected in error["expected"]
    assert found in error["found"]


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        (given(POPULARITY, rows=0), "at least one row", "0"),
        (given(POPULARITY, rows=-4), "at least one row", "-4"),
        (given(POPULARITY, popularity=[]), "4 counts", "0 counts"),
        (given(POPULARITY, popularity=[3, 2, 2]), "4 counts", "3 counts"),
        (given(POPULARITY, popularity=[3, 2, 2, -1]), "counts >= 0", "-1 for expert 3"),
        (given(POPULARITY, popularity=[3, 2, 2, 2**63]), "counts below 2**53", "9223372036854775808 for expert 3"),
        (given(POPULARITY, popularity=[0, 0, 0, 0]), "counts with a positive sum", "a sum of 0"),
        (given(POPULARITY, popularity=[0, 0, 7, 0]), "at least top_k = 2 experts with a count", "1 experts"),
        (given(POPULARITY, popularity=[5, 1, 1, 1]), "counts of at most 4 (the rows)", "count 5 for expert 0"),
        (given(POPULARITY, sampler="dice"), "counts_exact | systematic", "dice"),
        (given(POPULARITY, seed=-1), "0..2**64-1", "seed -1"),
        (given(POPULARITY, seed=2**64), "0..2**64-1", "seed 18446744073709551616"),
    ],
)
def test_a_popularity_that_cannot_be_drawn_from_is_refused(
    desk: Desk, change: Change, expected: str, found: str
) -> None:
    error = desk.refused_spec("MISUSE", change)
    assert error["where"] == f"{desk.path}, input 1"
    assert expected in error["expected"]
    assert found in error["found"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (model(hidden_size=2**31), "hidden_size: 2147483648"),
        (model(intermediate_size=2**40), "intermediate_size: 1099511627776"),
        (model(hidden_size=10**30), "hidden_size: 1000000000000000000000000000000"),
        (given(POPULARITY, rows=2**20 + 1), "rows in one input: 1048577"),
        (given(POPULARITY, rows=10**30), "rows in one input: 1000000000000000000000000000000"),
        (fields(num_layers=2**19 + 1), "invocations: 1048578"),
        (fields(num_layers=10**12), "invocations: 2000000000000"),
        (lambda spec: (spec.update(num_layers=128), given(POPULARITY, rows=2**20)(spec)), "layers): 268435968"),
    ],
)
def test_sizes_beyond_the_bounds_are_refused_before_anything_is_allocated(
    desk: Desk, change: Change, found: str
) -> None:
    assert found in desk.refused_spec("LIMIT_EXCEEDED", change)["found"]


def test_weights_that_do_not_fit_into_memory_are_refused_before_they_are_allocated(desk: Desk) -> None:
    desk.write(model(hidden_size=2**20, intermediate_size=3 * 2**16))  # 4 experts x 3 matrices x 4 bytes
    error = desk.refused("LIMIT_EXCEEDED", "--spec", desk.path)
    assert error["where"] == "runner torch_moe"
    assert error["found"].startswith("9895604649984 bytes of weights on a host with ")


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), MemoryError("no room")], ids=["device", "host"])
def test_a_device_without_room_for_the_weights_is_a_refusal(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(model: ModelSpec) -> None:
        raise error

    monkeypatch.setattr("moegauge.adapters.runners.torch_moe.TorchMoeRunner", full)
    assert desk.refused("LIMIT_EXCEEDED", *flags())["found"] == str(error)


# Where specs come from


FLAGS: dict[str, object] = {
    "--hidden-size": 16, "--intermediate-size": 8, "--experts": 4, "--top-k": 2, "--dtype": "float32", "--rows": "4",
    "--popularity": "uniform", "--launch-mode": "eager",
}  # fmt: skip


def flags(*without: str, **change: object) -> list[object]:
    found = FLAGS | {f"--{name.replace('_', '-')}": value for name, value in change.items()}
    return [word for name, value in found.items() if name not in without for word in (name, value)]


SOURCES = "exactly one of --capture, --spec, or the shape flags"


@pytest.mark.parametrize("verb", ["run", "query", "count-missing"])
def test_nothing_to_measure_is_refused(desk: Desk, verb: str) -> None:
    error = desk.refused("MISUSE", verb=verb)
    assert SOURCES in error["expected"]
    assert error["found"] == "none of them"


@pytest.mark.parametrize("verb", ["run", "query", "count-missing"])
def test_a_capture_beside_a_spec_is_refused(desk: Desk, capture: CaptureFolder, verb: str) -> None:
    desk.write(fields())
    error = desk.refused("MISUSE", "--capture", capture.path, "--spec", desk.path, verb=verb)
    assert SOURCES in error["expected"]
    assert error["found"] == "--capture, --spec"


def test_a_capture_beside_a_shape_flag_is_refused(desk: Desk, capture: CaptureFolder) -> None:
    assert desk.refused("MISUSE", "--capture", capture.path, "--rows", "8")["found"] == "--capture, --rows"


def test_a_spec_beside_shape_flags_is_refused(desk: Desk) -> None:
    desk.write(fields())
    error = desk.refused("MISUSE", "--spec", desk.path, "--top-k", 2, "--dtype", "float32")
    assert error["found"] == "--spec, --top-k, --dtype"


@pytest.mark.parametrize("name", [name for name in FLAGS if name != "--launch-mode"])
def test_a_shape_flag_that_is_left_out_is_named(desk: Desk, name: str) -> None:
    error = desk.refused("MISUSE", *flags(name))
    assert error["found"] == f"no {name}"


def test_flags_without_a_launch_mode_are_refused_since_nothing_says_it(desk: Desk) -> None:
    error = desk.refused("MISUSE", *flags("--launch-mode"))
    assert (error["where"], error["found"]) == ("--launch-mode", "as-served")


@pytest.mark.parametrize(("option", "value"), [("--input", "exact"), ("--padding", "drawn"), ("--padding", "captured")])
@pytest.mark.parametrize("how", ["spec", "flags"])
def test_an_option_that_is_about_captures_is_refused_without_one(desk: Desk, how: str, option: str, value: str) -> None:
    desk.write(fields())
    source = ["--spec", desk.path] if how == "spec" else flags()
    error = desk.refused("MISUSE", *source, option, value)
    assert (error["where"], error["found"]) == (option, value)


@pytest.mark.parametrize(("option", "value"), [("--sampler", "uniform"), ("--seed", 0)])
def test_an_option_that_a_spec_says_itself_is_refused_beside_it(desk: Desk, option: str, value: object) -> None:
    desk.write(fields())
    error = desk.refused("MISUSE", "--spec", desk.path, option, value)
    assert (error["where"], error["found"]) == (option, str(value))


@pytest.mark.parametrize(
    ("change", "where", "found"),
    [
        ({"rows": "0"}, "--rows", "0"),
        ({"rows": "8-4"}, "--rows", "8-4"),
        ({"rows": "8,"}, "--rows", "8,"),
        ({"rows": "eight"}, "--rows", "eight"),
        ({"rows": "1000000"}, "--rows", "1000000"),
        ({"top_k": 5}, "shape flags", "top_k 5 exceeds num_experts 4"),
        ({"hidden_size": 0}, "shape flags", "hidden_size must be at least 1, not 0"),
        ({"dtype": "float16"}, "shape flags", "float16"),
        ({"launch_mode": "fast"}, "--launch-mode", "fast"),
        ({"sampler": "dice"}, "shape flags, input 0", "dice"),
        ({"ranks": "1"}, "--ranks", "[1]"),
        ({"iterations": "1"}, "shape flags", "none of the iterations"),
        ({"layers": "1"}, "shape flags", "none of the iterations"),
        ({"weight_sets": 2}, "--weight-sets", "2"),
        ({"runner": "none_moe"}, "--runner", "none_moe"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(map(str, next(iter(value.items())))),
)
def test_a_flag_that_makes_no_sense_is_refused(desk: Desk, change: dict[str, object], where: str, found: str) -> None:
    error = desk.refused("MISUSE", *flags(**change))
    assert error["where"] == where
    assert found in error["found"]


def test_a_negative_seed_is_refused(desk: Desk) -> None:
    assert "seed -1" in desk.refused("MISUSE", *flags(), "--seed=-1")["found"]


def test_more_experts_than_a_sampler_can_draw_are_refused(desk: Desk) -> None:
    error = desk.refused("MISUSE", *flags(experts=4096))
    assert (error["expected"], error["found"]) == ("at most 4095 experts", "4096 experts")


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        (None, "MISSING_FILE", "nothing"),
        ("", "MISSING_FILE", "0 bytes"),
        ("1, 2, 3, 4", "MALFORMED_FILE", "Expected `array`, got `int`"),
        ("{}", "MALFORMED_FILE", "Expected `array`, got `object`"),
        ("[0.25, 0.25, 0.25, 0.25]", "MALFORMED_FILE", "Expected `int`, got `float`"),
        ('["1", "1", "1", "1"]', "MALFORMED_FILE", "Expected `int`, got `str`"),
        ("[1, 1, 1]", "MISUSE", "3 counts"),
        ("[1, 1, 1, -1]", "MISUSE", "-1 for expert 3"),
        ("[4, 0, 0, 0]", "MISUSE", "1 experts with a count"),
    ],
    ids=["gone", "empty", "no array", "object", "fractions", "texts", "too few", "negative", "one expert"],
)
def test_a_popularity_file_that_holds_no_counts_is_refused(desk: Desk, text: str | None, code: str, found: str) -> None:
    path = desk.folder / "counts.json"
    if text is not None:
        path.write_text(text)
    error = desk.refused(code, *flags(popularity=path))
    assert found in error["found"]
    assert error["where"] == ("shape flags, input 0" if code == "MISUSE" else str(path))


def test_a_kernel_that_takes_another_format_is_refused(desk: Desk) -> None:
    error = desk.refused("MISUSE", *flags(runner="vllm_triton_moe"))
    assert (error["where"], error["expected"], error["found"]) == (
        "shape flags", "numeric format bfloat16, which vllm_triton_moe takes", "float32",
    )  # fmt: skip
