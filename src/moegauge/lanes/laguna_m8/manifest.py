"""The digests of all fixtures, as registered: ``corpus.json`` beside this module."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from moegauge import errors
from moegauge.lanes.laguna_m8.corpus import SEED, VERSION
from moegauge.lanes.laguna_m8.fixture import FixtureSpec
from moegauge.records.adequacy import CorpusManifest, FixtureDigest
from moegauge.records.schema import decode_record

LANE = "laguna_m8"
FILE = "corpus.json"


def registered_manifest() -> CorpusManifest:
    """The manifest that this release ships.

    Raises:
        MalformedFile: the file was edited.
    """
    return decode_record(files(__package__).joinpath(FILE).read_bytes(), CorpusManifest, where=f"{LANE}/{FILE}")


def built_manifest(specs: Iterable[FixtureSpec]) -> CorpusManifest:
    """The manifest of fixtures as they are built here and now."""
    digests = []
    for spec in specs:
        fixture = spec.build()
        digests.append(
            FixtureDigest(name=spec.name, family=spec.family, digest=fixture.digest, peers_digest=fixture.peers_digest)
        )
    return CorpusManifest(
        schema=CorpusManifest.tag(), lane=LANE, corpus_version=VERSION, seed=SEED, fixtures=tuple(digests)
    )


def check_manifest(specs: Iterable[FixtureSpec]) -> CorpusManifest:
    """Build every fixture and hold it against the registered manifest.

    Returns:
        The manifest, which is the registered one.

    Raises:
        DigestMismatch: a fixture that is missing, extra, in another place or made of other words is named.
    """
    built, registered = built_manifest(specs), registered_manifest()
    if built == registered:
        return built
    pairs = zip(built.fixtures, registered.fixtures, strict=False)
    differing = next((pair for pair in pairs if pair[0] != pair[1]), None)
    raise errors.DigestMismatch(
        where=f"corpus of {LANE}",
        expected=_said(registered, differing and differing[1]),
        found=_said(built, differing and differing[0]),
        remedy="The corpus was changed: raise its version and register it again, or undo the change.",
    )


def _said(manifest: CorpusManifest, fixture: FixtureDigest | None) -> str:
    head = f"version {manifest.corpus_version}, seed {manifest.seed}, {len(manifest.fixtures)} fixtures"
    return head if fixture is None else f"{fixture.name} {fixture.digest} {fixture.peers_digest} ({head})"
