"""Print what the corpus of lane laguna_m8 covers, or what kills which wrong candidate.

    python examples/gate_tables.py corpus | mutants | toml

``toml`` prints corpus, coverage and kills as a registration has them.

Exits 1 where the corpus covers too little or a mutant is not killed as registered.
"""

import sys

from moegauge.lanes.laguna_m8.corpus import corpus
from moegauge.lanes.laguna_m8.coverage import corpus_coverage
from moegauge.lanes.laguna_m8.kills import KILLS, mutation_adequacy
from moegauge.render.gate_tables import corpus_tables, mutation_table, registered_tables

match sys.argv[1:]:
    case ["corpus"]:
        covered = corpus_coverage(corpus())
        print(corpus_tables(covered), end="")
        passed = covered.passed
    case ["mutants"]:
        killed = mutation_adequacy(corpus())
        print(mutation_table(killed), end="")
        passed = killed.passed
    case ["toml"]:
        covered, passed = corpus_coverage(corpus()), True
        families = {spec.name: spec.family for spec in corpus()}
        print(registered_tables(covered, KILLS, families), end="")
    case _:
        sys.exit(__doc__)
if not passed:
    sys.exit(1)
