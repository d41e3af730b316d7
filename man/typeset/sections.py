"""What a page's directives stand for: tables of the code.

{exit-codes}            every exit code of k3ctl and k3d
{health-codes}          the codes of commands that report a state
{environment NAME ...}  environment variables, all of them when none is named
{files}                 files of a home
{verbs}                 the commands of k3ctl with their pages
{settings}              the keys at the top of k3ctl.toml
{keys MODULE:STRUCT}    the keys of a Struct; the definitions that follow say what they mean.
                        With a second Struct, those that it has not
"""

from __future__ import annotations

from collections.abc import Sequence

from k3ctl.cli.help import ENVIRONMENT, FILES
from k3ctl.cli.main import VERBS
from k3ctl.cli.output import EXIT_SENTENCES, HEALTH_SENTENCES
from k3ctl.client.config import SETTINGS, Setting
from man.typeset.keys import explained_keys
from man.typeset.source import Block, Directive, Entries, Item, SourceError


def fill_in(blocks: Sequence[Block]) -> list[Block]:
    """The blocks with every directive replaced. Raises SourceError for one that is not known."""
    filled: list[Block] = []
    rest = list(blocks)
    while rest:
        block = rest.pop(0)
        if not isinstance(block, Directive):
            filled.append(block)
        elif block.name == "keys":
            if not rest or not isinstance(rest[0], Entries):
                raise SourceError(f"{{keys {block.arguments[0]}}} has no definitions behind it")
            definitions = rest.pop(0)
            assert isinstance(definitions, Entries)
            place, *without = block.arguments
            filled.append(explained_keys(place, definitions, *without))
        else:
            filled.append(_table(block))
    return filled


def _table(directive: Directive) -> Entries:
    match directive.name:
        case "exit-codes":
            return exit_codes()
        case "health-codes":
            items = [Item(f"**{code}**", sentence(text)) for code, text in HEALTH_SENTENCES.items()]
            return Entries(tuple(items), compact=True)
        case "environment":
            names = directive.arguments or tuple(ENVIRONMENT)
            return Entries(tuple(Item(f"`{n}`", sentence(ENVIRONMENT[n])) for n in names))
        case "files":
            return Entries(tuple(Item(f"`{n}`", sentence(text)) for n, text in FILES.items()))
        case "settings":
            return Entries(tuple(Item(f"`{each.name}`", _about(each)) for each in SETTINGS))
        case "verbs":
            return Entries(
                tuple(Item(f"k3ctl-{name}(1)", verb.summary) for name, verb in VERBS.items())
            )
    raise SourceError(f"there is no table {{{directive.name}}}")


def _about(setting: Setting) -> str:
    variables = " or ".join(f"`{name}`" for name in setting.variables)
    begins_with_value = setting.about.split()[0] in setting.choices
    about = f"{setting.about}." if begins_with_value else sentence(setting.about)
    return f"{about} {variables} stands in for it."


def exit_codes(*, states: bool = False) -> Entries:
    """The table; with `states` as of a command that reports one."""
    told = {int(code): text for code, text in EXIT_SENTENCES.items()}
    told |= HEALTH_SENTENCES if states else {}
    items = [Item(f"**{code}**", sentence(text)) for code, text in told.items()]
    return Entries(tuple(items), compact=True)


def sentence(text: str) -> str:
    """A table's words as a sentence; a name that it begins with keeps its letters."""
    first = text.split()[0]
    begun = text if first.startswith(("$", "--", "k3")) else text[:1].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."
