"""k3ctl trace: which experts tokens chose, looked at, compared and brought into one format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from k3ctl.cli.lazy import NounGroup
from k3ctl.cli.options import (
    Invocation,
    columns_options,
    home_options,
    json_option,
    mutation_options,
)
from k3ctl.cli.trace_columns import LAYERS, SHARED
from k3ctl.cli.trace_record import record
from k3d.counted import counted
from k3d.errors import CheckpointError


@click.group(cls=NounGroup)
def trace() -> None:
    """Look at which experts tokens chose."""


trace.add_command(record)


@trace.command()
@click.argument("file", metavar="TRACE")
@click.option("--layers", is_flag=True, help="A line a layer, too.")
@columns_options(LAYERS)
@home_options
@json_option
@click.pass_obj
def show(invocation: Invocation, file: str, layers: bool) -> None:
    """Show how skewed the traffic of a trace is."""
    from k3ctl.cli.numpy_extra import require_numpy

    require_numpy()
    from k3ctl.cli.trace_text import show_document, show_lines
    from k3d.placement.trace import read_trace
    from k3d.placement.trace_stats import stats

    read = read_trace(Path(file), with_weights=False)
    figures = stats(read)
    document = show_document(read.header, figures)
    invocation.output.document("k3ctl.trace-show/1", document)
    invocation.listed(
        (LAYERS, document["layers"]), otherwise=lambda: show_lines(read.header, figures, layers)
    )


@trace.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--hot", type=click.IntRange(min=1), metavar="N", help="Size of a hot set; a tenth by default."
)
@columns_options(SHARED)
@home_options
@json_option
@click.pass_obj
def diff(invocation: Invocation, first: str, second: str, hot: int | None) -> None:
    """Compare the hot sets of two traces: what a map made for A is worth to B."""
    from k3ctl.cli.numpy_extra import require_numpy

    require_numpy()
    from k3ctl.cli.trace_text import diff_document, diff_lines
    from k3d.placement.trace import read_trace
    from k3d.placement.trace_stats import overlap

    a, b = (read_trace(Path(name), with_weights=False) for name in (first, second))
    found = overlap(a, b, hot or max(1, a.counts.size // 10))
    document = diff_document(a.header, b.header, found)
    invocation.output.document("k3ctl.trace-diff/1", document)
    shared = [{"layer": n, "shared": part} for n, part in document["shared_by_layer"].items()]
    invocation.listed((SHARED, shared), otherwise=lambda: diff_lines(first, second, found))


@trace.command("import")
@click.argument("source", metavar="SOURCE")
@click.argument("out", metavar="OUT")
@click.option("--model", metavar="DIR", help="Checkpoint whose layers and experts these are.")
@click.option("--experts", type=click.IntRange(1, 65536), metavar="N", help="Experts of a layer.")
@click.option("--first-layer", type=click.IntRange(min=0), metavar="L", help="First MoE layer.")
@click.option(
    "--part",
    type=click.Choice(["all", "streams", "prompts"]),
    default="all",
    show_default=True,
    help="Of held-out streams: which.",
)
@click.option("--salvage", is_flag=True, help="Of a damaged trace: its whole blocks.")
@mutation_options(files=("source", "out", "model"))
@home_options
@json_option
@click.pass_obj
def import_(
    invocation: Invocation,
    source: str,
    out: str,
    model: str | None,
    experts: int | None,
    first_layer: int | None,
    part: Any,
    salvage: bool,
) -> None:
    """Write a trace from held-out streams (npz), a plain npz, JSON, or a trace.

    A plain npz and JSON hold ids [tokens, layers, experts a token] and may hold weights of that
    shape, sequence [tokens], layers and experts. What they leave out is taken from --model, from
    a config.json beside SOURCE, or from --experts and --first-layer.
    """
    from k3ctl.cli.numpy_extra import require_numpy

    require_numpy()
    from k3d.placement.trace_import import import_trace

    path = Path(source)
    known_experts, layers = _model(path, model)
    written = import_trace(
        path,
        Path(out),
        experts=experts or known_experts,
        layers=None if first_layer is not None else layers,
        first_layer=first_layer,
        part=part,
        salvage=salvage,
    )
    header = written.header
    invocation.output.document(
        "k3ctl.trace-import/1",
        {
            "path": str(written.path),
            "tokens": written.tokens,
            "layers": list(header.layers),
            "experts": header.experts,
            "experts_a_token": header.top_k,
            "weights": header.weights,
            "size_bytes": written.size_bytes,
            "provenance": header.provenance,
        },
    )
    invocation.output.text(
        f"{out}: {counted(written.tokens, 'token')}, {counted(len(header.layers), 'layer')}, "
        f"{header.top_k} of {header.experts} experts each, {written.size_bytes:,} B"
    )


def _model(source: Path, model: str | None) -> tuple[int | None, tuple[int, ...] | None]:
    """Experts and MoE layers of the model named, or of a config.json beside the source."""
    from k3d.placement.model_facts import read_model_facts

    folder = Path(model) if model is not None else source.parent
    if model is None and not (folder / "config.json").is_file():
        return None, None
    try:
        facts = read_model_facts(folder)
    except CheckpointError:
        if model is not None:
            raise
        return None, None
    return facts.experts, tuple(facts.moe_layer_numbers)
