"""Measured rows that no comparison uses are counted in invocations, once each, at their critical rank."""

from __future__ import annotations

from test_conservation import Work, of_side

from conftest import NO_LABELS
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_import import import_replay
from moegauge.ladder.alignment import Choice
from simulator import Recording


def test_tp_ranks_share_a_row_unmatched_right_time_is_that_of_the_critical_rank_and_not_their_mean(tmp_path):
    recording = Recording(ranks=2)  # no expert map: both ranks have one key, hence one row with samples of both ranks
    capture = import_serving(recording.write(tmp_path / "b"), tmp_path / "c")
    for kind in ("replay", "graph_replay"):
        paths = [tmp_path / f"{kind}{r}.json" for r in (0, 1)]
        for r, path in enumerate(paths):
            path.write_bytes(getattr(recording, kind)(r).data())
        import_replay(capture.path, paths, tmp_path / "p.db", labels=NO_LABELS)
    report = align(capture.path, tmp_path / "p.db", tmp_path / "r", settings=ladder_settings())
    wide = report.rungs[0].capture_wide
    num, ns = of_side(wide, "right")
    graph = [(s["iter"], layer) for s in recording.steps if s["graph"] for layer in recording.layers]
    assert num == len(graph)  # the eager replay of the graph iterations
    assert ns == sum(recording.busy_ns(i, layer, 1) for i, layer in graph)


def test_a_measured_invocation_whose_ranks_are_unmatched_for_two_reasons_counts_once():
    work = Work(
        num_ranks=2,
        served={(0, 1, 0): (None, False, True, "eager")},
        measured=[((0, 1, 0), "eager", None, {0: 5}), ((0, 1, 1), "eager", None, {0: 7})],
    )
    pair = work.ladder(Choice("as-served", None))[0].capture_wide
    assert of_side(pair, "right") == (1, 7)
    assert pair.num_captured_invocations.right == 1


def test_invocations_with_equal_inputs_share_a_row_and_each_counts(tmp_path):
    class Same(Recording):
        def topk_ids(self, iteration, layer, rows):
            return super().topk_ids(0, 0, rows)  # every layer routes alike, so all layers of an iteration share one key

    recording = Same()
    capture = import_serving(recording.write(tmp_path / "b"), tmp_path / "c")
    for kind in ("replay", "graph_replay"):
        (tmp_path / f"{kind}.json").write_bytes(getattr(recording, kind)().data())
        import_replay(capture.path, [tmp_path / f"{kind}.json"], tmp_path / "p.db", labels=NO_LABELS)
    report = align(capture.path, tmp_path / "p.db", tmp_path / "r", settings=ladder_settings())
    num, ns = of_side(report.rungs[0].capture_wide, "right")
    graph = [(s["iter"], layer) for s in recording.steps if s["graph"] for layer in recording.layers]
    assert (num, ns) == (6, sum(recording.busy_ns(*one) for one in graph))
