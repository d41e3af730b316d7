"""Read and write the release form: safetensors shards, one layer a shard, and their index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from banks.recipe.config import K3Config
from banks.recipe.model import K3
from banks.recipe.pieces import Linear
from banks.recipe.quantise import (
    decode_fp8,
    decode_nvfp4,
    encode_fp8,
    encode_nvfp4,
    global_scale,
)

PREFIX = "language_model."
FP32_NAMES = ("A_log", "dt_bias", "o_norm.weight", "conv1d.weight", "e_score_correction_bias")
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(w[123])$")


def decoded_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Every text tensor of a release folder in fp32, decoded, with its name below the prefix."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    for shard in sorted(set(index.values())):
        with safe_open(folder / shard, "pt") as file:
            names = set(file.keys())
            for name in sorted(names):
                if not name.startswith(PREFIX) or re.search(r"(_scale(_2)?|input_scale)$", name):
                    continue
                yield name[len(PREFIX) :].removesuffix("_packed"), decode(file, name, names)


def decode(file: safe_open, name: str, names: set[str]) -> Tensor:
    """One logical tensor in fp32; the suffixes present decide the format."""
    raw = file.get_tensor(name)
    stem = name.removesuffix("_packed")
    if stem + "_scale_2" in names:
        scales, scale = file.get_tensor(stem + "_scale"), file.get_tensor(stem + "_scale_2")
        return decode_nvfp4(raw, scales, scale)
    if name.endswith("_packed"):
        exponents = file.get_tensor(stem + "_scale").float() - 127
        return decode_nvfp4(raw, torch.exp2(exponents).repeat_interleave(2, -1), torch.tensor(1.0))
    if stem + "_scale" in names:
        return decode_fp8(raw, file.get_tensor(stem + "_scale"))
    return raw.float()


def load_release(model: K3, folder: Path) -> None:
    """Fill `model` from a release folder; every parameter must be given exactly once."""
    stacked: dict[str, Tensor] = {}
    wanted = model.state_dict()
    parts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in decoded_tensors(folder):
        if match := EXPERT.match(name.removesuffix(".weight")):
            key = f"{match[1]}.{match[3]}"
            parts.setdefault(key, {})[int(match[2])] = tensor
        else:
            stacked[name] = tensor
    for key, experts in parts.items():
        stacked[key] = torch.stack([experts[i] for i in range(len(experts))])
    if set(stacked) != set(wanted):
        raise KeyError(f"tensors differ: {sorted(set(stacked) ^ set(wanted))[:4]}")
    model.load_state_dict(stacked)


def layer_tensors(model: K3, number: int | None) -> dict[str, Tensor]:
    """Encoded tensors of one layer, or of everything outside the layers for None."""
    matrices = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, Linear) and m.fp8}
    out: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        match = re.match(r"model\.layers\.(\d+)\.", name)
        if (int(match[1]) if match else None) != number:
            continue
        tensor = tensor.detach().cpu()
        if ".experts.w" in name:
            continue
        if name in matrices:
            out[PREFIX + name], out[PREFIX + name + "_scale"] = encode_fp8(tensor)
        elif name.endswith(FP32_NAMES):
            out[PREFIX + name] = tensor.float().contiguous()
        else:
            out[PREFIX + name] = tensor.to(torch.bfloat16).contiguous()
    if number is not None and number in model.c.moe_layers:
        out |= expert_tensors(model, number)
    return out


def expert_tensors(model: K3, number: int) -> dict[str, Tensor]:
    """The 12 tensors of every expert of a layer."""
    experts = model.moe()[model.c.moe_layers.index(number)].experts
    w1, w2, w3 = (w.detach().cpu().float() for w in (experts.w1, experts.w2, experts.w3))
    pair, down = global_scale(w1, w3), global_scale(w2)
    out: dict[str, Tensor] = {}
    for projection, weight, scale in (("w1", w1, pair), ("w2", w2, down), ("w3", w3, pair)):
        codes, scales = encode_nvfp4(weight, scale)
        for i in range(weight.shape[0]):
            stem = f"{PREFIX}model.layers.{number}.block_sparse_moe.experts.{i}.{projection}"
            out[stem + ".weight"] = codes[i].contiguous()
            out[stem + ".weight_scale"] = scales[i].contiguous()
            out[stem + ".weight_scale_2"] = scale[i].clone()
            out[stem + ".input_scale"] = torch.tensor(1.0)
    return out


def write_release(model: K3, folder: Path) -> None:
    """Write config, shards and index in the NVFP4 release's form."""
    folder.mkdir(parents=True, exist_ok=True)
    config: K3Config = model.c
    (folder / "config.json").write_text(json.dumps(config.release_json(), indent=1) + "\n")
    count = config.layers + 1
    weight_map: dict[str, str] = {}
    size_bytes = 0
    for shard, number in enumerate([*range(config.layers), None], 1):
        tensors = layer_tensors(model, number)
        name = f"model-{shard:05d}-of-{count:06d}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        (folder / name).chmod(0o644)  # the library writes 0600
        weight_map |= dict.fromkeys(tensors, name)
        size_bytes += sum(t.numel() * t.element_size() for t in tensors.values())
    write_index(folder, weight_map, size_bytes)


def write_index(folder: Path, weight_map: Mapping[str, str], size_bytes: int) -> None:
    """`model.safetensors.index.json`, compact: thousands of names make it a megabyte."""
    index = {"metadata": {"total_size": size_bytes}, "weight_map": dict(weight_map)}
    text = json.dumps(index, separators=(",", ":"))
    (folder / "model.safetensors.index.json").write_text(text + "\n")
