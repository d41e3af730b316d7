"""Why nodes are not well, each said once and with the node's name once."""

from __future__ import annotations

from collections.abc import Iterable


def without_name(node: str, reason: str) -> str:
    """The reason without the node's name in front: for a line that begins with it."""
    return reason.removeprefix(f"{node}: ")


def about(node: str, reason: str) -> str:
    """A sentence that begins with the node's name, whether the reason does or not."""
    named = reason.startswith((f"{node}: ", f"{node} "))
    return reason if named else f"{node}: {reason}"


def together(reasons: Iterable[tuple[str, str]]) -> str:
    """One sentence for (node, reason) pairs; nodes with the same reason share it."""
    nodes: dict[str, list[str]] = {}
    for node, reason in reasons:
        nodes.setdefault(without_name(node, reason), []).append(node)
    return "; ".join(
        f"{', '.join(names)}: {reason}" if len(names) > 1 else about(names[0], reason)
        for reason, names in nodes.items()
    )
