"""Bundles, traces and databases odd enough to trip over: refused with a message, or read right."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from conftest import NO_LABELS
from moegauge.cli.main import run
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_import import import_replay
from simulator import BASE_NS, Recording


def refused(capsys, *tokens):
    status = run([str(t) for t in tokens])
    err = capsys.readouterr().err
    assert status == 2
    assert "expected" in err
    return err


def routing(bundle, **change):
    arrays = Recording().routing(0)
    arrays.update(change)
    np.savez(bundle / "routing.npz", **arrays)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.full((33, 2), "x")},
        {"expert_map": np.full(8, "x")},
        {"expert_map": np.arange(8) + 0.5},
        {"weights": np.full((33, 2), np.nan, dtype=np.float16)},
    ],
    ids=["weights are text", "expert map is text", "expert map of fractions is truncated", "weights are NaN"],
)
def test_routing_arrays_of_another_kind_are_refused(tmp_path, capsys, change):
    bundle = Recording().write(tmp_path / "b")
    routing(bundle, **change)
    refused(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "c")


def test_encrypted_member(tmp_path, capsys):
    bundle = Recording().write(tmp_path / "b")
    path = bundle / "routing.npz"
    data = bytearray(path.read_bytes())
    data[data.find(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    refused(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "c")


@pytest.mark.parametrize(
    "official",
    [
        {"prompt_len": np.array([1]), "out_len": np.array([1]), "r0": np.zeros((2, 1, 2), dtype=np.int16)},
        {"prompt_len": np.array([1]), "out_len": np.array([1]), "r0": np.zeros(2)},
        {"prompt_len": np.array(1), "out_len": np.array([1])},
    ],
    ids=["too few layers", "one dimension", "prompt_len is a scalar"],
)
def test_official_routes_of_another_shape(tmp_path, capsys, official):
    bundle = Recording().write(tmp_path / "b")
    np.savez(bundle / "routed_experts_official.npz", **official)
    refused(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "c")


def trace(tmp_path, change):
    bundle = Recording().write(tmp_path / "b")
    path = bundle / "serving_trace.json"
    path.write_bytes(change(path.read_bytes()))
    return bundle


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.replace(b'"args": {', b'"args": {"x":' + b"[" * 100000 + b"]" * 100000 + b",", 1),
        lambda d: re.sub(rb'"correlation": 105\b', b'"correlation": ' + b"9" * 30, d),
        lambda d: d.replace(b'"device": 0, "stream": 7', b'"device": ' + b"9" * 30 + b', "stream": 7', 1),
        lambda d: d.replace(b'"device": 0, "stream": 7', b'"device": 1099511627776, "stream": 7'),
    ],
    ids=[
        "deep nesting: RecursionError",
        "correlation beyond int64: OverflowError",
        "device beyond int64",
        "device beyond int32: polars error",
    ],
)
def test_traces_that_crash(tmp_path, capsys, change):
    refused(capsys, "capture", "import", "bundle", trace(tmp_path, change), "--out", tmp_path / "c")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_duration_that_is_no_json_number_makes_the_file_malformed(tmp_path, capsys, text):
    def victim(data):
        found = data.decode()
        start = found.index('"dur": ', found.index('"name": "fused_moe_kernel"'))
        return (found[:start] + '"dur": ' + text + found[found.index(",", start) :]).encode()

    bundle = trace(tmp_path, victim)
    assert "MALFORMED_FILE" in refused(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["config"].update(num_experts_per_tok=9),
        lambda m: m["steps"][0].update(padded=2**40),
        lambda m: m["steps"][0].update(tokens=2**40, padded=None),
        lambda m: m["config"].update(hidden_size=10**30),
    ],
    ids=[
        "top_k beyond the experts: ValueError",
        "padded beyond int32: polars error",
        "tokens beyond int32",
        "hidden_size 10**30 accepted",
    ],
)
def test_metadata_numbers_out_of_bounds(tmp_path, capsys, change):
    bundle = Recording().write(tmp_path / "b")
    meta = json.loads((bundle / "meta.json").read_text())
    change(meta)
    (bundle / "meta.json").write_text(json.dumps(meta))
    refused(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "c")


@pytest.mark.parametrize("name", ["exact warmup", "exact", "exact LI"])
def test_a_host_annotation_that_begins_with_the_tag(tmp_path, name):
    recording = Recording()
    capture = import_serving(recording.write(tmp_path / "b"), tmp_path / "c")
    replay = recording.replay()
    replay.host_scope(name, BASE_NS, 5)
    (tmp_path / "r.json").write_bytes(replay.data())
    import_replay(capture.path, [tmp_path / "r.json"], tmp_path / "p.db", labels=NO_LABELS)


def test_a_folder_given_as_database_is_called_a_folder(tmp_path, capsys):
    recording = Recording()
    capture = import_serving(recording.write(tmp_path / "b"), tmp_path / "c")
    (tmp_path / "db").mkdir()
    assert "0 bytes" not in refused(capsys, "align", capture.path, "--db", tmp_path / "db", "--out", tmp_path / "r")


def refused_profile_run(tmp_path, capsys, *arguments):
    capture = import_serving(Recording().write(tmp_path / "b"), tmp_path / "c")
    where = ("--capture", capture.path, "--db", tmp_path / "p.db")
    refused(capsys, "profile", "run", *where, "--runner", "torch_moe", *arguments)


def test_a_refused_profile_run_makes_no_database(tmp_path, capsys):
    refused_profile_run(tmp_path, capsys, "--cache-state", "tepid")
    assert not (tmp_path / "p.db").exists()


def test_profile_run_on_a_rank_that_is_not_there_is_refused_like_a_layer_that_is_not_there(tmp_path, capsys):
    refused_profile_run(tmp_path, capsys, "--ranks", "9")
