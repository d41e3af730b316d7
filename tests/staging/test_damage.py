"""Damage of every kind: found, named by node, file, layer and expert, repaired, never served."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from k3d.errors import BankError, ExitCode
from k3d.experts.bank_file import Bank
from k3d.experts.bank_layout import HASH_BYTES
from k3d.model.checkpoint import Checkpoint
from tests.staging.conftest import PodHome, flip, record_at
from tests.tiny_checkpoint import TinyModel


def never_served(path: Path) -> bool:
    """Whether reading all of a bank, as a Station does, ends in an error."""
    try:
        bank = Bank(path)
    except BankError:
        return True
    try:
        bank.verify()
    except BankError:
        return True
    finally:
        bank.close()
    return False


def flip_and_repair(built: PodHome, sound: dict[str, bytes], source: random.Random) -> None:
    """One bit anywhere in one bank: found, named, refused, put right."""
    name = source.choice(sorted(sound))
    path = built.banks / name
    with_data = Bank(path)
    with_data.close()
    start = with_data.manifest.layout.data_start
    in_data = source.random() < 0.5
    at = source.randrange(start, len(sound[name])) if in_data else source.randrange(start)
    who = record_at(path, at) if in_data else None
    flip(path, at, 1 << source.randrange(8))
    assert never_served(path)
    ran = built.bank("verify")
    assert ran.code == ExitCode.FAILED
    first = ran.document["damages"][0]
    assert (first["node"], first["file"]) == ("station", str(path))
    assert first["part"] == ("record" if in_data else "manifest")
    if who is not None:
        assert (first["layer"], first["expert"]) == who
        assert len(ran.document["damages"]) == 1
    ran = built.bank("verify", "--repair")
    assert ran.code == ExitCode.OK, ran.document
    assert all(damage["repaired"] for damage in ran.document["damages"])
    assert built.files() == sound


def test_flipped_bits_are_found_named_and_repaired(built: PodHome, seed: int) -> None:
    sound, source = built.files(), random.Random(seed)
    for _ in range(6):
        flip_and_repair(built, sound, source)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_two_hundred_flipped_bits(built: PodHome, seed: int) -> None:
    sound, source = built.files(), random.Random(seed)
    for _ in range(200):
        flip_and_repair(built, sound, source)


def test_every_flipped_bit_of_a_small_bank_is_found(built: PodHome, seed: int) -> None:
    """Found by the same reading that serves; named by verify, which stands on it."""
    path, source = built.slice(1), random.Random(seed)
    size = path.stat().st_size
    for _ in range(200):
        at, bit = source.randrange(size), 1 << source.randrange(8)
        flip(path, at, bit)
        assert never_served(path)
        flip(path, at, bit)
    assert not never_served(path)


def test_a_damaged_hash_names_its_record(built: PodHome) -> None:
    path = built.slice(2)
    bank = Bank(path)
    bank.close()
    flip(path, bank.manifest.layout.table_start + 5 * HASH_BYTES + 3)
    damages = built.bank("verify").document["damages"]
    assert [damage["part"] for damage in damages] == ["manifest", "manifest"]
    assert "damaged hash table" in damages[0]["reason"]
    assert (damages[1]["layer"], damages[1]["expert"]) == bank.order[5]


@pytest.mark.parametrize("keep", [0, 30, 500, 5000, -1])
def test_a_truncated_bank(built: PodHome, keep: int) -> None:
    sound, path = built.files(), built.slice(1)
    path.write_bytes(path.read_bytes()[:keep])
    assert never_served(path)
    ran = built.bank("verify")
    assert (ran.code, ran.document["damages"][0]["part"]) == (ExitCode.FAILED, "manifest")
    assert path.name in ran.document["damages"][0]["reason"]
    assert built.bank("verify", "--repair").code == ExitCode.OK
    assert built.files() == sound


def test_swapped_records_are_both_named(built: PodHome) -> None:
    sound, path = built.files(), built.whole()
    bank = Bank(path)
    bank.close()
    layout = bank.manifest.layout
    raw, size = bytearray(path.read_bytes()), bank.header.record_bytes
    one, other = layout.offset(3), layout.offset(90)
    raw[one : one + size], raw[other : other + size] = (
        raw[other : other + size], raw[one : one + size],
    )  # fmt: skip
    path.write_bytes(raw)
    damages = built.bank("verify").document["damages"]
    assert [(d["layer"], d["expert"]) for d in damages] == [bank.order[3], bank.order[90]]
    assert built.bank("verify", "--repair").code == ExitCode.OK
    assert built.files() == sound


def test_records_swapped_with_their_hashes_are_found(built: PodHome) -> None:
    path = built.whole()
    bank = Bank(path)
    bank.close()
    layout, raw = bank.manifest.layout, bytearray(path.read_bytes())
    for start, size in ((layout.table_start, HASH_BYTES),
                        (layout.data_start, bank.header.record_bytes)):  # fmt: skip
        one, other = start + 3 * size, start + 90 * size
        raw[one : one + size], raw[other : other + size] = (
            raw[other : other + size], raw[one : one + size],
        )  # fmt: skip
    path.write_bytes(raw)
    assert never_served(path)
    assert "damaged hash table" in built.bank("verify").document["damages"][0]["reason"]


def test_another_models_bank_under_this_name(built: PodHome, tiny: object, tmp_path: Path) -> None:
    sound, other = built.files(), tmp_path / "other.toml"
    folder = Path(shutil.copytree(tiny(TinyModel(seed=2)), tmp_path / "k3-other"))  # type: ignore[operator]
    other.write_text(built.pod.read_text().replace(str(built.model), str(folder)))
    elsewhere = PodHome(built.home, other, folder, built.capture)
    assert elsewhere.bank("build").code == 0
    strange = next(path for path in built.banks.glob("k3-other-*.1of2.*.bank"))
    mine = built.slice(1) if built.slice(1) != strange else next(
        path for path in built.banks.glob("k3-tiny-*.1of2.*.bank")
    )  # fmt: skip
    shutil.copy(strange, mine)
    ran = built.bank("verify", str(mine))
    assert ran.code == ExitCode.FAILED
    assert "not as it is named" in ran.document["damages"][0]["reason"]
    with pytest.raises(BankError, match="is of model"):
        Bank(mine, model_digest=Checkpoint(built.model).digest)
    assert built.bank("verify", "--repair").code == ExitCode.OK
    assert {name: raw for name, raw in built.files().items() if "k3-tiny" in name} == sound


def test_a_shard_that_decayed_is_found_by_comparing_with_its_bank(built: PodHome) -> None:
    checkpoint = Checkpoint(built.model)
    assert built.bank("verify", "--source").code == ExitCode.OK
    expert = checkpoint.entry("model.layers.5.block_sparse_moe.experts.7.w1.weight")
    other = checkpoint.entry("model.layers.3.block_sparse_moe.gate.weight")
    flip(expert.path, expert.offset + 100)
    flip(other.path, other.offset + 100)
    ran = built.bank("verify", "--source")
    assert ran.code == ExitCode.FAILED
    one, two = ran.document["damages"]
    assert (Path(one["file"]), one["layer"], one["expert"]) == (expert.path, 5, 7)
    assert Path(two["file"]) == other.path
    assert "gate.weight" in two["reason"]


def test_a_record_is_not_repaired_from_a_source_that_decayed_too(built: PodHome) -> None:
    for number in (1, 2):
        built.slice(number).unlink()
    path = built.whole()
    bank = Bank(path)
    bank.close()
    index = bank.order.find(5, 7)
    assert index is not None
    flip(path, bank.manifest.layout.offset(index) + 50)
    entry = Checkpoint(built.model).entry("model.layers.5.block_sparse_moe.experts.7.w1.weight")
    flip(entry.path, entry.offset + 100)
    damaged = path.read_bytes()
    ran = built.bank("verify", "--repair")
    assert ran.code == ExitCode.FAILED
    assert "is not what the bank was built from" in ran.document["damages"][0]["unrepaired_because"]
    assert path.read_bytes() == damaged


def test_a_slice_is_repaired_without_the_checkpoint(built: PodHome) -> None:
    sound = built.files()
    built.model.rename(built.model.with_name("away"))
    path = built.slice(1)
    flip(path, path.stat().st_size - 10)
    assert built.bank("verify", "--repair").code == ExitCode.OK
    assert built.files() == sound


def test_a_bank_with_a_second_name_is_not_written_to(built: PodHome) -> None:
    path = built.slice(1)
    (built.home / "second").hardlink_to(path)
    flip(path, path.stat().st_size - 10)
    ran = built.bank("verify", "--repair")
    assert ran.code == ExitCode.FAILED
    assert "another name" in ran.document["damages"][0]["unrepaired_because"]


def test_what_is_listed(built: PodHome) -> None:
    def states() -> dict[str, str]:
        return {row["file"]: row["state"] for row in built.bank("ls").document["banks"]}

    assert set(states().values()) == {"unverified"}
    row = built.bank("ls").document["banks"][0]
    assert (row["model"], row["format"], row["slices"]) == ("k3-tiny", "nvfp4", 2)
    built.bank("verify")
    assert set(states().values()) == {"sound"}
    flip(built.slice(1), built.slice(1).stat().st_size - 10)
    built.bank("verify")
    assert states()[built.slice(1).name] == "damaged"
    built.bank("verify", "--repair")
    assert states()[built.slice(1).name] == "sound"
    flip(built.whole(), 60)
    (built.banks / f".{built.slice(2).name}.partial").write_bytes(b"")
    assert states()[built.whole().name] == "damaged"
    assert states()[f".{built.slice(2).name}.partial"] == "interrupted"
