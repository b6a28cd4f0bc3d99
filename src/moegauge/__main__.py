"""python -m moegauge."""

from moegauge.cli.main import main

main()
