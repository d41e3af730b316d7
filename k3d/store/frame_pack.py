"""Frames as bytes that are kept: columns of what differs from a base frame, deflated.

A frame of 200 nodes repeats its keys 200 times and most of its values from second to second. So
it is laid out as one column a field, and a column that is as in the base is left out.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from k3d.errors import StoreError
from k3d.store.frame import Frame

LEVEL = 6
TABLES = ("nodes", "tiers", "lanes", "bank_work", "attention")
SENSORS, DEVICES = "nodes/sensors", "nodes/sensors/accelerators"
GONE = "-"
"""Key of the columns that the base has and a frame does not."""

Columns = dict[str, Any]
"""Path -> value, or a list of one value a row. A table's own path holds its rows' count; that of
sensors whether each node has them, that of accelerators how many each node has."""


def columns_of(frame: Frame) -> Columns:
    document = msgspec.to_builtins(frame)
    columns: Columns = {}
    for table in TABLES:
        rows = document.pop(table)
        columns[table] = len(rows)
        if table == "nodes":
            _lay_out_sensors(rows, columns)
        _lay_out(rows, table, columns)
    return {**document, **columns}


def frame_of(columns: Columns) -> Frame:
    """Raises StoreError when the columns do not make a frame."""
    try:
        document = {path: value for path, value in columns.items() if "/" not in path}
        for table in TABLES:
            rows = _rows(columns, table, document.get(table, 0))
            if table == "nodes":
                _put_sensors_back(rows, columns)
            document[table] = rows
        return msgspec.convert(document, Frame)
    except (msgspec.ValidationError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"a recorded frame cannot be read: {error}") from None


def pack(columns: Columns, base: Columns | None = None) -> bytes:
    """What `unpack` with the same base makes these columns of."""
    if base is not None:
        gone = [path for path in base if path not in columns]
        columns = {k: v for k, v in columns.items() if k not in base or base[k] != v}
        if gone:
            columns[GONE] = gone
    return zlib.compress(msgspec.json.encode(columns), LEVEL)


def unpack(body: bytes, base: Columns | None = None) -> Columns:
    """Raises StoreError for bytes that are no packed frame."""
    try:
        columns = msgspec.json.decode(zlib.decompress(body), type=dict[str, Any])
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"a recorded frame cannot be read: {error}") from None
    if base is None:
        return columns
    gone = set(columns.pop(GONE, ()))
    return {**{k: v for k, v in base.items() if k not in gone}, **columns}


def _lay_out(rows: list[dict[str, Any]], prefix: str, columns: Columns) -> None:
    if rows:
        for key in rows[0]:
            columns[f"{prefix}/{key}"] = [row[key] for row in rows]


def _lay_out_sensors(nodes: list[dict[str, Any]], columns: Columns) -> None:
    """Take sensors and accelerators out of the nodes: columns of their own."""
    found = [node.pop("sensors") for node in nodes]
    columns[SENSORS] = [sensors is not None for sensors in found]
    there = [sensors for sensors in found if sensors is not None]
    devices = [sensors.pop("accelerators") for sensors in there]
    columns[DEVICES] = [len(each) for each in devices]
    _lay_out(there, SENSORS, columns)
    _lay_out([device for each in devices for device in each], DEVICES, columns)


def _put_sensors_back(nodes: list[dict[str, Any]], columns: Columns) -> None:
    there = columns.get(SENSORS, [False] * len(nodes))
    counts = columns.get(DEVICES, [])
    rows = iter(_rows(columns, SENSORS, sum(there)))
    devices = iter(_rows(columns, DEVICES, sum(counts)))
    left = iter(counts)
    for node, has in zip(nodes, there, strict=False):
        node["sensors"] = None
        if has:
            count = next(left)
            node["sensors"] = {**next(rows), "accelerators": [next(devices) for _ in range(count)]}


def _rows(columns: Columns, prefix: str, count: int) -> list[dict[str, Any]]:
    start = f"{prefix}/"
    names = [path for path in columns if path.startswith(start) and "/" not in path[len(start) :]]
    names = [path for path in names if path not in (SENSORS, DEVICES)]
    return [{path[len(start) :]: columns[path][row] for path in names} for row in range(count)]
