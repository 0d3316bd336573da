"""The command ``size-inference``: parse, call, report; no arithmetic.

A verb is a file in this folder that defines ``command``; ``group_verb.py`` is a verb inside a group. Only
the verb that is asked for is imported, so the command starts fast.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sizing.errors import SizingError, nearest

if TYPE_CHECKING:
    import typer

GROUPS = {
    "validate": "Hold predictions against measurements.",
    "calibrate": "Fit constants from measurements.",
}
_NOT_VERBS = {"__init__", "output", "plan", "arguments"}
PROGRAM = "size-inference"


def verbs() -> dict[str, tuple[str, ...]]:
    """Module name of every verb, with the words that call it."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        group, _, rest = path.stem.partition("_")
        if path.stem in _NOT_VERBS or path.stem.startswith("_"):
            continue
        words = (group, rest) if group in GROUPS and rest else (path.stem,)
        found[path.stem] = tuple(w.replace("_", "-") for w in words)
    return found


def wanted(words: Sequence[str]) -> tuple[str, ...]:
    """Module names of the verbs that a command line can reach; none for the main job."""
    known = verbs()
    if not words or words[0].startswith("-"):
        everything = any(w in ("--help", "--install-completion", "--show-completion") for w in words)
        return tuple(known) if everything else ()
    first = [m for m, names in known.items() if names[0] == words[0]]
    exact = [m for m in first if known[m] == tuple(words[: len(known[m])])]
    if not first:
        names = sorted({n[0] for n in known.values()})
        raise _unknown(words[0], names)
    return tuple(exact or first)


def _unknown(word: str, names: Sequence[str]) -> SizingError:
    from sizing.errors import InputError

    return InputError(f"no verb {word!r}; choose one of {', '.join(names)}{nearest(word, names)}, or give only options")


def application(modules: Sequence[str]) -> "typer.Typer":
    """Typer application with the main job at its root and the given verbs."""
    import importlib

    import typer

    from sizing.cli import plan

    app = typer.Typer(
        add_completion=True, pretty_exceptions_enable=False, no_args_is_help=False, rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback(invoke_without_command=True, help=plan.__doc__)(plan.command)
    groups: dict[str, typer.Typer] = {}
    for module in modules:
        words = verbs()[module]
        function: Callable[..., None] = importlib.import_module(f"sizing.cli.{module}").command
        place = app
        if len(words) == 2:
            if words[0] not in groups:
                groups[words[0]] = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
                app.add_typer(groups[words[0]], name=words[0], help=GROUPS[words[0]])
            place = groups[words[0]]
        place.command(words[-1])(function)
    return app


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    import os

    try:
        completing = f"_{PROGRAM.upper().replace('-', '_')}_COMPLETE" in os.environ
        modules = tuple(verbs()) if completing else wanted(words)
        return _invoke(modules, words)
    except SizingError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)  # noqa: T201
        return 130


def _invoke(modules: Sequence[str], words: Sequence[str]) -> int:
    import typer

    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    click_error: type[Exception] = usage_error.__mro__[1]
    try:
        command = typer.main.get_command(application(modules))
        code = command.main(args=list(words), prog_name=PROGRAM, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Exit as stop:
        return int(stop.exit_code)
    except typer.Abort:
        return 130
    except click_error as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        if type(error).__name__ == "NoArgsIsHelpError":  # a group called bare: its help is the message
            print(message, file=sys.stderr)  # noqa: T201
            return 2
        print(f"{PROGRAM}: {' '.join(message.split())} (see {PROGRAM} --help)", file=sys.stderr)  # noqa: T201
        return 2


def main() -> None:
    """Entry point of the command."""
    import gc

    words = sys.argv[1:]
    if not words or words[0].startswith("-"):
        gc.disable()  # the main job ends in half a second: collecting would take a tenth of it
    sys.exit(run(words))
