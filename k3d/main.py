"""`k3d`: the daemon of a node, and the model without a pod. Heavy imports wait for their verb."""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from k3d import __version__
from k3d.errors import ConfigError, ExitCode, K3Error
from k3d.staging.arguments import add_bank_verbs

MOST_TOKENS = 2**20
"""The longest context that Kimi-K3 has."""
MOST_CHUNK = 2**16
MOST_PREFIX_MIB = 2**20
MOST_ROUNDS = 1000
MOST_DESCRIPTORS = 2**16
IDS_HINT = "write a JSON list of token ids, as [163584, 1008, 290]"


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns its exit code. Errors are one sentence on stderr."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except K3Error as error:
        if getattr(options, "json", False):
            _say(json.dumps(error.document()))
        else:
            _say(f"k3d {options.verb}: {error.message}")
            if error.hint:
                _say(f"  {error.hint}")
        return int(error.code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPT)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.FAILED)


def _say(words: str) -> None:
    """Words go to stderr; stdout is for data."""
    sys.stderr.write(f"{words}\n")


def _put(data: str) -> None:
    sys.stdout.write(f"{data}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="k3d", description="The k3pod daemon of one node.")
    parser.add_argument("--version", action="version", version=f"k3d {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    station = verbs.add_parser("station", help="run the Station of a pod")
    station.add_argument(
        "--placement", metavar="NAME|FILE", help="placement policy, a name or a TOML file"
    )
    station.add_argument("--dtype", choices=("bf16", "fp32"), help="activation type")
    station.add_argument("--chunk", metavar="N", type=_chunk, help="prompt tokens a pass")
    station.add_argument(
        "--transport", choices=("shm", "tcp", "inproc"), help="how the sparks are reached"
    )
    station.add_argument(
        "--drafter", metavar="DIR|auto|none", help="a drafter's folder, auto or none"
    )
    station.add_argument(
        "--prefix-mib", metavar="N", type=_prefix_mib, help="MiB for reuse of prefixes, 0 for none"
    )
    station.add_argument(
        "--synthetic-acceptance", type=float, metavar="LENGTH",
        help="accept drafts unchecked up to this mean length; for benchmarks on loopback only",
    )  # fmt: skip
    station.set_defaults(run=_station)

    spark = verbs.add_parser("spark", help="run one spark of a pod")
    spark.add_argument("--name", required=True, help="the node's name in the description")
    spark.add_argument(
        "--model-digest", metavar="HEX", help="refuse a Station that serves another model"
    )
    spark.add_argument("--transport", choices=("shm", "tcp"), help="how the Station reaches it")
    spark.set_defaults(run=_spark)
    bench = verbs.add_parser("bench", help="measure this machine; see k3ctl bench")
    bench.add_argument("what", choices=("pod", "tiers"))
    bench.add_argument("--tokens", metavar="N", type=_tokens, default=64, help="tokens a prompt")
    bench.add_argument("--rounds", metavar="N", type=_rounds, default=3, help="rounds of each side")
    bench.add_argument("--transport", choices=("shm", "tcp"), help="of the spark processes")
    bench.add_argument(
        "--placement", metavar="NAME|FILE", help="placement policy, a name or a TOML file"
    )
    bench.add_argument("--json", action="store_true", help="errors as JSON too")
    bench.set_defaults(run=_bench, dtype=None, chunk=None)
    check = verbs.add_parser("check", help="answer requests in pods of its own; see k3ctl check")
    check.add_argument(
        "--cases", metavar="FILE", required=True, type=Path, help="JSON of the requests"
    )
    check.add_argument("--full", action="store_true", help="many pods, not a few")
    check.add_argument("--dtype", choices=("bf16", "fp32"), help="activation type")
    check.add_argument(
        "--placement", metavar="NAME|FILE", help="placement policy, a name or a TOML file"
    )
    check.add_argument("--json", action="store_true", help="errors as JSON too")
    check.set_defaults(run=_check, transport=None, chunk=None)
    add_bank_verbs(verbs)
    for daemon in (station, spark, bench, check):
        daemon.add_argument("--home", metavar="DIR", help="the pod's home; see k3ctl(1)")
        daemon.add_argument(
            "--pod",
            metavar="NAME|FILE",
            default="embedded",
            help="pod description, a name or a file",
        )

    logits = verbs.add_parser("logits", help="logits of given token ids, without a pod")
    logits.add_argument(
        "--out", metavar="FILE", required=True, type=Path, help="float64 .npy [ids, vocab]"
    )
    logits.set_defaults(run=_logits)
    generate = verbs.add_parser("generate", help="greedy continuation of ids, without a pod")
    generate.add_argument(
        "--max-tokens", metavar="N", type=_tokens, default=64, help="longest continuation"
    )
    generate.set_defaults(run=_generate)
    for offline in (logits, generate):
        offline.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="its directory")
        offline.add_argument(
            "--ids", metavar="FILE", required=True, type=Path, help="JSON list of token ids"
        )
        offline.add_argument(
            "--dtype", choices=("bf16", "fp32"), default="bf16", help="activation type"
        )
        offline.add_argument("--chunk", metavar="N", type=_chunk, default=256, help="tokens a pass")
        offline.add_argument("--json", action="store_true", help="JSON on stdout, errors too")
    return parser


def _whole(text: str, most: int) -> int:
    """A number of an argument, from 1 to `most`. argparse turns the error into a sentence."""
    # Short enough to be one: Python refuses to read numbers of thousands of digits.
    value = int(text) if text.isdecimal() and len(text) < 20 else 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 to {most:,}")
    return value


def _tokens(text: str) -> int:
    return _whole(text, MOST_TOKENS)


def _chunk(text: str) -> int:
    return _whole(text, MOST_CHUNK)


def _prefix_mib(text: str) -> int:
    return 0 if text == "0" else _whole(text, MOST_PREFIX_MIB)


def _rounds(text: str) -> int:
    return _whole(text, MOST_ROUNDS)


def _read_ids(path: Path) -> list[int]:
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"ids file {path} cannot be read: {error}", hint=IDS_HINT) from None
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise ConfigError(f"ids file {path} is not a JSON list of token ids", hint=IDS_HINT)
    if not ids:
        raise ConfigError(f"ids file {path} holds no token id", hint=IDS_HINT)
    return ids


