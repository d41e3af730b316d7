"""Copies of one command that run at the same time, as cron runs them."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.ctl.conftest import K3CTL, Ran

FEW, MANY = 8, 50


def copies(number: int, *arguments: str) -> list[Ran]:
    """What so many copies at the same time did, with --json."""
    children = [
        subprocess.Popen(
            [*K3CTL, *arguments, "--json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(number)
    ]  # fmt: skip
    ran = []
    for child in children:
        out, err = child.communicate(timeout=600)
        ran.append(Ran(child.returncode, out, err))
    return ran


def one_effect(ran: list[Ran]) -> dict[str, Any]:
    """The document of the copy that had the effect; the others gave the same and named it."""
    assert [copy.code for copy in ran] == [0] * len(ran), [c.err for c in ran if c.code][:1]
    assert not [copy.err for copy in ran if "Traceback" in copy.err]
    documents = [copy.document for copy in ran]
    requests = [document.pop("request") for document in documents]
    (first,) = (request for request in requests if not request["repeated"])
    for document, request in zip(documents, requests, strict=True):
        assert document == documents[0]
        assert request["pid"] == first["pid"]
        assert request["repeated"] == (request["done_ms"] is not None)
    return documents[0]
