"""What lanes keep a position: latent rows of every MLA layer, and a drafter's context rows.

| tensor | shape | dtype |
| --- | --- | --- |
| latents of an MLA layer | [pages, PAGE_ROWS, kv rank + shared key] | the model's |
| drafts | [pages, PAGE_ROWS, drafter's row width] | f32 |

A page belongs to everyone who holds it: lanes that share a prefix share its pages, and only a
page that one lane holds alone is ever written.
"""

from __future__ import annotations

import torch

from k3d.model.config import ModelConfig

PAGE_ROWS = 64


class RowPages:
    """A pool of `pages` pages, a bound that is set at once."""

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, pages: int, draft_width: int = 0
    ) -> None:
        width = config.kv_lora_rank + config.rope_dim
        # Empty: the system gives memory to a page when it is first written.
        self.latents = {
            layer: torch.empty(pages, PAGE_ROWS, width, dtype=dtype) for layer in config.mla_layers
        }
        self.drafts = torch.empty(pages, PAGE_ROWS, draft_width)
        self._holders = [0] * pages
        self._free = list(range(pages - 1, -1, -1))

    @staticmethod
    def bytes_each(config: ModelConfig, dtype: torch.dtype, draft_width: int = 0) -> int:
        """Bytes of one page."""
        latents = len(config.mla_layers) * (config.kv_lora_rank + config.rope_dim) * dtype.itemsize
        return PAGE_ROWS * (latents + draft_width * torch.float32.itemsize)

    @property
    def total(self) -> int:
        return len(self._holders)

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int | None:
        """A page for one holder, with anything in it; None when all are held."""
        if not self._free:
            return None
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One more holder of a held page."""
        assert self._holders[page] > 0
        self._holders[page] += 1

    def holders(self, page: int) -> int:
        return self._holders[page]

    def drop(self, page: int) -> None:
        """One holder less; the page is free without any."""
        assert self._holders[page] > 0
        self._holders[page] -= 1
        if self._holders[page] == 0:
            self._free.append(page)


def pages_for(positions: int) -> int:
    """Pages that hold `positions` positions."""
    return -(-positions // PAGE_ROWS)
