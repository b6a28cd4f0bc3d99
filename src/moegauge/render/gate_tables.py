"""Tables of the gate's arithmetic, as Markdown: what a corpus covers, and what kills which wrong candidate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moegauge.records.adequacy import CorpusResult, Kill, MutationResult


def corpus_tables(result: CorpusResult) -> str:
    """Families with their fixtures, then what is covered and what has to be."""
    families = [(f"`{row.family}`", str(row.num_fixtures), row.purpose) for row in result.families]
    rows = [(row.what, f"{row.num_covered:,}", f"{row.num_required:,}") for row in result.rows]
    return (
        _table(("family", "fixtures", "what for"), families)
        + "\n"
        + _table(("counted over the corpus", "covered", "required"), rows)
    )


def mutation_table(result: MutationResult) -> str:
    """One line a mutant: what it breaks, where it shows, and both words. A line of a failure gives its sentence."""
    rows = []
    for check in result.checks:
        if check.reason is not None or check.found is None:
            sentence = "not checked" if check.reason is None else check.reason.sentence
            rows.append((f"`{check.mutant}`", check.breaks, sentence, "", "", ""))
            continue
        kill = check.found
        index = ", ".join(str(one) for one in kill.first_index)
        place = f"`{kill.fixture}`", f"{kill.boundary} [{index}]"
        rows.append((f"`{check.mutant}`", check.breaks, *place, kill.expected_word, kill.found_word))
    return _table(("mutant", "what it does", "killed by", "first at", "right", "wrong"), rows)


def registered_tables(covered: CorpusResult, kills: Iterable[Kill], families: Mapping[str, str]) -> str:
    """Corpus, coverage and kills of a subject as its registration has them, in TOML. ``families``: by fixture."""
    lines = ["corpus = ["]
    lines += [f'  {{ name = "{row.family}", num_fixtures = {row.num_fixtures} }},' for row in covered.families]
    lines += ["]", "coverage = ["]
    lines += [f'  {{ what = "{row.what}", at_least = {row.num_required} }},' for row in covered.rows]
    lines += ["]", "kills = ["]
    for one in kills:
        fixture = f"{families[one.fixture]}/{one.fixture}"
        lines.append(
            f'  {{ mutant = "{one.mutant}", fixture = "{fixture}", boundary = "{one.boundary}", '
            f'first_index = {list(one.first_index)}, expected_word = "{one.expected_word}", '
            f'found_word = "{one.found_word}" }},'
        )
    return "\n".join([*lines, "]", ""])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
