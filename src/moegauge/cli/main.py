"""The command line: registers the verbs, prints errors, sets the exit status. The only place that exits."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from rich.text import Text

from moegauge import __version__, cli, errors
from moegauge.cli import align, capture, compare, demo, gate, kernels, predict, profile, tune, verify
from moegauge.cli.console import EXIT_CANNOT_JUDGE, print_json, stderr

__all__ = ["app", "cli", "main"]

app = App(
    name="moegauge",
    version=f"moegauge {__version__}",
    suppress_keyboard_interrupt=False,
    help="Where does a fused MoE kernel's time in vLLM stop agreeing with isolated measurement?",
)
demo.register(app)
app.command(capture.app)
app.command(kernels.app)
app.command(profile.app)
align.register(app)
compare.register(app)
verify.register(app)
predict.register(app)
tune.register(app)
app.command(gate.app)
app.register_install_completion_command()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(tokens))


def run(tokens: list[str]) -> int:
    """Run the command line and return its exit status: the verb's own, or 2 with one message on stderr."""
    as_json = "--json" in tokens
    try:
        status = app(tokens, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError as error:
        if as_json:
            _print_json_error(_wrong_usage(tokens, error))
        return EXIT_CANNOT_JUDGE
    except errors.MoegaugeError as error:
        _print_error(error, as_json=as_json)
        return EXIT_CANNOT_JUDGE
    except (OSError, UnicodeEncodeError) as error:
        _print_error(_refused_by_system(error), as_json=as_json)
        return EXIT_CANNOT_JUDGE
    except KeyboardInterrupt:
        stderr().print("interrupted; nothing was half written")
        return 130
    return int(status) if isinstance(status, int) else 0


def _wrong_usage(tokens: list[str], error: CycloptsError) -> errors.MisuseError:
    return errors.MisuseError(
        where=" ".join(["moegauge", *tokens[:2]]),
        expected="arguments as --help lists them",
        found=" ".join(str(error).split()),
        remedy="See moegauge --help.",
    )


def _refused_by_system(error: OSError | UnicodeEncodeError) -> errors.MisuseError:
    """A path that the operating system refuses: too long, not permitted, not UTF-8, on a full disk."""
    where, found = "moegauge", str(error)
    if isinstance(error, OSError):
        where, found = str(error.filename or where), error.strerror or found
    return errors.MisuseError(
        where=where,
        expected="paths that can be read and written here, with names in UTF-8",
        found=found,
        remedy="Check the path, its permissions and the space left; nothing was half written.",
    )


def _print_error(error: errors.MoegaugeError, *, as_json: bool) -> None:
    if as_json:
        _print_json_error(error)
    shown = _shown(error)
    console = stderr()
    console.print(Text.assemble((f"{shown['code']} ", "bold red"), shown["where"]), soft_wrap=True)
    for label, part in (("expected", "expected"), ("found", "found"), ("next", "remedy")):
        console.print(Text.assemble((f"  {label:<9}", "dim"), shown[part]), soft_wrap=True)


def _print_json_error(error: errors.MoegaugeError) -> None:
    print_json({"error": _shown(error)})


def _shown(error: errors.MoegaugeError) -> dict[str, str]:
    """The parts of an error; names that are not UTF-8 with backslashes."""
    return {part: text.encode(errors="backslashreplace").decode() for part, text in error.as_dict().items()}
