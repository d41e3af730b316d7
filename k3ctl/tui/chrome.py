"""What stands around the panes: the pod's line, the panes' keys, banners, and the foot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from textual.binding import Binding

from k3ctl.client.map_name import map_name
from k3ctl.tui.ink import BLANK, Line, Span, cut, line, quiet, spread, strong, width_of
from k3ctl.tui.marks import Marks
from k3ctl.tui.pane import PaneSpec
from k3ctl.tui.snapshot import Snapshot


def clock(at_ms: int) -> str:
    """Time of day here."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%H:%M:%S")


def age(age_s: float) -> str:
    """How old, in the unit that reads best."""
    if age_s < 120:
        return f"{age_s:.0f} s"
    if age_s < 7200:
        return f"{age_s / 60:.0f} min"
    return f"{age_s / 3600:.0f} h" if age_s < 172_800 else f"{age_s / 86_400:.0f} d"


def top_line(snapshot: Snapshot, marks: Marks, width: int) -> Line:
    """The pod, its state and map; at the end how the source of frames does."""
    source = source_words(snapshot, marks)
    frame = snapshot.frame
    if frame is None:
        return spread(line(strong(" k3pod")), source, width, marks.more)
    gap = f"  {marks.separator}  "
    lost = Span(f" {marks.states['unknown']}", "warn") if snapshot.freshness == "lost" else ""
    pieces = [
        line(" ", strong(frame.pod), "  ", marks.state(frame.state), lost),
        line(quiet("epoch "), f"{frame.epoch}", quiet(" of "), map_name(frame.placement)),
        line(quiet("model "), frame.model, f" {frame.dtype}"),
        line(quiet("up "), age(frame.uptime_s)),
    ]
    room = width - width_of(source) - 1
    shown = pieces[0]
    for piece in pieces[1:]:
        longer = line(shown, quiet(gap), piece)
        if width_of(longer) > room:
            break
        shown = longer
    return spread(shown, source, width, marks.more)


def source_words(snapshot: Snapshot, marks: Marks) -> Line:
    """live 12:03:41, late, lost, paused: a word beside its ink."""
    frame = snapshot.frame
    time = "" if frame is None else clock(frame.at_ms)
    old = age(snapshot.age_s)
    match snapshot.source:
        case "live":
            return line(Span("live ", "good"), time, " ")
        case "late":
            return line(Span(f"late, {old} old ", "warn"))
        case "lost":
            word = "no answer" if frame is None else f"lost, {old} old"
            return line(Span(f"{marks.states['unknown']} {word} ", "bad"))
        case "paused":
            return line(Span("paused ", "warn"), time, " ")
        case "replay":
            return line(Span("replay ", "accent"), time, " ")
        case _:
            return line(quiet("connecting "))


def tabs_line(panes: Sequence[PaneSpec], current: str, marks: Marks, width: int) -> Line:
    """The panes and their keys; where there is no room, titles give way to keys."""
    for gap, titled in ((2, True), (1, True), (1, False)):
        shown = _tabs(panes, current, marks, gap, titled)
        if width_of(shown) <= width:
            break
    return cut(shown, width, marks.more)


def _tabs(panes: Sequence[PaneSpec], current: str, marks: Marks, gap: int, titled: bool) -> Line:
    spans: list[Span] = []
    for pane in panes:
        if pane.name == current:
            spans += [
                Span(marks.cursor, "accent"),
                Span(f"{pane.key} {pane.title} ", "here"),
            ]
        else:
            title = f" {pane.title}" if titled else ""
            spans += [Span(" " * gap), Span(pane.key, "accent"), Span(title, "quiet")]
            spans.append(Span(" " * (gap - 1)))
    return tuple(span for span in spans if span.text)


def banner_lines(
    snapshot: Snapshot,
    marks: Marks,
    width: int,
    *,
    read_only: str | None,
    filtered: str | None,
    playing: bool,
) -> list[Line]:
    """What has to be known before anything is believed or done; none in the usual case."""
    lines: list[Line] = []
    frame = snapshot.frame
    if snapshot.source == "replay" and frame is not None:
        when = datetime.fromtimestamp(frame.at_ms / 1000).astimezone()
        word = "playing" if playing else "standing"
        lines.append(
            line(
                Span(" REPLAY ", "here"),
                strong(f" {when:%Y-%m-%d %H:%M:%S %Z}"),
                quiet(f"  {word}; [ ] step, {{ }} a minute, @ to a time, space plays"),
            )
        )
    elif snapshot.source in ("lost", "late") and snapshot.reason:
        hint = f"  {snapshot.hint}" if snapshot.hint else ""
        lines.append(line(" ", Span(snapshot.reason, "bad"), quiet(hint)))
    if read_only is not None and snapshot.source != "replay":
        lines.append(line(Span(" READ-ONLY ", "here"), quiet(f" {read_only}")))
    if filtered is not None:
        lines.append(line(" ", Span(filtered, "accent"), quiet("  Esc clears")))
    return [cut(each, width, marks.more) for each in lines]


KEY_NAMES = {
    "escape": "esc", "enter": "enter", "question_mark": "?", "slash": "/", "colon": ":",
    "left_square_bracket": "[", "right_square_bracket": "]", "left_curly_bracket": "{",
    "right_curly_bracket": "}", "at": "@", "space": "space", "pageup": "pgup",
    "pagedown": "pgdn", "exclamation_mark": "!", "plus": "+", "minus": "-", "comma": ",",
}  # fmt: skip


def key_name(binding: Binding) -> str:
    """A key as it is written on a keyboard."""
    if binding.key_display:
        return binding.key_display
    return KEY_NAMES.get(binding.key, binding.key.replace("ctrl+", "^"))


def footer_line(bindings: Sequence[Binding], marks: Marks, width: int, right: Line = BLANK) -> Line:
    """Keys and what they do, as many as fit; the last ones, help and leaving, always do."""
    hints = [
        line(Span(key_name(each), "accent"), quiet(f" {each.description}")) for each in bindings
    ]
    kept, tail = hints[:-2], hints[-2:]
    room = width - 2 - width_of(right) - sum(width_of(each) + 2 for each in tail)
    shown: list[Span] = [Span(" ")]
    for hint in kept:
        if width_of(hint) + 2 > room:
            break
        shown += [*hint, Span("  ")]
        room -= width_of(hint) + 2
    for hint in tail:
        shown += [*hint, Span("  ")]
    return spread(tuple(shown), right, width, marks.more)
