"""The arguments of `k3d bank`. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

LEAST_RATE = 256 * 1024
"""Slower than this a receiver would take its sender for gone."""
A_YEAR_S = 365 * 86_400
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
Verbs = argparse._SubParsersAction


def add_bank_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """`k3d bank plan|build|stage|receive|verify|scrub|ls|gc`."""
    bank = verbs.add_parser("bank", help="build, send and verify banks; see k3ctl bank")
    actions = bank.add_subparsers(dest="action", required=True, metavar="ACTION")
    plan = actions.add_parser("plan", help="what building would write")
    build = actions.add_parser("build", help="write the banks of a pod")
    stage = actions.add_parser("stage", help="send the sparks their slices")
    receive = actions.add_parser("receive", help="take banks for one spark")
    verify = actions.add_parser("verify", help="read and hash every bank again")
    scrub = actions.add_parser("scrub", help="read and hash a share of the banks again")
    ls = actions.add_parser("ls", help="list banks")
    gc = actions.add_parser("gc", help="remove what no map in force needs")
    for parser in (plan, build, stage, receive, verify, scrub, ls, gc):
        parser.add_argument("--home", metavar="DIR", help="the pod's home; see k3ctl(1)")
        parser.add_argument(
            "--pod",
            metavar="NAME|FILE",
            default="embedded",
            help="pod description, a name or a file",
        )
        parser.add_argument("--json", action="store_true", help="errors as JSON")
        parser.add_argument("--progress", action="store_true", help="a JSON line now and then")
        parser.set_defaults(run=_run)
    for parser in (plan, build, stage, verify, scrub):
        parser.add_argument(
            "--placement", metavar="NAME|FILE", help="placement policy or map, a name or a file"
        )
        parser.add_argument(
            "--as-released", action="store_true", help="leave MXFP4 as it is, not recast to NVFP4"
        )
    for parser in (plan, build):
        parser.add_argument("--no-whole", action="store_true", help="no bank of the Station")
        parser.add_argument("--no-slices", action="store_true", help="no slices of sparks")
    for parser in (build, stage, gc):
        parser.add_argument(
            "--if-token", metavar="TOKEN", help="only from the state that this token is of"
        )
    for parser in (build, stage, scrub, gc):
        parser.add_argument(
            "--lock-wait",
            metavar="SECONDS",
            type=_seconds,
            default=0.0,
            help="wait so many seconds for other work",
        )
    build.add_argument(
        "--sums", metavar="FILE", type=Path, help="SHA-256 sums of the shards, as sha256sum's"
    )
    for parser in (stage, verify, scrub):
        parser.add_argument(
            "--rate", metavar="BYTES", type=_rate, help="most bytes a second; 50M, 2G"
        )
    for parser in (stage, scrub, gc):
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    stage.add_argument(
        "--node", metavar="NAME", action="append", help="only to this spark; may be repeated"
    )
    stage.add_argument(
        "--to", action="append", default=[], metavar="NODE=HOST:PORT", help="where a spark receives"
    )
    receive.add_argument("--name", required=True, help="the spark's name in the description")
    receive.add_argument("--listen", metavar="HOST:PORT", help="else the port after fabric_port")
    receive.add_argument("--transfers", metavar="N", type=_count, help="end after so many")
    receive.add_argument("--watch-stdin", action="store_true", help="end when standard input does")
    verify.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="bank files; else all of the home"
    )
    verify.add_argument("--repair", action="store_true", help="put right what can be")
    verify.add_argument("--source", action="store_true", help="the checkpoint too")
    scrub.add_argument(
        "--share", metavar="SHARE", type=_share, default=1 / 30, help="of all bytes a day, 0 to 1"
    )
    scrub.add_argument("--no-repair", action="store_true", help="only name what is damaged")


def _run(options: argparse.Namespace) -> int:
    from k3d.staging.commands import run_bank

    return run_bank(options)


def _rate(text: str) -> float:
    """Bytes a second: a number with K, M or G behind it or none."""
    unit = text[-1:].lower() if text[-1:].isalpha() else ""
    value = _number(text[: len(text) - len(unit)]) * _UNITS.get(unit, math.nan)
    if not LEAST_RATE <= value < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no rate of at least {LEAST_RATE // 1024}K bytes a second"
        )
    return value


def _number(text: str) -> float:
    """NaN for what is none, which no bound lets through."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _seconds(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= A_YEAR_S:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of seconds")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no share above 0 and up to 1")
    return value


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() and len(text) < 10 else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number of 1 or more")
    return value
