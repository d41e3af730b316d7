"""The heat map's arithmetic and its lines: nothing is lost or counted twice at any size."""

from __future__ import annotations

import random

import pytest

from k3ctl.tui.widgets.heat_bins import (
    LEVELS,
    Grid,
    lay_out,
    pixel_sums,
    running_sums,
    tier_pixels,
    tier_sums,
    use_levels,
)
from k3ctl.tui.widgets.heat_map import (
    Look,
    draw,
    grid_for,
    text_of,
    tier_legend,
    tier_letters,
    tier_pixels_of,
    use_legend,
    use_pixels,
)
from tests.tui.fake_station import TIERS, tiers, uses

K3 = (92, 896)
SIZES = ((60, 10), (80, 18), (120, 34), (250, 60), (1, 1), (9, 2))
LOOKS: tuple[Look, ...] = ("colour", "unicode", "ascii")


def test_a_grid_has_every_layer_and_expert_once(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(200):
        layers, experts = choose.randint(1, 120), choose.randint(1, 1000)
        width, height = choose.randint(-3, 260), choose.randint(-3, 90)
        grid = lay_out(layers, experts, width, height, halves=choose.random() < 0.5)
        assert [at for row in range(grid.height) for at in grid.layers(row)] == [*range(layers)]
        columns = [e for column in range(grid.width) for e in grid.experts(column)]
        assert columns == [*range(experts)]
        assert grid.width * grid.wide <= max(1, width)
        assert grid.lines + grid.axis <= max(1, height)
        at = choose.randrange(layers), choose.randrange(experts)
        row, column = grid.pixel(*at)
        assert at[0] in grid.layers(row)
        assert at[1] in grid.experts(column)


def test_pixels_sum_to_all_uses() -> None:
    counted = uses(*K3)
    sums = running_sums(counted)
    for width, height in SIZES:
        grid = grid_for(*K3, width, height, "colour")
        found = sum(sum(pixel_sums(sums, grid, row)) for row in range(grid.height))
        assert found == sum(map(sum, counted))


def test_levels_are_multiples_of_an_even_share() -> None:
    # Fifteen experts with 150 uses: an even share is 10, and a level begins with its multiple.
    levels = {0: 0, 4: 1, 5: 2, 9: 2, 10: 3, 19: 3, 20: 4, 39: 4, 40: 5}
    counted = [*levels, 4, 0, 0, 0, 0, 0]
    assert sum(counted) == 10 * len(counted)
    found = use_levels(running_sums([counted]), lay_out(1, 15, 15, 2, halves=False))[0]
    assert list(found[: len(levels)]) == [*levels.values()]
    assert max(found) < LEVELS


def test_a_pixel_of_several_experts_has_their_mean() -> None:
    # Two experts a pixel: 0 and 4 are as hot together as 2 and 2.
    grid = lay_out(1, 4, 2, 2, halves=False)
    first, second = use_levels(running_sums([[0, 4, 2, 2]]), grid)[0]
    assert first == second


def test_no_use_at_all_is_never() -> None:
    grid = lay_out(2, 5, 5, 3, halves=False)
    assert use_levels(running_sums([[0] * 5] * 2), grid) == [bytes(5), bytes(5)]


def test_a_pixel_has_the_tier_that_most_of_its_experts_have() -> None:
    # hbm rtx rtx | grace grace grace
    sums = tier_sums(bytes([0, 1, 1, 2, 2, 2]), 6, len(TIERS))
    pixels = tier_pixels(sums, lay_out(1, 6, 2, 2, halves=False))
    assert list(pixels[0]) == [2 * 1, 2 * 2 + 1]
    lines = draw(lay_out(1, 6, 2, 2, halves=False), tier_pixels_of(pixels, TIERS), [3], "unicode")
    assert text_of(lines[0]).endswith(" rG")


def test_a_tier_has_a_pixel_of_several_layers_to_itself() -> None:
    # Two layers and four experts in one line of two pixels: the first is all rtx.
    sums = tier_sums(bytes([1, 1, 0, 2, 1, 1, 2, 2]), 4, len(TIERS))
    assert list(tier_pixels(sums, lay_out(2, 4, 2, 1, halves=False))[0]) == [2 * 1 + 1, 2 * 2]


def test_tiers_have_letters_of_their_own() -> None:
    assert tier_letters(TIERS) == "hrgs"
    assert len(set(tier_letters(("grace", "gpu", "g", "g")))) == 4


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_k3_fits_any_terminal(look: Look, size: tuple[int, int]) -> None:
    width, height = size
    grid = grid_for(*K3, width, height, look)
    sums = running_sums(uses(*K3))
    by_tier = tier_sums(b"".join(tiers(at, K3[1]) for at in range(K3[0])), K3[1], len(TIERS))
    for pixels in (
        use_pixels(use_levels(sums, grid), look),
        tier_pixels_of(tier_pixels(by_tier, grid), TIERS),
    ):
        lines = draw(grid, pixels, range(1, 93), look, (grid.height - 1, grid.width - 1))
        assert len(lines) <= height
        if width >= 9:
            assert max(len(text_of(line)) for line in lines) <= width
        if look == "ascii":
            assert all(text_of(line).isascii() for line in lines)
    assert text_of(use_legend(look, grid, width)).isascii() == (look == "ascii")


def test_half_lines_are_for_colour_alone() -> None:
    assert grid_for(*K3, 80, 20, "colour").halved
    assert not grid_for(*K3, 80, 20, "unicode").halved
    assert not grid_for(*K3, 80, 20, "ascii").halved
    assert not grid_for(12, 64, 80, 20, "colour").halved, "there is a line for every layer"


def test_both_halves_of_a_cell_are_told_apart() -> None:
    grid = Grid((0, 1, 2), (0, 1, 2), 1, True)
    lines = draw(grid, use_pixels([bytes([1, 5]), bytes([3, 5])], "colour"), [1, 2], "colour")
    mixed, same = lines[0][1:]
    assert (mixed.text, mixed.ink, mixed.ground) == ("▀", "heat-1", "heat-3")
    assert (same.text, same.ink, same.ground) == ("█", "heat-5", None)


@pytest.mark.parametrize("look", LOOKS)
def test_the_cursor_is_marked_at_both_axes(look: Look) -> None:
    grid = grid_for(*K3, 80, 20, look)
    pixels = use_pixels(use_levels(running_sums(uses(*K3)), grid), look)
    plain = [text_of(line) for line in draw(grid, pixels, range(1, 93), look)]
    for row in (0, grid.height // 2, grid.height - 1):
        for column in (0, grid.width // 2, grid.width - 1):
            lines = draw(grid, pixels, range(1, 93), look, (row, column))
            marked = [at for at, line in enumerate(lines) if any(run.cursor for run in line)]
            assert marked == [row // 2 if grid.halved else row]
            axis = text_of(lines[-1])
            mark = "^" if look == "ascii" else "▲"
            assert axis[5 + column * grid.wide] == mark
            assert str(grid.columns[column]) in axis
            assert [at for at, line in enumerate(lines) if line[0].text[0] != " "] == marked
    assert not any("▲" in line or "^" in line for line in plain)


def test_the_legend_names_what_small_letters_mean() -> None:
    coarse = text_of(tier_legend(TIERS, grid_for(*K3, 80, 20, "unicode")))
    exact = text_of(tier_legend(TIERS, grid_for(12, 64, 80, 20, "unicode")))
    assert coarse.startswith(exact.rstrip())
    assert "mostly" in coarse
    assert "mostly" not in exact


def test_neighbours_of_one_level_are_one_run() -> None:
    """What a terminal is sent grows with changes, not with cells."""
    grid = lay_out(1, 896, 896, 2, halves=False)
    lines = draw(grid, use_pixels([bytes([2]) * 448 + bytes([3]) * 448], "unicode"), [1], "unicode")
    assert [len(run.text) for run in lines[0]] == [5, 448, 448]
