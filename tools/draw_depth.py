"""Draws docs/images/depth.png from the results of suite `depth`: time over the number of stages."""

import matplotlib.pyplot as plt

from result_files import ROOT, documents

OUTPUT = ROOT / "docs" / "images" / "depth.png"


def series() -> dict[str, dict[str, dict[int, float]]]:
    """Microseconds by problem, schedule and depth."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for document in documents():
        if document["suite"] != "depth":
            continue
        for case in document["cases"]:
            problem = case["name"].rsplit(" ", 2)[0].rstrip(",")
            found.setdefault(problem, {}).setdefault(case["schedule"], {})[case["depth"]] = case["time_us"]
    return found


def main() -> None:
    problems = series()
    figure, grid = plt.subplots(2, 3, figsize=(12, 6.4), layout="constrained")
    axes = grid.flatten()
    for axis, (problem, schedules) in zip(axes, problems.items(), strict=False):
        for schedule, times in schedules.items():
            axis.plot(list(times), list(times.values()), marker="o", markersize=4, label=schedule)
        axis.set_title(problem, fontsize=9)
        axis.set_xlabel("stages")
        axis.set_ylim(bottom=0)
        axis.set_ylabel("microseconds")
        axis.grid(alpha=0.3)
    for axis in axes[len(problems) :]:
        axis.axis("off")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="center")  # six places, five problems
    figure.savefig(OUTPUT, dpi=120)


if __name__ == "__main__":
    main()
