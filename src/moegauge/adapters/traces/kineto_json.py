"""The JSON of a Kineto Chrome trace, decoded; damaged names are repaired and reported, a damaged file is refused."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated

import msgspec

from moegauge import errors
from moegauge.records.capture import Finding

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_REPLACEMENT = "\ufffd"


Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Small = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that matter here. XPU rows carry ``sycl queue`` where others carry ``stream``."""

    correlation: Whole | float | str | None = None
    device: Small | float | str | None = None
    stream: Whole | float | str | None = None
    sycl_queue: Whole | float | str | None = msgspec.field(default=None, name="sycl queue")
    external_id: Whole | float | str | None = msgspec.field(default=None, name="External id")


class Event(msgspec.Struct, gc=False):
    """One event; times stay the text they are in the file. (There are millions; none can be part of a cycle.)"""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: Whole | float | str | None = None
    tid: Whole | float | str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: Args | None = None


class Device(msgspec.Struct):
    """A device the file describes."""

    id: int
    name: str


class Distributed(msgspec.Struct):
    """Which rank of how many the process was."""

    rank: int | None = None
    world_size: int | None = None


class KinetoFile(msgspec.Struct):
    """The whole file."""

    trace_events: list[Event] = msgspec.field(name="traceEvents")
    device_properties: list[Device] = msgspec.field(default_factory=list, name="deviceProperties")
    distributed: Distributed | None = msgspec.field(default=None, name="distributedInfo")
    cuda_driver_version: int | None = None
    cuda_runtime_version: int | None = None
    cupti_version: int | None = None


def decode_kineto(data: bytes, source: str) -> tuple[KinetoFile, list[Finding]]:
    """Decode the JSON of a trace, with a finding where names had to be repaired.

    Raises:
        MalformedFile: cut, damaged beyond names, or no trace; says where the file ends.
    """
    decoder = msgspec.json.Decoder(KinetoFile)
    try:
        return decoder.decode(data), []
    except msgspec.ValidationError as error:
        raise malformed(source, str(error)) from error
    except RecursionError as error:
        raise malformed(source, "JSON nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        repaired = _CONTROL.sub(_REPLACEMENT, data.decode("utf-8", errors="replace")).encode()
        if repaired == data:
            raise malformed(source, f"{error} (file ends at byte {len(data)})") from error
    try:
        file = decoder.decode(repaired)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(source, f"{error} (file ends at byte {len(data)})") from error
    damaged = Counter(event.name for event in file.trace_events if event.name and _REPLACEMENT in event.name)
    return file, [
        Finding(
            code="NAMES_REPAIRED",
            sentence="control or non-UTF-8 bytes in names were replaced by U+FFFD",
            num=sum(damaged.values()),
            examples=tuple(name[:80] for name in list(damaged)[:5]),
        )
    ]


def malformed(source: str, found: str) -> errors.MalformedFile:
    """The error for a trace that is not what it has to be."""
    return errors.MalformedFile(
        where=source,
        expected="a whole Kineto trace (a JSON object with traceEvents)",
        found=found,
        remedy="The file is cut or damaged; export the trace again.",
    )
