"""A Kineto trace without the events that nothing here reads: host operators make up most of one."""

from __future__ import annotations

from pathlib import Path

import msgspec
from isal import igzip

_KEPT = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "user_annotation", "gpu_user_annotation"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime"})


class _Event(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""


def write_slim(source: Path, target: Path) -> None:
    """Write a gzip copy with metadata, device operations, annotations and launch calls; every kept event unchanged.

    Args:
        source: a Chrome trace as torch.profiler exports it. target: written under another name first, then renamed.
    """
    whole = msgspec.json.decode(source.read_bytes(), type=dict[str, msgspec.Raw])
    events = msgspec.json.decode(whole["traceEvents"], type=list[msgspec.Raw])
    decoder = msgspec.json.Decoder(_Event)
    kept = [bytes(event) for event in events if _is_kept(decoder.decode(event))]
    rest = {name: value for name, value in whole.items() if name not in {"traceEvents", "traceName"}}
    head = b",".join(msgspec.json.encode(name) + b":" + bytes(value) for name, value in rest.items())
    building = target.with_name(f".{target.name}.new")
    text = b"{" + head + b',"traceEvents":[' + b",\n".join(kept) + b"]}"
    building.write_bytes(igzip.compress(text, compresslevel=3))
    building.replace(target)


def _is_kept(event: _Event) -> bool:
    return event.ph == "M" or event.cat in _KEPT or (event.cat in _LAUNCHES and "Launch" in event.name)
