"""Make docs/console.svg: the console on an embedded pod that answers questions.

    .venv/bin/python docs/screenshot.py

The picture is the one that the key `s` saves, without the fonts that it would load from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from k3ctl.client.frames import LiveFrames
from k3ctl.tui.app import ConsoleApp
from k3ctl.tui.station_calls import StationCalls

PICTURE = Path(__file__).with_name("console.svg")
SIZE = (120, 40)
FRAMES = 65
"""Seconds of history that the charts show."""
LONGEST_S = 240.0
QUESTIONS = ("What does ls do?", "What is tar?", "How do I copy a folder?")
K3CTL = [sys.executable, "-c", "from k3ctl.cli.main import main; main()"]


@contextlib.contextmanager
def pod(home: Path) -> Iterator[None]:
    """The embedded pod with four sparks, and three that ask it one question after another."""
    environment = {**os.environ, "K3_HOME": str(home)}
    subprocess.run([*K3CTL, "pod", "up", "embedded"], check=True, env=environment)
    ask = "; ".join(f'{" ".join(map(_quoted, K3CTL))} chat -q "{each}"' for each in QUESTIONS)
    asking = [
        subprocess.Popen(
            ["sh", "-c", f"while :; do {ask}; done"],
            env=environment,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in QUESTIONS
    ]
    try:
        yield
    finally:
        for each in asking:
            os.killpg(each.pid, 15)
            each.wait()
        subprocess.run([*K3CTL, "pod", "down"], check=True, env=environment)


def _quoted(word: str) -> str:
    return f"'{word}'"


async def picture(home: Path) -> str:
    """The console's first screen once it has a history; as SVG."""
    app = ConsoleApp(
        LiveFrames(home), live=StationCalls(home), home=home, theme="k3-dark", interval_s=1.0
    )
    ended = time.monotonic() + LONGEST_S
    seen: set[int] = set()
    async with app.run_test(size=SIZE) as pilot:
        while len(seen) < FRAMES and time.monotonic() < ended:
            await pilot.pause(0.2)
            if app.snapshot.frame is not None:
                seen.add(app.snapshot.frame.at_ms)
        return app.export_screenshot(title="k3ctl")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, pod(Path(folder)):
        svg = asyncio.run(picture(Path(folder)))
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S), encoding="utf-8")
    sys.stdout.write(f"{PICTURE}\n")


if __name__ == "__main__":
    main()
