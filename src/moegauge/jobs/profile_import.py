"""moegauge profile import: replay traces become one measured pass of a profile database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moegauge import __version__, errors
from moegauge.adapters.compression import unpacked
from moegauge.adapters.profile_db import Artifact, now, open_profile_db
from moegauge.adapters.traces.recognition import parse_trace
from moegauge.evidence.capture_folder import open_capture
from moegauge.evidence.digest import bytes_digest, record_digest
from moegauge.evidence.store import read_bytes
from moegauge.jobs.profile_derivation import RankSamples, ReplayLabels, by_rank, derive_samples
from moegauge.jobs.progress import Progress, silent
from moegauge.records.profile import PassRecord

MAX_TRACE_BYTES = 1 << 30


@dataclass(frozen=True)
class ImportedPass:
    """What an import added: pass number, distinct rows, samples, and the replay's tag."""

    number: int
    num_rows: int
    num_samples: int
    tag: str


def import_replay(
    capture: Path, traces: list[Path], db: Path, *, labels: ReplayLabels, progress: Progress = silent
) -> ImportedPass:
    """Import the replay of a capture's exact inputs as one pass.

    Args:
        capture: capture folder.
        traces: one trace a rank; together they are one pass.
        db: profile database; made where there is none.
        labels: tag, launch mode and conditions that a person declares.
        progress: told how far the import is.

    Raises:
        EvidenceError: a trace is not a whole replay of the capture. Nothing is written then.
        MisuseError: the same recording was imported before.
    """
    folder = open_capture(capture)
    if len({path.resolve() for path in traces}) != len(traces):
        raise errors.MisuseError(
            where=", ".join(map(str, traces)),
            expected="each trace once",
            found="a path twice",
            remedy="Give one trace a rank.",
        )
    raw = {str(path): read_bytes(path, limit=MAX_TRACE_BYTES) for path in traces}
    content = {name: unpacked(data, where=name) for name, data in raw.items()}
    parsed = {name: parse_trace(data, source=name) for name, data in content.items()}
    ranks = by_rank(parsed, folder)
    derived: list[RankSamples] = []
    for done, (rank, name) in enumerate(sorted(ranks.items())):
        progress(f"attributing rank {rank}", done, len(ranks))
        derived.append(derive_samples(folder, rank, parsed[name], labels))
    progress("writing", len(ranks), len(ranks))
    artifacts = [
        Artifact(name=Path(name).name, data=raw[name], content_digest=bytes_digest(content[name]))
        for name in ranks.values()
    ]
    record = PassRecord(
        source="import",
        capture_digest=folder.raw_digest,
        runner=None,
        tag=derived[0].tag,
        launch_mode=labels.launch_mode,
        declared=labels.declared,
        facts={},
        tool_version=__version__,
        recorded_at=now(),
        traces={str(rank): bytes_digest(raw[name]) for rank, name in ranks.items()},
    )
    with open_profile_db(db, create=True) as database:
        samples = [sample for rank_samples in derived for sample in rank_samples.samples]
        number = database.add_pass(record, artifacts, samples)
    num_rows = len({record_digest(sample.key) for sample in samples})
    return ImportedPass(number, num_rows, len(samples), derived[0].tag)
