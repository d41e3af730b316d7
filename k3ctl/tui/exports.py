"""What `s` writes: the table as CSV and JSON, the screen as SVG; and where."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
import time
from pathlib import Path

from k3ctl.tui.pane import Sheet
from k3d.errors import K3Error


def export_folder(home: Path | None) -> Path:
    """`exports` in the home, else in the current folder."""
    return (home or Path.cwd()) / "exports"


def save(sheet: Sheet | None, svg: str, folder: Path, pane: str, at_ms: int) -> list[Path]:
    """Write what there is; the paths. Raises K3Error naming the folder that cannot be written."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(at_ms / 1000))
    texts = {f"{pane}-{stamp}.svg": svg}
    if sheet is not None and sheet.rows:
        texts[f"{sheet.name}-{stamp}.csv"] = as_csv(sheet)
        texts[f"{sheet.name}-{stamp}.json"] = as_json(sheet, at_ms)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(folder / name, text) for name, text in texts.items()]
    except OSError as error:
        raise K3Error(
            f"nothing was saved: {folder}: {error.strerror}",
            hint="start the console in a home, or a folder, that can be written",
        ) from error


def as_csv(sheet: Sheet) -> str:
    """With a header; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(sheet.columns)
    writer.writerows(["" if value is None else value for value in row] for row in sheet.rows)
    return text.getvalue()


def as_json(sheet: Sheet, at_ms: int) -> str:
    """One document; what is not known is null."""
    document = {
        "schema": f"k3ctl.console.{sheet.name}/1",
        "at_ms": at_ms,
        "rows": [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _write(path: Path, text: str) -> Path:
    """Whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
