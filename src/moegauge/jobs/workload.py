"""Requests to serve: read from a file of lines, or drawn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moegauge import errors
from moegauge.evidence.store import read_bytes
from moegauge.records.serving_run import ServedRequest

_FIRST_TOKEN = 10
_MAX_REQUESTS = 1 << 20
_MAX_TOKENS = 1 << 20


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_tokens: int
    prompt_token_ids: list[int] | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Mix:
    """A drawn workload: so many requests, each with one of the prompt lengths and one of the output lengths."""

    num_requests: int
    seed: int
    prompt_lengths: tuple[int, ...]
    output_lengths: tuple[int, ...]


def drawn_requests(mix: Mix, *, vocabulary: int) -> list[ServedRequest]:
    """Requests of a mix; the same for the same mix and vocabulary.

    Raises:
        MisuseError: a number that makes no sense.
    """
    lengths = (mix.num_requests, *mix.prompt_lengths, *mix.output_lengths)
    if not mix.prompt_lengths or not mix.output_lengths or not all(1 <= number <= _MAX_TOKENS for number in lengths):
        raise errors.MisuseError(
            where="workload",
            expected=f"requests, prompt and output lengths from 1 to {_MAX_TOKENS}",
            found=str(mix),
            remedy="Give --requests, --prompt-lengths and --output-lengths so.",
        )
    source = random.Random(mix.seed)  # noqa: S311 - a workload, not a secret
    prompts = [_tokens(source, source.choice(mix.prompt_lengths), vocabulary) for _ in range(mix.num_requests)]
    return [ServedRequest(prompt_token_ids=prompt, max_tokens=source.choice(mix.output_lengths)) for prompt in prompts]


def read_requests(path: Path, *, seed: int, vocabulary: int) -> list[ServedRequest]:
    """Requests of a JSONL file: ``max_tokens``, and ``prompt_token_ids`` or ``prompt_tokens`` (a length to draw).

    Raises:
        MissingFile, LimitExceeded, MalformedFile: with the line.
    """
    source = random.Random(seed)  # noqa: S311 - a workload, not a secret
    lines = read_bytes(path).splitlines()
    found = [
        _request(line, source, vocabulary, where=f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not 1 <= len(found) <= _MAX_REQUESTS:
        raise errors.MalformedFile(
            where=str(path), expected=f"1 to {_MAX_REQUESTS} requests", found=str(len(found)), remedy="Add or split."
        )
    return found


def encoded(requests: Sequence[ServedRequest]) -> bytes:
    """Requests as lines of JSON."""
    return b"".join(msgspec.json.encode(request) + b"\n" for request in requests)


def _request(line: bytes, source: random.Random, vocabulary: int, *, where: str) -> ServedRequest:
    expected = '{"max_tokens": N, "prompt_token_ids": [..]} or {"max_tokens": N, "prompt_tokens": N}'
    remedy = "Write one JSON object a line."
    try:
        read = msgspec.json.decode(line, type=_Line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.MalformedFile(where=where, expected=expected, found=str(error), remedy=remedy) from error
    ids, length = read.prompt_token_ids, read.prompt_tokens
    if (ids is None) == (length is None) or not 1 <= read.max_tokens <= _MAX_TOKENS:
        raise errors.MalformedFile(where=where, expected=expected, found=line[:80].decode("utf-8"), remedy=remedy)
    if length is not None:
        if not 1 <= length <= _MAX_TOKENS:
            raise errors.MalformedFile(
                where=where, expected=f"1 to {_MAX_TOKENS} tokens", found=str(length), remedy=remedy
            )
        return ServedRequest(prompt_token_ids=_tokens(source, length, vocabulary), max_tokens=read.max_tokens)
    if not ids or not all(0 <= token < vocabulary for token in ids):
        found = "none" if not ids else f"{min(ids)} to {max(ids)}"
        raise errors.MalformedFile(
            where=where, expected=f"token ids in 0..{vocabulary - 1}", found=found, remedy="Use the model's own ids."
        )
    return ServedRequest(prompt_token_ids=tuple(ids), max_tokens=read.max_tokens)


def _tokens(source: random.Random, length: int, vocabulary: int) -> tuple[int, ...]:
    if vocabulary <= _FIRST_TOKEN:
        raise errors.MisuseError(
            where="workload",
            expected=f"a vocabulary of more than {_FIRST_TOKEN} tokens to draw prompts from",
            found=str(vocabulary),
            remedy="Give prompt_token_ids.",
        )
    return tuple(source.randrange(_FIRST_TOKEN, vocabulary) for _ in range(length))
