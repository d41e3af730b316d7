"""How long k3ctl takes cold, beside Python: python kernels/bench/cold_start.py [--home DIR].

Every command is a process of its own, commands in turns, output thrown away. Shown are the best
and the median of each, and their ratio to those of `python -c pass`, which is the same
interpreter with the same site packages.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

K3CTL = str(Path(sys.executable).with_name("k3ctl"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "k3ctl status --json": [K3CTL, "status", "--json"],
    "k3ctl status": [K3CTL, "status"],
    "k3ctl health": [K3CTL, "health"],
    "k3ctl --version": [K3CTL, "--version"],
    "k3ctl --help": [K3CTL, "--help"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", help="the pod that is asked; else as k3ctl finds it")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    at_home = ["--home", options.home] if options.home else []
    taken_ms: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.rounds):
        for name, command in COMMANDS.items():
            arguments = [*command, *(at_home if command[0] == K3CTL else [])]
            begun = time.perf_counter()
            subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            taken_ms[name].append(1e3 * (time.perf_counter() - begun))
    least, middle = (
        {name: of(each) for name, each in taken_ms.items()} for of in (min, statistics.median)
    )
    bare = next(iter(COMMANDS))
    print(f"{'COMMAND':20} {'BEST MS':>8} {'RATIO':>6} {'MEDIAN MS':>10} {'RATIO':>6}")
    for name in COMMANDS:
        print(
            f"{name:20} {least[name]:8.1f} {least[name] / least[bare]:6.1f} "
            f"{middle[name]:10.1f} {middle[name] / middle[bare]:6.1f}"
        )
    print(f"measured, {options.rounds} rounds")


if __name__ == "__main__":
    main()
