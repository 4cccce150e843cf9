"""Draws docs/images/stencils.png: a stencil's gains by a double buffer and a third stage, as claimed and measured."""

from result_files import ROOT, save_picture
from stencil_claims import CLAIM, FORMS, measured_rows

OUTPUT = ROOT / "docs" / "images" / "stencils.png"
COLORS = ("#7f7f7f", "#4c78a8", "#f58518")
WIDTH = 0.26


def draw() -> None:
    import matplotlib.pyplot as plt

    rows = [CLAIM, *measured_rows()]
    figure, (gains, shares) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    for number, (form, color) in enumerate(zip(FORMS.values(), COLORS, strict=True)):
        places = [place + (number - 1) * WIDTH for place in range(len(rows))]
        gained = [row.ms[0] / row.ms[number] for row in rows]
        shared = [row.bandwidth[number] for row in rows]
        for axes, values, text in ((gains, gained, "{:.2f}"), (shares, shared, "{:.0%}")):
            bars = axes.bar(places, values, WIDTH, color=color, label=form)
            axes.bar_label(bars, [text.format(value) for value in values], fontsize=7)
    gains.set_title("the serial form's time over this form's", fontsize=10)
    shares.set_title("share of the device's bandwidth", fontsize=10)
    shares.axhline(1, color="black", linewidth=0.8)
    for axes in (gains, shares):
        axes.set_xticks(range(len(rows)), [row.label for row in rows])
        axes.axvline(0.5, color="black", linewidth=0.8, linestyle="--")
        axes.spines[["top", "right"]].set_visible(False)
    gains.legend(fontsize=8, loc="upper right")
    figure.savefig(OUTPUT, dpi=110)


if __name__ == "__main__":
    save_picture(draw, OUTPUT)
