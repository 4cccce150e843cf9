"""Draws docs/images/results.png from benchmarks/results: the time of sluice's calls over torch's."""

from typing import Any

from result_files import PICTURE, ROOT, Bar, Network, networks_shown, save_picture

OUTPUT = ROOT / "docs" / "images" / "results.png"
FASTER, SLOWER, COMPILED, QUIET = "#2f6fab", "#c0572b", "#1b1b1b", "#666666"
EVEN = 0.03  # a bar within this share of torch's time counts as equal
LONG = 0.45  # the shortest bar that fits a label
RIGHT = 2.3
CUT = 1.75  # where a longer bar of a network ends
NETWORK_COLORS = {
    "eager": "#b4bac2",
    "torch.compile": COMPILED,
    "replace": "#86b3dd",
    "replace, CUDA graphs": FASTER,
}


def times(bar: Bar) -> str:
    unit, scale = ("ms", 1000) if bar.torch >= 10000 else ("us", 1)
    ours, torch = (f"{us / scale:.1f}" if us / scale < 100 else f"{us / scale:.0f}" for us in (bar.ours, bar.torch))
    return f"{ours}, torch {torch} {unit}"


def verdict(ratio: float) -> str:
    if abs(ratio - 1) <= EVEN:
        return "as fast"
    return f"{1 / ratio:.1f} x faster" if ratio < 1 else f"{ratio:.1f} x slower"


def color(bar: Bar) -> str:
    return QUIET if abs(bar.ratio - 1) <= EVEN else FASTER if bar.ratio < 1 else SLOWER


def places() -> tuple[list[float], dict[str, float]]:
    """The vertical positions of bars and of group names, downwards; a name takes a line."""
    bars: list[float] = []
    names: dict[str, float] = {}
    y = 0.0
    for bar in PICTURE:
        if bar.group not in names:
            names[bar.group] = y = y + 0.35
            y += 1.0
        bars.append(y)
        y += 1.0
    return bars, names


def draw_calls(axes: Any) -> None:
    """A bar for each case of `PICTURE`, with a diamond where torch.compile is."""
    lines, names = places()
    axes.axvline(1, color="#222222", linewidth=1.2, zorder=1)
    for y, bar in zip(lines, PICTURE, strict=True):
        axes.barh(y, bar.ratio, height=0.76, color=color(bar), zorder=2)
        compiled = bar.compiled / bar.torch if bar.compiled is not None else 0.0
        if compiled:
            axes.plot(compiled, y, "D", color=COMPILED, markersize=7, markeredgecolor="white", zorder=3)
        within = bar.ratio > LONG
        after = max(bar.ratio, compiled if abs(compiled - bar.ratio) < 0.15 else 0.0)
        axes.text(
            bar.ratio - 0.02 if within else after + 0.025,
            y,
            verdict(bar.ratio),
            va="center",
            ha="right" if within else "left",
            fontsize=10,
            fontweight="bold",
            color="white" if within else color(bar),
        )
        axes.text(RIGHT, y, times(bar), va="center", ha="right", fontsize=9.5, color="#333333")
    for name, y in names.items():
        axes.text(0, y + 0.1, name, va="center", ha="left", fontsize=10.5, fontweight="bold", color="#111111")
    axes.set_yticks(lines, [bar.label for bar in PICTURE], fontsize=10)
    axes.set_ylim(max(lines) + 0.7, min(names.values()) - 0.6)
    axes.set_xlabel("time, where PyTorch takes 1 (shorter is faster)", fontsize=10, loc="left")


def draw_networks(axes: Any, shown: list[Network]) -> None:
    """Four thin bars for each network: eager, compiled, replaced, replaced with CUDA graphs."""
    y, ticks = 0.0, []
    axes.axvline(1, color="#222222", linewidth=1.2, zorder=1)
    for network in shown:
        bars = network.times()
        ticks.append(y + (len(bars) - 1) / 2)
        for name, (us, ratio) in bars.items():
            length = min(ratio, CUT)
            axes.barh(y, length, height=0.86, color=NETWORK_COLORS[name], zorder=2)
            text = f"{us / 1000:.2f} ms" + (f", {verdict(ratio)}" if name != "eager" else "")
            around = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            axes.text(length + 0.02, y, text, va="center", fontsize=9.5, color="#333333", bbox=around)
            y += 1.0
        y += 0.8
    axes.set_yticks(ticks, [network.label for network in shown], fontsize=10)
    axes.set_ylim(y - 0.8, -0.7)
    axes.set_title("whole models", fontsize=10.5, fontweight="bold", loc="left")


def draw() -> None:
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown = networks_shown()
    heights = [*([0.4 + 0.78 * len(shown)] if shown else []), 7.2]
    figure, rows = plt.subplots(
        len(heights), 1, figsize=(10, sum(heights)), height_ratios=heights, squeeze=False, layout="constrained",
        facecolor="white",
    )  # fmt: skip
    for axes in rows.flat:
        axes.set_xlim(0, RIGHT)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#dddddd", zorder=0)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
    if shown:
        draw_networks(rows[0, 0], shown)
        handles = [Patch(color=color, label=name) for name, color in NETWORK_COLORS.items()]
        rows[0, 0].legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=4, fontsize=10, frameon=False
        )
    draw_calls(rows[-1, 0])
    handles = [
        Patch(color=FASTER, label="sluice, faster than PyTorch"),
        Patch(color=QUIET, label="as fast"),
        Patch(color=SLOWER, label="slower"),
        Line2D([], [], marker="D", color="none", markerfacecolor=COMPILED, markersize=6, label="torch.compile"),
    ]
    rows[-1, 0].legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=10, frameon=False)
    figure.savefig(OUTPUT, dpi=110, facecolor="white")


if __name__ == "__main__":
    save_picture(draw, OUTPUT)
