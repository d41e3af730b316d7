"""What is told of one matter by frames, events, alerts and logs, as one trouble."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from k3ctl.client.report_events import POD, Trouble
from k3ctl.client.sentence_kind import sentence_kind

WORST_FIRST = ("alert", "critical", "error", "warning")


def merged(troubles: Sequence[Trouble]) -> list[Trouble]:
    """Each matter once: sentences of one kind about one subject, from first to last. A frame, an
    event, an alert and a log may all tell of one."""
    alike: dict[str, list[Trouble]] = {}
    for each in sorted(troubles, key=lambda trouble: trouble.until_ms):
        alike.setdefault(sentence_kind(each.sentence), []).append(each)
    return [_one(about) for told in alike.values() for about in _by_subject(told)]


def _by_subject(alike: Sequence[Trouble]) -> list[list[Trouble]]:
    """Sentences of one kind, apart where they are about different nodes.

    A sentence that names its own subject is about that, whoever says it; one of the pod as a whole
    is about the only node of which the same is said.
    """
    subjects = dict.fromkeys(each.subject for each in alike if each.subject != POD)
    if len(subjects) <= 1 or any(_names(each.sentence, each.subject) for each in alike):
        return [list(alike)]
    apart: dict[str, list[Trouble]] = {}
    for each in alike:
        apart.setdefault(each.subject, []).append(each)
    return list(apart.values())


def _one(told: Sequence[Trouble]) -> Trouble:
    """The newest of what was told of one matter, with the time, the weight and the command of
    all."""
    newest = told[-1]
    worst = min(reversed(told), key=lambda trouble: badness(trouble.severity))
    subjects = [each.subject for each in reversed(told) if each.subject != POD] or [POD]
    commands = [each.command for each in (worst, *told) if each.command]
    return replace(
        newest,
        at_ms=min(each.at_ms for each in told),
        until_ms=max(each.until_ms for each in told),
        severity=worst.severity,
        subject=next((s for s in subjects if _names(newest.sentence, s)), subjects[0]),
        command=commands[0] if commands else None,
        count=max(each.count for each in told),
    )


def _names(sentence: str, subject: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(subject)}(?![\w-])", sentence) is not None


def badness(severity: str) -> int:
    """0 for the worst; what is not known comes last."""
    return WORST_FIRST.index(severity) if severity in WORST_FIRST else len(WORST_FIRST)
