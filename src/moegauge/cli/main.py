"""The command line: registers the verbs, prints errors, sets the exit status. The only place that exits."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from rich.text import Text

from moegauge import __version__, cli, errors
from moegauge.cli import align, capture, demo, profile, verify
from moegauge.cli.console import EXIT_CANNOT_JUDGE, print_json, stderr

__all__ = ["app", "cli", "main"]

app = App(
    name="moegauge",
    version=f"moegauge {__version__}",
    help="Where does a fused MoE kernel's time in vLLM stop agreeing with isolated measurement?",
)
demo.register(app)
app.command(capture.app)
app.command(profile.app)
align.register(app)
verify.register(app)
app.register_install_completion_command()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(tokens))


def run(tokens: list[str]) -> int:
    """Run the command line and return its exit status: the verb's own, or 2 with one message on stderr."""
    try:
        status = app(tokens, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return EXIT_CANNOT_JUDGE
    except errors.MoegaugeError as error:
        _print_error(error, as_json="--json" in tokens)
        return EXIT_CANNOT_JUDGE
    except KeyboardInterrupt:
        stderr().print("interrupted; nothing was half written")
        return 130
    return int(status) if isinstance(status, int) else 0


def _print_error(error: errors.MoegaugeError, *, as_json: bool) -> None:
    if as_json:
        print_json({"error": error.as_dict()})
    console = stderr()
    console.print(Text.assemble((f"{error.code} ", "bold red"), error.where), soft_wrap=True)
    for label, text in (("expected", error.expected), ("found", error.found), ("next", error.remedy)):
        console.print(Text.assemble((f"  {label:<9}", "dim"), text), soft_wrap=True)
