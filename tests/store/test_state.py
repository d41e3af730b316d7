"""state.db: one writer, readers, migrations, damage."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from k3d.errors import ConfigError, ExitCode, K3Error, Locked, NotFound, StoreError
from k3d.store.database import require_sound_sqlite, sqlite
from k3d.store.home import state_path
from k3d.store.state import StateReader, StateStore


@pytest.fixture
def store(home: Path):
    with StateStore.open_as_writer(home, holder="test") as opened:
        yield opened


def test_opening_migrates_once(home: Path) -> None:
    with StateStore.open_as_writer(home, holder="first") as opened:
        assert opened.migrations == ("first", "swaps", "slicing")
    with StateStore.open_as_writer(home, holder="second") as opened:
        assert opened.migrations == ()


def test_settings_are_the_durable_ones(store: StateStore) -> None:
    connection = store._connection
    settings = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "trusted_schema")
    }
    assert settings == {
        "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "trusted_schema": 0,
    }  # fmt: skip
    tables = connection.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'")
    strict = {name for name, is_strict in tables if is_strict}
    assert {"pod", "placement_map", "event", "intent", "receipt"} <= strict


def test_an_unsound_sqlite_is_refused() -> None:
    with pytest.raises(StoreError, match=r"SQLite 3.51.2 can corrupt"):
        require_sound_sqlite((3, 51, 2))
    require_sound_sqlite((3, 51, 3))


def test_a_second_writer_is_told_of_the_first(home: Path, store: StateStore) -> None:
    with pytest.raises(Locked, match="held by test"):
        StateStore.open_as_writer(home, holder="other")


def test_what_is_recorded_is_read(home: Path, store: StateStore) -> None:
    store.record_pod("embedded", "d1", {"name": "embedded"})
    store.record_pod("embedded", "d1", {"name": "embedded"})
    store.record_event("lost", "spark-2 was lost", node="spark-2", detail={"hop": 3})
    store.record_event("pod", "the pod came up")
    store.record_placement_map(1, "p1", "layer-balanced", b'{"epoch":1}')
    store.record_placement_map(2, "p2", "contiguous", b'{"epoch":2}')
    receipt = store.record_receipt(
        "bench-pod",
        provenance="measured",
        command="k3ctl bench pod",
        figures={"tokens_per_s": 12.5},
        environment={"cores": 2},
    )
    with StateReader.open(home) as reader:
        pod = reader.pod()
        assert pod is not None
        assert pod.description == {"name": "embedded"}
        assert [event.message for event in reader.events()] == [
            "spark-2 was lost",
            "the pod came up",
        ]
        assert reader.events(node="spark-2")[0].detail == {"hop": 3}
        assert reader.events(limit=1)[0].message == "the pod came up"
        newest, first = reader.placement_map(), reader.placement_map(1)
        assert newest is not None
        assert first is not None
        assert (newest.epoch, first.digest) == (2, "p1")
        assert reader.placement_map(3) is None
        assert [(r.id, r.figures) for r in reader.receipts()] == [(receipt, {"tokens_per_s": 12.5})]
        reader.check_integrity()


def test_a_reader_cannot_write(home: Path, store: StateStore) -> None:
    with StateReader.open(home) as reader, pytest.raises(sqlite.Error):
        reader._connection.execute("DELETE FROM event")


def test_an_intent_is_made_once_for_a_request(store: StateStore) -> None:
    intent = store.record_intent("swap", {"to": "hbm"}, request_id="cron-1")
    assert store.record_intent("swap", {"to": "rtx"}, request_id="cron-1") == intent
    assert store.record_intent("swap", {}).id != store.record_intent("swap", {}).id
    assert store.move_intent(intent.id, "running").state == "running"
    assert [found.id for found in store.intents(state="running")] == [intent.id]
    with pytest.raises(NotFound):
        store.move_intent("nope", "done")


def test_a_state_or_label_outside_the_table_is_refused(store: StateStore) -> None:
    intent = store.record_intent("swap", {})
    with pytest.raises(StoreError, match="CHECK"):
        store.move_intent(intent.id, "half-done")
    with pytest.raises(StoreError, match="CHECK"):
        store.record_receipt("x", provenance="guessed", command="", figures={}, environment={})
    assert store.intent(intent.id).state == "planned"


def test_another_map_for_an_epoch_is_refused(store: StateStore) -> None:
    store.record_placement_map(1, "p1", "x", b"{}")
    store.record_placement_map(1, "p1", "x", b"{}")
    with pytest.raises(StoreError, match="epoch 1 already names another"):
        store.record_placement_map(1, "p2", "x", b"{}")


def test_threads_share_the_writer(home: Path, store: StateStore) -> None:
    def write(number: int) -> None:
        for turn in range(20):
            store.record_event("turn", f"{number} {turn}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.events(limit=1000)) == 80


def test_a_killed_writer_loses_nothing_it_acknowledged(home: Path, seed: int) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom k3d.store.state import StateStore\n"
        "store = StateStore.open_as_writer(Path(sys.argv[1]), holder='victim')\n"
        "while True: print(store.record_event('tick', 'x'), flush=True)"
    )
    acknowledged = 0
    for cycle in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(home)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            for _ in range(5 + (seed + cycle) % 17):
                acknowledged = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read().split(b"\n")[:-1]
            acknowledged = int(rest[-1]) if rest else acknowledged
        with StateStore.open_as_writer(home, holder="after") as store:
            store.check_integrity()
            assert acknowledged <= len(store.events(limit=10**6)) <= acknowledged + 1
            acknowledged = len(store.events(limit=10**6))


def _damage(home: Path, kind: str) -> None:
    path = state_path(home)
    if kind == "text":
        path.write_text("this is no database\n" * 200)
    elif kind == "pages":
        content = bytearray(path.read_bytes())
        content[4096:] = b"\xa5" * (len(content) - 4096)
        path.write_bytes(content)
    elif kind == "truncated":
        path.write_bytes(path.read_bytes()[:3000])
    elif kind == "directory":
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize("kind", ["text", "pages", "truncated", "directory"])
def test_damage_is_one_sentence_for_reader_and_writer(home: Path, kind: str) -> None:
    with StateStore.open_as_writer(home, holder="first") as store:
        store.record_event("x", "y")
    _damage(home, kind)

    def read() -> None:
        with StateReader.open(home) as reader:
            reader.events()
            reader.check_integrity()

    def write() -> None:
        with StateStore.open_as_writer(home, holder="second") as store:
            store.record_event("x", "z")

    for use in (read, write):
        with pytest.raises(K3Error, match=r"state\.db") as caught:
            use()
        assert caught.value.hint
        assert "\n" not in caught.value.message


def test_another_programs_database_is_left_alone(home: Path) -> None:
    other = sqlite.connect(str(state_path(home)))
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.commit()
    other.close()
    before = state_path(home).read_bytes()
    with pytest.raises(ConfigError, match="of another program"):
        StateStore.open_as_writer(home, holder="test")
    assert state_path(home).read_bytes() == before


def test_a_newer_schema_is_refused_with_the_way_out(home: Path) -> None:
    with StateStore.open_as_writer(home, holder="test") as store:
        store._connection.execute("PRAGMA user_version = 99")
    for use in (lambda: StateReader.open(home), lambda: StateStore.open_as_writer(home, holder="")):
        with pytest.raises(ConfigError, match="newer k3pod") as caught:
            use()
        assert caught.value.code is ExitCode.USAGE


def test_no_database_says_how_to_make_one(home: Path) -> None:
    with pytest.raises(NotFound, match="k3ctl init"):
        StateReader.open(home)


def test_a_disk_that_fills_up_loses_nothing_before(home: Path, store: StateStore) -> None:
    store.record_event("before", "kept")
    store._connection.execute("PRAGMA max_page_count = 40")
    with pytest.raises(StoreError, match="the disk is full"):
        store.record_event("x", "y" * 1_000_000)
    with StateReader.open(home) as reader:
        assert reader.events(limit=10**6)[0].message == "kept"
        reader.check_integrity()


def test_a_database_that_may_not_be_written_is_one_sentence(store: StateStore) -> None:
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="it is read-only"):
        store.record_event("x", "y")
