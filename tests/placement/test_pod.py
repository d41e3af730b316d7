"""Pod descriptions: what is read, and what is refused with its key path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k3d.errors import CheckpointError, ConfigError, NotFound
from k3d.placement.model_facts import facts_of, read_model_facts
from k3d.placement.pod import load_pod, parse_pod
from k3d.placement.policy_files import find_policy, policy_directories

STATION = """
[[node]]
name = "station"
role = "station"
[[node.tier]]
name = "hbm"
slots = 10
"""
SPARK = """
[[node]]
name = "spark-1"
role = "spark"
[[node.tier]]
name = "spark"
slots = 20
"""
HEAD = 'schema = "k3-pod/1"\nname = "p"\nmodel = "m"\n'
FACTS = """
[model_facts]
layers = 13
moe_layers = 12
experts = 64
expert_bytes = 20000
"""
GOOD = HEAD + STATION + SPARK

SHIPPED = sorted(path.stem for path in policy_directories("pods")[0].glob("*.toml"))


def test_a_small_pod() -> None:
    pod = parse_pod(GOOD.encode())
    assert pod.station.name == "station"
    assert [spark.name for spark in pod.sparks] == ["spark-1"]
    assert pod.slots == {"hbm": 10, "spark": 20}
    assert pod.slice_count == 1
    assert pod.slice_index("spark-1") == 0
    assert (pod.transport, pod.dtype, pod.chunk) == ("shm", "bf16", 256)
    assert pod.node("station").host == "127.0.0.1"


def test_the_digest_is_of_the_content() -> None:
    commented = parse_pod(GOOD.replace("slots = 10", "slots = 10 # ten").encode())
    assert commented.digest == parse_pod(GOOD.encode()).digest
    other = parse_pod(GOOD.replace("slots = 10", "slots = 11").encode())
    assert other.digest != commented.digest


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_shipped_is_sound(name: str) -> None:
    pod = load_pod(name)
    assert pod.name == name
    if name.startswith("embedded"):
        assert all(node.simulated for node in pod.nodes)
        assert set(pod.slots.values()) == {768}


def test_the_real_pod_has_the_published_slots() -> None:
    pod = load_pod("station-8-sparks")
    assert pod.slots == {"hbm": 9_558, "rtx": 5_177, "grace": 24_852, "spark": 8 * 5_704}
    assert sum(pod.slots.values()) == 85_219
    facts = pod.model_facts
    assert facts is not None
    assert facts.moe_layers * facts.experts == 82_432
    assert facts.moe_layer_numbers == range(1, 93)


WRONG = [
    ("not TOML", GOOD + "x ="),
    ("schema", GOOD.replace("k3-pod/1", "k3-pod/2")),
    ("name", GOOD.replace('name = "p"\n', "")),
    ("slots", GOOD.replace("slots = 20", "slots = 0")),
    (r"node\[1\].tier\[0\].slots", GOOD.replace("slots = 20", f"slots = {10**30}")),
    (r"node\[1\].tier\[0\].slots", GOOD.replace("slots = 20", f"slots = {2**24 + 1}")),
    ("model_facts.layers", HEAD + FACTS.replace("layers = 13", "layers = 5000", 1) + STATION),
    (
        "4096 in each of 2048",
        HEAD + FACTS.replace("12", "2048").replace("13", "2048").replace("64", "4096") + STATION,
    ),
    ("name: '' cannot name a pod", GOOD.replace('name = "p"', 'name = ""')),
    ("name: 'ppp.* cannot name a pod", GOOD.replace('name = "p"', f'name = "{"p" * 65}"')),
    ("name: '.x1b.2Jp' holds a control", GOOD.replace('name = "p"', r'name = "\u001b[2Jp"')),
    ("name: 'a.nb' cannot name a pod", GOOD.replace('name = "p"', r'name = "a\nb"')),
    ("model: 'a.x00b' holds a control", GOOD.replace('model = "m"', r'model = "a\u0000b"')),
    (
        r"node\[1\].host: .* holds a control",
        GOOD.replace(
            'role = "spark"',
            'role = "spark"\n'
            r'host = "\u202efar"',
        ),
    ),
    ("a key: .* holds a control", GOOD.replace('model = "m"', 'model = "m"\n' r'"\u0007" = 1')),
    ("cannot name a node", GOOD.replace('"spark-1"', f'"{"s" * 65}"')),
    (r"node\[1\].tier\[0\].slots", GOOD.replace("slots = 20", 'slots = "many"')),
    (r"node\[0\].tier\[0\].name", GOOD.replace('"hbm"', '"attic"')),
    ("speed", GOOD.replace("slots = 20", "slots = 20\nspeed = 3")),
    (r"node\[1\].role", GOOD.replace('role = "spark"', 'role = "helper"')),
    ("chunk", GOOD.replace('model = "m"', 'model = "m"\nchunk = 0')),
    ("transport", GOOD.replace('model = "m"', 'model = "m"\ntransport = "verbs"')),
    (
        r"node\[0\].http_port",
        GOOD.replace('role = "station"', 'role = "station"\nhttp_port = 70000'),
    ),
    ("exactly one station and this one has 0", HEAD + SPARK),
    ("exactly one station and this one has 2", GOOD + STATION.replace('"station"', '"s2"', 1)),
    ("two nodes named 'spark-1'", GOOD + SPARK),
    ("cannot name a node", GOOD.replace('"spark-1"', '"Spark 1"')),
    ("cannot name a node", GOOD.replace('"spark-1"', '"pod"')),
    ("3 sparks cannot share", GOOD + SPARK.replace("-1", "-2") + SPARK.replace("-1", "-3")),
    ("differ in slots", GOOD + SPARK.replace("-1", "-2").replace("20", "21")),
    ("cannot hold a tier 'spark'", GOOD.replace('name = "hbm"', 'name = "spark"')),
    ("cannot hold a tier 'hbm'", GOOD.replace('name = "spark"\nslots', 'name = "hbm"\nslots')),
    ("has two tiers 'hbm'", GOOD.replace(SPARK, "") + '[[node.tier]]\nname="hbm"\nslots=1\n'),
    ("neither a model", GOOD.replace('model = "m"\n', "")),
    ("shm needs one machine", GOOD.replace('role = "spark"', 'role = "spark"\nhost = "far"')),
    (
        "port 80 of localhost is also station.http_port",
        GOOD.replace('role = "station"', 'role = "station"\nhttp_port = 80').replace(
            'role = "spark"', 'role = "spark"\nhost = "localhost"\nfabric_port = 80'
        ),
    ),
    (
        "port 80 of localhost is also station.http_port",
        GOOD.replace(
            'role = "station"',
            'role = "station"\nhttp_port = 80\napi_host = "localhost"\napi_port = 80',
        ),
    ),
    ("the API is the station's", GOOD.replace('role = "spark"', 'role = "spark"\napi_port = 80')),
    ("empty api_host", GOOD.replace('role = "station"', 'role = "station"\napi_host = ""')),
]


def test_the_api_listens_on_loopback_unless_it_is_told_otherwise() -> None:
    station = parse_pod(GOOD.encode()).station
    assert (station.api_host, station.api_port) == ("127.0.0.1", 0)
    text = GOOD.replace('role = "station"', 'role = "station"\napi_host = "::"\napi_port = 8000')
    station = parse_pod(text.encode()).station
    assert (station.api_host, station.api_port) == ("::", 8000)


@pytest.mark.parametrize(("sentence", "text"), WRONG)
def test_what_is_wrong_is_named(sentence: str, text: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        parse_pod(text.encode())
    assert caught.value.message.isprintable()
    assert caught.value.hint


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="not TOML"):
        parse_pod(b"\xff\xfe\x00")


def test_a_name_is_found_in_the_home_first(home: Path) -> None:
    (home / "policies" / "pods").mkdir(parents=True)
    path = home / "policies" / "pods" / "embedded.toml"
    path.write_text(GOOD)
    assert find_policy("pods", "embedded", home) == path
    assert load_pod("embedded", home).name == "p"
    assert load_pod(str(path)).name == "p"


def test_unknown_names_and_files_list_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"known: .*embedded"):
        load_pod("nope")
    with pytest.raises(NotFound, match="there is no file"):
        load_pod(str(tmp_path / "nope.toml"))
    pod = parse_pod(GOOD.encode())
    with pytest.raises(NotFound, match="its nodes: station, spark-1"):
        pod.node("spark-9")
    with pytest.raises(NotFound, match="its sparks: spark-1"):
        pod.slice_index("station")


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace("slots = 10", "slots = -1"))
    with pytest.raises(ConfigError, match=r"bad.toml: node\[0\].tier\[0\].slots"):
        load_pod(str(path))


def test_facts_come_from_the_checkpoint_when_it_is_there(tmp_path: Path) -> None:
    pod = load_pod("station-8-sparks")
    assert facts_of(pod, tmp_path) == pod.model_facts
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(
        '{"text_config": {"num_hidden_layers": 93, "first_k_dense_replace": 1, "num_experts": 896,'
        ' "routed_expert_hidden_size": 3584, "moe_intermediate_size": 3072, "other": null}}'
    )
    facts = facts_of(parse_pod(GOOD.encode()), tmp_path)
    assert facts == pod.model_facts


def test_names_may_be_long_but_not_too_long() -> None:
    longest = "s" * 64
    pod = parse_pod(GOOD.replace('"spark-1"', f'"{longest}"').encode())
    assert pod.sparks[0].name == longest


def test_a_model_path_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'.*x00b' cannot be used: embedded null"):
        read_model_facts(tmp_path / "a\0b")
    pod = parse_pod(GOOD.replace('model = "m"', 'model = "~nobody-of-this-name/m"').encode())
    with pytest.raises(NotFound, match=r"there is no model at .*~nobody-of-this-name/m"):
        facts_of(pod, tmp_path)
    with pytest.raises(NotFound, match=r"there is no file ~nobody-of-this-name/pod\.toml"):
        load_pod("~nobody-of-this-name/pod.toml")


CONFIG = {
    "num_hidden_layers": 93,
    "first_k_dense_replace": 1,
    "num_experts": 896,
    "routed_expert_hidden_size": 3584,
    "moe_intermediate_size": 3072,
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_experts": -1}, "num_experts"),
        ({"num_experts": 10**30}, "num_experts"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"first_k_dense_replace": 93}, "93 dense layers of 93"),
        ({"moe_intermediate_size": 2**40}, "moe_intermediate_size"),
    ],
)
def test_numbers_of_no_model_are_refused(
    tmp_path: Path, change: dict[str, int], sentence: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": CONFIG | change}))
    with pytest.raises(CheckpointError, match=sentence):
        read_model_facts(tmp_path)


def test_a_model_that_is_missing_or_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no model at .*: it has no config.json"):
        read_model_facts(tmp_path)
    (tmp_path / "config.json").write_text('{"text_config": {"num_hidden_layers": 3}}')
    with pytest.raises(Exception, match="first_k_dense_replace"):
        read_model_facts(tmp_path)
