"""Draws docs/images/depth.png from the results of suite `depth`: time over the number of stages.

It marks a claim found in articles: three stages are best, more than four hurt.
"""

from result_files import ROOT, newest, save_picture

OUTPUT = ROOT / "docs" / "images" / "depth.png"
CLAIMED_BEST, CLAIMED_MOST, MOST = 3, 4, 8


def series() -> dict[str, dict[str, dict[int, float]]]:
    """Microseconds by problem, schedule and depth."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for document in newest():
        if document["suite"] != "depth":
            continue
        for case in document["cases"]:
            problem = case["name"].rsplit(" ", 2)[0].rstrip(",")
            found.setdefault(problem, {}).setdefault(case["schedule"], {})[case["depth"]] = case["time_us"]
    return found


def draw() -> None:
    import matplotlib.pyplot as plt

    problems = series()
    if not problems:
        return
    figure, grid = plt.subplots(2, 3, figsize=(12, 6.4), layout="constrained")
    axes = grid.flatten()
    for axis, (problem, schedules) in zip(axes, problems.items(), strict=False):
        for schedule, times in schedules.items():
            axis.plot(list(times), list(times.values()), marker="o", markersize=4, label=schedule)
        best = axis.axvline(CLAIMED_BEST, color="black", linewidth=0.8, linestyle="--", zorder=0)
        hurt = axis.axvspan(CLAIMED_MOST + 0.5, MOST + 0.5, color="black", alpha=0.06, linewidth=0)
        axis.set_xlim(0.5, MOST + 0.5)
        axis.set_title(problem, fontsize=9)
        axis.set_xlabel("stages")
        axis.set_ylim(bottom=0)
        axis.set_ylabel("microseconds")
        axis.grid(alpha=0.3)
    for axis in axes[len(problems) :]:
        axis.axis("off")
    handles, labels = axes[0].get_legend_handles_labels()
    claims = ["the texts: three stages are best", "the texts: more than four hurt"]
    axes[-1].legend([*handles, best, hurt], [*labels, *claims], loc="center")  # six places, five problems
    figure.savefig(OUTPUT, dpi=120)


if __name__ == "__main__":
    save_picture(draw, OUTPUT)
