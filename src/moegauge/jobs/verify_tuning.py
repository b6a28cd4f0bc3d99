"""A tuning folder verified: the choices follow from the times, and the files from the choices."""

from __future__ import annotations

from pathlib import Path

from moegauge.evidence.digest import bytes_digest
from moegauge.evidence.store import describe_files, head_files, read_record
from moegauge.jobs.progress import Progress
from moegauge.jobs.tune import RECORD_NAME, arm_files
from moegauge.jobs.tuning_search import DEFAULT, FOUND, finalists, winner
from moegauge.records.tuning import Stage, Trials, TunedSize, TuningRecord


def derive_tuning_again(path: Path, _: Progress) -> tuple[list[str], list[str]]:
    """What was checked, and what differs. The times themselves are raw: no trace of a trial is kept."""
    record = read_record(path / RECORD_NAME, TuningRecord)
    differences = [line for size in record.sizes for line in _choices(size)]
    names = {name.rpartition("/")[2] for name in record.files}
    derived = {name: bytes_digest(data) for one in names for name, data in arm_files(record.sizes, one).items()}
    present = {name: one.digest for name, one in describe_files(path, leave_out=head_files(RECORD_NAME)).items()}
    for name in sorted(derived.keys() | present.keys() | record.files.keys()):
        found, wanted = present.get(name), derived.get(name)
        if not found == wanted == record.files.get(name):
            differences.append(f"{name}: recorded {record.files.get(name)}, derived {wanted}, found {found}")
    times = sum(
        len(trials.busy_ns) * len(trials.candidates) * len(trials.places)
        for size in record.sizes
        for trials in size.trials
    )
    checked = [f"{len(record.sizes)} numbers of rows from {times} raw times (no trace kept)", f"{len(derived)} files"]
    return checked, differences


def _choices(size: TunedSize) -> list[str]:
    """Choices of a size that its times do not lead to."""
    stages = {(one.stage, one.routing): one for one in size.trials}
    places = [place for stage in Stage for place in _first(size, stage).places]
    wanted: dict[str, tuple[object, object]] = {"invocations of the three stages": (len(places), len(set(places)))}
    for routing in (arm for arm in size.arms if arm not in {FOUND, DEFAULT}):
        final = stages[Stage.FINALS, routing]
        first = tuple(finalists(stages[Stage.SEARCH, routing], size.arms[FOUND]))
        wanted[f"finalists under {routing} routing"] = final.candidates, first
        wanted[f"arm {routing}"] = size.arms[routing], winner(final)
    verdict = tuple(sorted(set(size.arms.values())))
    wanted["arms of the verdict"] = _first(size, Stage.VERDICT).candidates, verdict
    return [
        f"{size.executed_rows} rows, {name}: recorded {recorded}, derived {derived}"
        for name, (recorded, derived) in wanted.items()
        if recorded != derived
    ]


def _first(size: TunedSize, stage: Stage) -> Trials:
    return next(one for one in size.trials if one.stage == stage)
