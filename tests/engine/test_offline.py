"""`k3d logits` and `k3d generate`: answers, exit codes, one sentence a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from k3d.engine.engine import Engine, Limits
from k3d.engine.offline import OfflineModel
from k3d.engine.request import Request, Sampling, TokenEvent
from k3d.errors import ConfigError, ExitCode, NodeLost
from k3d.main import main
from tests.model import shard_editing as edit
from tests.model.test_lane_state import FailsIn
from tests.oracle import relative_error
from tests.tiny_checkpoint import TinyModel

Tiny = Callable[[TinyModel], Path]
MODEL = TinyModel(seed=1)
IDS = [5, 300, 41, 7, 7, 19, 258, 0, 383]


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(IDS))
    return path


def test_logits(tiny: Tiny, ids: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for chunk in ("1", "4", "256"):
        out = tmp_path / f"{chunk}.npy"
        arguments = [str(tiny(MODEL)), "--ids", str(ids), "--dtype", "fp32", "--chunk", chunk]
        assert main(["logits", *arguments, "--out", str(out), "--json"]) == ExitCode.OK
        document = json.loads(capsys.readouterr().out)
        assert document["shape"] == [len(IDS), 384]
        found.append(np.load(out))
    assert found[0].dtype == np.float64
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_generate_a_golden_continuation(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = json.loads((golden / "golden.json").read_text())
    prompt = tmp_path / "prompt.json"
    prompt.write_text(json.dumps(wanted["prompt"]))
    arguments = [str(golden), "--ids", str(prompt), "--dtype", "fp32", "--max-tokens", "6"]
    assert main(["generate", *arguments, "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"ids": wanted["greedy"][:6]}
    assert main(["generate", *arguments]) == ExitCode.OK
    assert capsys.readouterr().out == " ".join(map(str, wanted["greedy"][:6])) + "\n"


def test_a_process_of_its_own(golden: Path, tmp_path: Path) -> None:
    """As another engine's tests would call it."""
    wanted = json.loads((golden / "golden.json").read_text())
    (tmp_path / "ids.json").write_text(json.dumps(wanted["ids"]))
    command = [sys.executable, "-m", "k3d.main", "logits", str(golden), "--ids",
               str(tmp_path / "ids.json"), "--dtype", "fp32", "--chunk", "13",
               "--out", str(tmp_path / "x.npy")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = np.load(tmp_path / "x.npy")
    assert relative_error(found, np.load(golden / "logits.npy")) < 2e-5


def test_vision_is_skipped_and_said_so(
    tiny: Tiny, ids: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny(TinyModel(seed=1, vision=True))
    assert main(["generate", str(folder), "--ids", str(ids), "--max-tokens", "1"]) == 0
    captured = capsys.readouterr()
    assert "skipped 4 vision tensors" in captured.err
    assert "vision" not in captured.out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "cannot be read"),
        ("{}", "is not a JSON list"),
        ("[1, 2.5]", "is not a JSON list"),
        ("[true]", "is not a JSON list"),
        ('["1"]', "is not a JSON list"),
        ("[]", "holds no token id"),
        ("[384]", "token id 384 is not in a vocabulary of 384"),
        ("[-1]", "token id -1"),
        (f"[{10**40}]", f"token id {10**40}"),
        (None, "cannot be read"),
    ],
)
@pytest.mark.parametrize("verb", ["logits", "generate"])
def test_bad_ids(
    tiny: Tiny,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    content: str | None,
    says: str,
) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    out = ["--out", str(tmp_path / "x.npy")] if verb == "logits" else []
    assert main([verb, str(tiny(MODEL)), "--ids", str(path), *out]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
    assert not (tmp_path / "x.npy").exists()


def test_bad_checkpoints(
    tiny: Tiny, ids: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = edit.copy_of(tiny(MODEL), tmp_path / "broken")
    (folder / "model-00003-of-000010.safetensors").unlink()
    assert main(["generate", str(folder), "--ids", str(ids)]) == ExitCode.FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "model-00003-of-000010.safetensors is missing" in captured.err
    assert "Traceback" not in captured.err
    assert main(["generate", str(folder), "--ids", str(ids), "--json"]) == ExitCode.FAILED
    error = json.loads(capsys.readouterr().err)
    assert (error["type"], error["code"], error["name"]) == ("error", 1, "FAILED")
    assert "model-00003" in error["message"]
    for nothing in (tmp_path / "none", ids):
        assert main(["generate", str(nothing), "--ids", str(ids)]) == ExitCode.USAGE
        assert str(nothing) in capsys.readouterr().err


@pytest.mark.parametrize("out", ["missing/x.npy", ".", "/dev/full"])
def test_out_that_cannot_be_written(
    tiny: Tiny, ids: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    if out == "/dev/full" and not Path(out).exists():
        pytest.skip("no /dev/full here")
    path = tmp_path / out
    arguments = [str(tiny(MODEL)), "--ids", str(ids), "--out", str(path)]
    assert main(["logits", *arguments]) == ExitCode.FAILED
    message = capsys.readouterr().err
    assert f"{path} cannot be written" in message
    assert "None" not in message


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dtype", "fp16"],
        ["--chunk", "0"],
        ["--chunk", "many"],
        ["--max-tokens", "-3"],
        ["--max-tokens", "2.5"],
        ["--max-tokens", "1e9"],
        ["--max-tokens", str(10**9)],
        ["--max-tokens", str(10**30)],
        ["--max-tokens", "9" * 5000],
        ["--chunk", "65537"],
    ],
)
def test_bad_flags(ids: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["generate", "folder", "--ids", str(ids), *arguments])
    assert caught.value.code == ExitCode.USAGE
    assert arguments[0] in (said := capsys.readouterr().err)
    assert "is no whole number from 1 to" in said or arguments[0] == "--dtype"


def test_nothing_to_run(tiny: Tiny) -> None:
    model = OfflineModel(tiny(MODEL), "fp32", 4)
    with pytest.raises(ConfigError, match="no token ids"):
        model.logits([], 4)


def _decode(model: OfflineModel, experts: object, chunk: int, sampling: Sampling) -> list[int]:
    engine = Engine(model.model, experts, chunk, Limits())  # type: ignore[arg-type]
    engine.submit(Request("x", tuple(IDS), 10, sampling))
    tokens = []
    while not engine.idle:
        tokens += [e.token for e in engine.step() if isinstance(e, TokenEvent)]
    return tokens


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(1.0, 0.95, 40, 11)], ids=["greedy", "seeded"]
)
def test_chunks_and_lost_nodes_change_no_token(tiny: Tiny, dtype: str, sampling: Sampling) -> None:
    """A node that is lost in the middle of every other pass and is back at once."""
    model = OfflineModel(tiny(MODEL), dtype, 9)
    wanted = _decode(model, model.experts, 9, sampling)

    class Flaky(FailsIn):
        count = 0

        def finish(self) -> Tensor:
            if self.now == self.layer:
                Flaky.count += 1
                if Flaky.count % 2:
                    raise NodeLost("spark-1", "spark-1 stopped answering")
            return self.experts.finish()

    for chunk in (1, 4, 9):
        assert _decode(model, model.experts, chunk, sampling) == wanted
        flaky = Flaky(model.experts, 5, in_finish=True)
        assert _decode(model, flaky, chunk, sampling) == wanted
    assert Flaky.count > 10