def _logits(options: argparse.Namespace) -> int:
    import numpy as np

    from k3d.engine.offline import OfflineModel

    ids = _read_ids(options.ids)
    offline = OfflineModel(options.checkpoint, options.dtype, min(options.chunk, len(ids)))
    logits = offline.logits(ids, min(options.chunk, len(ids))).numpy()
    try:
        with options.out.open("wb") as file:
            np.save(file, logits)
    except OSError as error:
        raise K3Error(f"{options.out} cannot be written: {error.strerror or error}") from None
    _say_leftover(offline.leftover)
    if options.json:
        _put(json.dumps({"schema": "k3d.logits/1", "shape": logits.shape, "out": str(options.out)}))
    return int(ExitCode.OK)


def _generate(options: argparse.Namespace) -> int:
    from k3d.engine.offline import OfflineModel

    ids = _read_ids(options.ids)
    chunk = min(options.chunk, len(ids))
    offline = OfflineModel(options.checkpoint, options.dtype, chunk)
    tokens = offline.generate(ids, options.max_tokens, chunk)
    _say_leftover(offline.leftover)
    _put(json.dumps({"ids": tokens}) if options.json else " ".join(map(str, tokens)))
    return int(ExitCode.OK)


def _say_leftover(leftover: object) -> None:
    from k3d.model.checkpoint import Leftover

    assert isinstance(leftover, Leftover)
    if leftover.vision_tensors:
        _say(
            f"k3d: skipped {leftover.vision_tensors} vision tensors, {leftover.vision_bytes} bytes"
        )


def _station(options: argparse.Namespace) -> int:
    _settle_process()
    from k3d.station.daemon import run_station

    return run_station(options)


def _spark(options: argparse.Namespace) -> int:
    _settle_process()
    from k3d.experts.frame_worker import worker_with_banks
    from k3d.node.daemon import run_spark
    from k3d.store.home import banks_directory, resolve_home

    banks = banks_directory(resolve_home(options.home)) / options.name
    return run_spark(options, worker_with_banks(banks))


def _bench(options: argparse.Namespace) -> int:
    from k3d.placement.pod import load_pod
    from k3d.station.bench_pod import bench_pod
    from k3d.station.bench_tiers import bench_tiers
    from k3d.station.options import station_options
    from k3d.store.home import resolve_home

    home = resolve_home(options.home)
    chosen = station_options(options, load_pod(options.pod, home))
    measure = bench_tiers if options.what == "tiers" else bench_pod
    _put(json.dumps(measure(home, options.pod, chosen, options.tokens, options.rounds)))
    return int(ExitCode.OK)


def _check(options: argparse.Namespace) -> int:
    _exit_on_sigterm()  # ends the sparks too
    from k3d.placement.pod import load_pod
    from k3d.station.check_pods import check_pods, read_cases
    from k3d.station.options import station_options
    from k3d.store.home import resolve_home

    home = resolve_home(options.home)
    asked = read_cases(options.cases)
    chosen = station_options(options, load_pod(options.pod, home))

    def emit(line: dict[str, object]) -> None:
        _put(json.dumps(line))
        sys.stdout.flush()

    check_pods(home, options.pod, chosen, asked, options.full, emit)
    return int(ExitCode.OK)


def _settle_process() -> None:
    """What a daemon asks of the system before it starts."""
    _share_arenas()
    _take_descriptors()
    _exit_on_sigterm()


def _share_arenas() -> None:
    """Let a daemon's threads share two malloc arenas: glibc gives each its own and keeps them."""
    m_arena_max = -8
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(m_arena_max, 2)


def _take_descriptors() -> None:
    """Raise the soft limit of open files towards the hard one: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # it stays as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _exit_on_sigterm() -> None:
    def leave(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, leave)


if __name__ == "__main__":
    sys.exit(main())
