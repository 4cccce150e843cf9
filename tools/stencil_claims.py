"""An article's stencil that hides copies (serial, double-buffered, three stages): its numbers and sluice's."""

import dataclasses

from result_files import newest

FORMS = {"sync": "serial", "two_stage": "double buffer", "multi_stage": "three stages"}
FRAMES, HEIGHT, WIDTH, BYTES = 64, 1080, 1920, 4
SIZES = range(3, 12, 2)


@dataclasses.dataclass(frozen=True)
class Row:
    """Milliseconds of each form, in the order of `FORMS`, and each one's share of the device's bandwidth."""

    label: str
    ms: tuple[float, ...]
    bandwidth: tuple[float, ...]
    direct_ms: float | None = None

    @property
    def gains(self) -> list[float]:
        """The serial form's time over that of the others."""
        return [self.ms[0] / ms for ms in self.ms[1:]]


CLAIM = Row("the text", (12.4, 8.7, 6.2), (0.62, 0.78, 0.92))


def measured_rows() -> list[Row]:
    """A row per kernel size, for 64 float32 frames of 1080 x 1920; shares are of a copy's bandwidth."""
    rows: list[Row] = []
    for document in newest():
        if document["suite"] != "filter2d":
            continue
        copy_us = 2 * FRAMES * HEIGHT * WIDTH * BYTES / document["copy_tbps"] / 1e6
        times: dict[int, dict[str, float]] = {}
        for case in document["cases"]:
            params = case["params"]
            if (params["B"], params["C"], params["H"], params["W"]) != (FRAMES, 1, HEIGHT, WIDTH):
                continue
            if params["dtype"] == "fp32" and "fn" not in params and params["K"] in SIZES:
                times.setdefault(params["K"], {})["auto" if case["auto"] else case["schedule"]] = case["time_us"]
        for size, found in sorted(times.items()):
            if set(FORMS) <= set(found):
                us = [found[form] for form in FORMS]
                shares = tuple(copy_us / one for one in us)
                rows.append(Row(f"{size} x {size}", tuple(one / 1e3 for one in us), shares, found["auto"] / 1e3))
    return rows
