"""Programs that people use, unmodified, against an embedded pod with k3-mini.

K3_CLIENTS names a folder of environments, each with what its name says: virtual environments
openai, llm, litellm, lm-eval (`lm-eval[api]`, transformers, tiktoken), tools (llm-comply,
schemathesis, agentic-bench), and node (node_modules with openai, ai, @ai-sdk/openai-compatible).
A client that is not there is skipped. Nothing here needs a network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3d.model.tokenizer import PIECE_PATTERN
from k3d.store.home import create_secret, make_home
from tests.station.conftest import RunningPod

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
CLIENTS = Path(os.environ.get("K3_CLIENTS", "/nonexistent"))
MODEL = "k3-mini"
CHECKPOINT = HERE.parents[3] / "banks" / MODEL
LS = "What does ls do?"
SAYS = "ls lists directory contents."


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("embedded") / "home"
    make_home(home)
    create_secret(home)
    pod = RunningPod(home, Path("embedded-1"))
    pod.start("station", "--transport", "inproc")
    try:
        pod.wait_state("healthy", 120)
        yield pod.status()["api"]["url"]
    finally:
        pod.close()


@pytest.fixture(autouse=True)
def _nothing_is_left(url: str) -> Iterator[None]:
    """After every client the Station is at rest."""
    yield
    gauge = f'vllm:num_requests_running{{model_name="{MODEL}"}} 0.0'
    for _ in range(200):
        with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=10) as response:
            if gauge in response.read().decode():
                return
    raise AssertionError("a request is still running")


def program(environment: str, name: str) -> Path:
    path = CLIENTS / environment / "bin" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def run(url: str, folder: Path, *command: str | Path, **more: str) -> str:
    """Standard output of a client that must succeed."""
    environment = {
        **os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "any", "K3_MODEL": MODEL,
        "HOME": str(folder), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", **more,
    }  # fmt: skip
    done = subprocess.run(
        [str(part) for part in command], env=environment, cwd=folder, capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_openai_for_python(url: str, tmp_path: Path) -> None:
    run(url, tmp_path, program("openai", "python"), HERE / "openai_python.py")


def test_openai_for_node_and_the_ai_sdk(url: str, tmp_path: Path) -> None:
    node, modules = shutil.which("node"), CLIENTS / "node" / "node_modules"
    if node is None or not modules.is_dir():
        pytest.skip(f"node or {modules} is not there")
    shutil.copy(HERE / "openai_node.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(modules)
    run(url, tmp_path, node, "openai_node.mjs")


def test_litellm(url: str, tmp_path: Path) -> None:
    run(url, tmp_path, program("litellm", "python"), HERE / "litellm_client.py")


def test_llm(url: str, tmp_path: Path) -> None:
    llm = program("llm", "llm")
    entry = {"model_name": MODEL, "api_base": url, "api_key_name": "k3"}
    models = [
        {**entry, "model_id": "chat", "supports_tools": True, "supports_schema": True},
        {**entry, "model_id": "text", "completion": True},
    ]
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models))
    where = {"LLM_USER_PATH": str(tmp_path)}
    cold = ("-o", "temperature", "0")
    for more in ((), ("--no-stream",), ("-T", "llm_version")):
        command = (llm, "-m", "chat", "--key", "any", *more, LS, *cold)
        assert SAYS in run(url, tmp_path, *command, **where)
    command = (llm, "-m", "chat", "--key", "any", "--schema", "ok bool", "x", *cold)
    assert isinstance(json.loads(run(url, tmp_path, *command, **where))["ok"], bool)
    command = (llm, "-m", "text", "--key", "any", "The ls command", "-o", "max_tokens", "5")
    assert run(url, tmp_path, *command, **where)


def test_lm_eval(url: str, tmp_path: Path) -> None:
    python = program("lm-eval", "python")
    tokenizer = tmp_path / "tokenizer"
    convert = (python, HERE / "tokenizer_folder.py", CHECKPOINT, tokenizer, PIECE_PATTERN)
    run(url, tmp_path, *convert)
    write_tasks(tmp_path)
    tasks = ("--include_path", tmp_path, "--output_path", tmp_path / "out")
    arguments = (
        f"model={MODEL},base_url={url}/completions,tokenizer_backend=huggingface,"
        f"tokenizer={tokenizer},tokenized_requests=True,num_concurrent=2,max_length=2048"
    )
    harness = (program("lm-eval", "lm_eval"), "run", "--model")
    run(url, tmp_path, *harness, "local-completions", "--model_args", arguments,
        "--tasks", "choose,say", *tasks)  # fmt: skip
    assert results(tmp_path)["choose"]["acc,none"] == 1.0
    arguments = f"model={MODEL},base_url={url}/chat/completions,num_concurrent=2"
    run(url, tmp_path, *harness, "local-chat-completions", "--model_args", arguments,
        "--apply_chat_template", "--tasks", "say", *tasks)  # fmt: skip
    assert results(tmp_path)["say"]["exact_match,none"] == 1.0


def write_tasks(folder: Path) -> None:
    rows = [
        {"q": "What does ls do? ls lists directory", "choices": [" contents.", " bananas."]},
        {"q": "cp copies files and", "choices": [" directories.", " volcanoes."]},
    ]
    (folder / "choose.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "say.jsonl").write_text(json.dumps({"q": LS, "a": SAYS}) + "\n")

    def task(name: str, kind: str, **more: object) -> None:
        files = {"test": str(folder / f"{name}.jsonl")}
        text = {
            "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": files},
            "output_type": kind, "test_split": "test", "doc_to_text": "{{q}}", **more,
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(json.dumps(text))

    task("choose", "multiple_choice", doc_to_choice="{{choices}}", doc_to_target=0,
         target_delimiter="", metric_list=[{"metric": "acc"}])  # fmt: skip
    until = {"until": ["\n\n"], "max_gen_toks": 24, "temperature": 0}
    task("say", "generate_until", doc_to_target="{{a}}", generation_kwargs=until,
         metric_list=[{"metric": "exact_match"}])  # fmt: skip


def results(folder: Path) -> dict[str, dict[str, float]]:
    """Of the run that ended last."""
    files = sorted((folder / "out").rglob("results*.json"), key=lambda path: path.stat().st_mtime)
    return json.loads(files[-1].read_text())["results"]


def test_llm_comply(url: str, tmp_path: Path) -> None:
    comply = program("tools", "llm-comply")
    command = [str(comply), "--format", "openai-chat", "-u", url, "-k", "x", "-m", MODEL, "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    failed = [t for t in json.loads(done.stdout)["results"] if t["status"] == "failed"]
    # It sends a picture, and this model reads text.
    assert [test["name"] for test in failed] == ["Image Input"]


def test_schemathesis(url: str, tmp_path: Path) -> None:
    root = url.removesuffix("/v1")
    run(url, tmp_path, program("tools", "st"), "run", f"{root}/openapi.json", "--url", root,
        "--max-examples", "15", "--phases", "examples,coverage,fuzzing", "--checks",
        "not_a_server_error,content_type_conformance,response_schema_conformance,"
        "negative_data_rejection,unsupported_method",
        "--request-timeout", "120", "--seed", "1")  # fmt: skip


def test_a_load_generator(url: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run(url, tmp_path, program("tools", "abench"), "run", "--base-url", url, "--model", MODEL,
        "--backend", "openai", "--dataset-name", "random", "--system-prompt-len", "200",
        "--turns", "3", "--input-increment", "40", "--output-len", "12", "--num-sessions", "4",
        "--max-concurrency", "4", "--gap-policy", "zero", "--output-file", report)  # fmt: skip
    assert report.exists()
