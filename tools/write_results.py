"""Writes the tables of benchmarks/results into docs/, and the caption of the README's picture.

Each table goes between the two `results` markers of its file. Files that were measured with other sources than this
tree's are printed, and named in their captions.
"""

import json
import math
import pathlib
import re
import statistics
import sys
from collections.abc import Callable

from codec_tables import codecs
from recorded_tables import layers, timelines
from result_files import PICTURE, ROOT, documents, files_of, is_cpu, is_older, measured, networks_shown, newest
from scaling_tables import scaling
from table_text import MICROSECONDS, MILLISECONDS, cell, lines_of

MARKERS = re.compile(r"(<!-- results:begin -->\n).*?(<!-- results:end -->)", re.DOTALL)
# Columns of peers, in their order, with explanations.
PEERS = {
    "sluice_eager": "sluice's call outside of a CUDA graph, where its own time is in one",
    "torch": "the same in eager PyTorch: `F.conv1d`, `F.conv2d(groups=C)`, pointwise ops one after another",
    "torch_graph": "the same in a CUDA graph",
    "torch_compile": "the same under `torch.compile`",
    "torch_compile_reduce_overhead": 'the same under `torch.compile(mode="reduce-overhead")`',
    "torch_compile_max_autotune": 'the same under `torch.compile(mode="max-autotune-no-cudagraphs")`',
    "conv2d_channels_last": "the same by `F.conv2d` or `F.conv_transpose2d`, of tensors that lie channels-last already",
    "jiterator": "the chain as one kernel of `torch.cuda.jiterator`",
    "causal_conv1d": "the package causal-conv1d",
    "torchvision": "`gaussian_blur` of that size, torchvision's only stencil",
    "cub": "`cub::DeviceTransform`",
    "copy": "`Tensor.copy_` on the device, of the input as it lies",
    "copy_": "`fn(x.to(device)).cpu()`: plain copies of the whole tensor, which allocate the result anew; "
    "on the CPU `out.copy_(x)`",
    "clone": "`Tensor.clone` on the CPU, which allocates its result",
    "copy_out": "`out.copy_(fn(x.to(device)))`: the same into a result that is there already",
    "sequential": "chunk after chunk on one stream",
    "prefetch": "the next chunk copied in on a side stream",
    "copy_async": "the whole tensor with `non_blocking=True`, then its stream is waited for",
    "hand_written": "chunks in turns on two streams",
    "cupy": "chunks in turns on three streams of CuPy",
    "sample_depth_first": "CUDA's sample, chunks in turns on four streams, each copied in, computed and copied out",
    "sample_breadth_first": "the same, four chunks at once: copies in, compute, copies out",
}
NOT_MEASURED = {
    "causal_conv1d": "was not installed on that machine",
    "cub": "has no Python binding",
    "flash_fft_conv": "was not installed on that machine",
}
TITLES = {
    "codecs": "Codecs chunk by chunk",
    "cpu": "The CPU: chains, depthwise convolutions, stencils",
    "conv1d_dense": "Dense convolution",
    "conv1d_depthwise": "Depthwise convolution and SiLU",
    "conv_transpose1d": "Transposed convolution",
    "decode": "Decoding: new tokens behind a state",
    "filter2d": "Stencils over images",
    "overhead": "What a call costs on the host",
    "stream_devices": "Host tensors through one GPU and through two",
    "transform": "Chains over a tensor",
}
CUDA_PIPELINE = ("single_stage", "two_stage", "multi_stage", "producer_consumer", "thread_scope")


def heading(document: dict, rest: str = "", unit: str = MICROSECONDS[0]) -> str:
    return f"**{document['suite']}**, {unit}, {measured([document])}{rest}"


def peers_of(cases: list[dict]) -> tuple[list[str], str]:
    """The peers with a time, and a sentence about the peers without a time."""
    named = {peer for case in cases for peer in case["peers"]}
    timed = {peer for case in cases for peer, us in case["peers"].items() if us is not None}
    absent = [f"`{peer}`, which {NOT_MEASURED.get(peer, 'could not run there')}" for peer in sorted(named - timed)]
    note = f"No column for {', '.join(absent)}." if absent else ""
    return [peer for peer in PEERS if peer in timed], note


def table(document: dict, cases: list[dict] | None = None) -> str:
    """One line per case: sluice, the floor, the peers."""
    return "\n\n".join([heading(document), *bodies(cases or document["cases"])])


def bodies(cases: list[dict], how: str = "schedule", scale: float = 1.0, digits: int | None = None) -> list[str]:
    """The table of these cases, and a sentence about absent columns."""
    peers, note = peers_of(cases)

    def row(case: dict) -> list[str]:
        ours, times = case["time_us"], case["peers"]
        return [
            *(case["name"], case["schedule"], cell(ours, scale, digits), cell(case["floor_us"], scale, digits)),
            f"{case['efficiency']:.2f}",
            *(cell(times.get(peer), scale, digits) for peer in peers),
            *(f"{times[peer] / ours:.2f}" for peer in peers if peer == "torch"),
        ]

    header = ["case", how, "sluice", "floor", "efficiency", *peers, *(["torch / sluice"] if "torch" in peers else [])]
    return ["\n".join(lines_of(header, map(row, cases))), *([note] if note else [])]


def streams(document: dict) -> str:
    """The cases with peers, then the cases without peers, then small calls."""
    unit, scale = MILLISECONDS
    small = [case for case in document["cases"] if case["params"].get("n", 1 << 18) < 1 << 18]
    beside = [case for case in document["cases"] if case["peers"] and case not in small]
    alone = [case for case in document["cases"] if not case["peers"]]
    parts = [*bodies(beside, "order", scale), "Without peers:", *bodies(alone, "order", scale)]
    if small:
        parts += [f"Small calls, in {MICROSECONDS[0]}; their floor is the call by hand:", *bodies(small, "order")]
    return "\n\n".join([heading(document, unit=unit), *parts])


def over_devices(document: dict) -> str:
    """The cases of suite `stream_devices`."""
    unit, scale = MILLISECONDS
    return "\n\n".join([heading(document, unit=unit), *bodies(document["cases"], "order", scale)])


# Columns of suite `models`, by a row's way or by a peer; a way is compared with the first peer that its row has.
NETWORK_PEERS = {
    "torch": "eager",
    "torch_graph": "eager in a graph",
    "torch_compile": "torch.compile",
    "torch_compile_reduce_overhead": "reduce-overhead",
}
NETWORK_WAYS = {
    "replace": ("`replace`", ("torch",)),
    "replace, CUDA graphs": ("`replace` with graphs", ("torch_graph", "torch")),
    "backend": ("backend", ("torch_compile",)),
    "backend, reduce-overhead": ("backend, reduce-overhead", ("torch_compile_reduce_overhead",)),
}


def networks(document: dict) -> str:
    """A line for each network, dtype and batch: torch's ways and sluice's, each with its gain over torch's."""
    unit, scale = MILLISECONDS
    groups: dict[tuple[str, str, int, int], dict[str, dict]] = {}
    for case in document["cases"]:
        name, dtype, batch, length, way = (case["params"][key] for key in ("op", "dtype", "B", "L", "fn"))
        groups.setdefault((name, dtype, batch, length), {})[way] = case

    def peer_cell(rows: dict[str, dict], peer: str) -> str:
        return cell(next((us for case in rows.values() if (us := case["peers"].get(peer)) is not None), None), scale)

    def way_cell(rows: dict[str, dict], way: str) -> str:
        if (case := rows.get(way)) is None:
            return cell(None)
        ours, times = case["time_us"], case["peers"]
        gains = [times[peer] / ours for peer in NETWORK_WAYS[way][1] if times.get(peer) is not None]
        return cell(ours, scale) + (f" ({gains[0]:.2f})" if gains else "")

    columns: dict[str, list[str]] = {}
    for way, (title, (peer, *_)) in NETWORK_WAYS.items():
        columns[NETWORK_PEERS[peer]] = [peer_cell(rows, peer) for rows in groups.values()]
        columns[title] = [way_cell(rows, way) for rows in groups.values()]
    columns = {title: cells for title, cells in columns.items() if set(cells) != {cell(None)}}
    columns["error"] = [f"{max(case['rel_err'] for case in rows.values()):.1e}" for rows in groups.values()]
    names = [f"{name} {dtype} {batch}x{length}" for name, dtype, batch, length in groups]
    rows = [[name, *cells] for name, *cells in zip(names, *columns.values(), strict=True)]
    return "\n".join([heading(document, unit=unit), "", *lines_of(["network", *columns], rows)])


def stencils(document: dict) -> str:
    """The cases beside their peers, then the cases that were measured under several schedules."""
    cases = document["cases"]
    forced = {problem(case) for case in cases if not case["auto"]}
    beside = by_schedule(document, [case for case in cases if problem(case) in forced])
    return table(document, [case for case in cases if case["auto"]]) + "\n\n" + beside


def decoding(document: dict) -> str:
    """The table of short calls, with an explanation of the clock."""
    rest = "; a call among 100 in a CUDA graph, warm, as are the floor and the peers"
    return "\n\n".join([heading(document, rest), *bodies(document["cases"], digits=2)])


def overhead(document: dict) -> str:
    rows = [
        [c["name"], cell(c["time_us"]), cell(c["peers"]["torch"]), f"{c['time_us'] / c['peers']['torch']:.2f}"]
        for c in document["cases"]
    ]
    note = (
        "`torch` is one call each: `F.silu`, for the chain of four stages too, and `F.conv1d` without a SiLU behind it."
    )
    return "\n".join([heading(document), "", note, "", *lines_of(["call", "sluice", "torch", "sluice / torch"], rows)])


def problem(case: dict) -> str:
    return json.dumps(case["params"], sort_keys=True)


def by_schedule(document: dict, cases: list[dict] | None = None) -> str:
    """One line per problem, one column per schedule; `auto`'s choice is bold and compared with the others."""
    problems: dict[str, dict[str, float]] = {}
    picked: dict[str, dict] = {}
    for case in cases or document["cases"]:
        if case["auto"]:
            picked[problem(case)] = case
        else:
            problems.setdefault(problem(case), {})[case["schedule"]] = case["time_us"]
    names = list(next(iter(problems.values())))

    def row(key: str) -> list[str]:
        auto, times = picked[key], problems[key]
        pipeline = min(time for name, time in times.items() if name in CUDA_PIPELINE)
        ratios = [f"{auto['time_us'] / min(times.values()):.2f}", f"{pipeline / auto['time_us']:.2f}"]
        cells = [f"**{cell(us)}**" if name == auto["schedule"] else cell(us) for name, us in times.items()]
        chosen = "" if auto["schedule"] in times else f" (`{auto['schedule']}`)"
        return [auto["name"], cell(auto["time_us"]) + chosen, *ratios, *cells]

    header = ["case", "auto", "auto / best forced", "best with `cuda::pipeline` / auto", *(f"`{n}`" for n in names)]
    return "\n".join([heading(document, "; bold: `auto`'s choice"), "", *lines_of(header, map(row, problems))])


def by_depth(document: dict) -> str:
    """One line per kernel, one column per depth."""
    kernels: dict[str, dict[int, float]] = {}
    for case in document["cases"]:
        kernels.setdefault(case["name"].rsplit(" ", 1)[0], {})[case["depth"]] = case["time_us"]
    depths = sorted({depth for times in kernels.values() for depth in times})
    rows = [[name, *(cell(times.get(depth)) for depth in depths)] for name, times in kernels.items()]
    header = ["case and schedule", *(f"{d} stage{'s' * (d > 1)}" for d in depths)]
    return "\n".join([heading(document), "", *lines_of(header, rows)])


LEAST_FLOOR_US = 10.0  # below it a case's time is its launch, and efficiencies mean nothing


def drawn(document: dict) -> str:
    """One line per family of random problems, and the worst ten of each."""
    families: dict[str, list[dict]] = {}
    for case in document["cases"]:
        families.setdefault(case["name"].partition(" ")[0], []).append(case)

    def row(family: str) -> list[str]:
        cases = families[family]
        ratios = [case["peers"]["torch"] / case["time_us"] for case in cases]
        shares = sorted(case["efficiency"] for case in cases if case["floor_us"] >= LEAST_FLOOR_US)
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        found = [shares[0], shares[len(shares) // 10], statistics.median(shares)] if shares else []
        return [
            *(family, str(len(cases)), f"{mean:.2f}", f"{min(ratios):.2f}", str(sum(r < 1 / 1.03 for r in ratios))),
            *(str(len(shares)), *(f"{share:.2f}" for share in found)),
        ]

    header = ["family", "cases", "torch / sluice", "least", "3 % slower", f"floor >= {LEAST_FLOOR_US:.0f} us"]
    header += ["least efficiency", "tenth percentile", "median"]
    parts = [heading(document), "\n".join(lines_of(header, map(row, families)))]
    for family, cases in families.items():
        worst = sorted(cases, key=lambda case: case["peers"]["torch"] / case["time_us"])[:10]
        parts += [f"The ten of family {family} that gain least:", *bodies(worst)]
    return "\n\n".join(parts)


def glossary(found: list[dict]) -> str:
    """Explains the columns of these tables."""
    used = [peer for peer in PEERS if any(c["peers"].get(peer) is not None for d in found for c in d["cases"])]
    return "The peers, what users have today, in the same run:\n\n" + "\n".join(f"- `{p}`: {PEERS[p]}" for p in used)


ISSUE = re.compile(r"(?P<call>.*) (?P<layout>cf|cl) pytorch#(?P<number>\d+)")  # the name of an issue's case


def issues(document: dict) -> str:
    """Calls from pytorch issues, one line for both layouts; empty if none was measured."""
    calls: dict[tuple[str, str], dict[str, dict]] = {}
    for case in document["cases"]:
        found = ISSUE.fullmatch(case["name"])
        if found:
            calls.setdefault((found["number"], found["call"]), {})[found["layout"]] = case

    def times(case: dict | None) -> list[str]:
        if case is None:
            return [cell(None)] * 3
        return [cell(case["peers"]["torch"]), cell(case["time_us"]), f"{case['efficiency']:.2f}"]

    def row(key: tuple[str, str]) -> list[str]:
        number, call = key
        link = f"[#{number}](https://github.com/pytorch/pytorch/issues/{number}): {call}"
        return [link, *times(calls[key].get("cf")), *times(calls[key].get("cl"))]

    header = ["issue", "(B, C, L): `F.conv1d`", "sluice", "efficiency"]
    header += ["channels-last: `F.conv1d`", "sluice", "efficiency"]
    return "\n".join(lines_of(header, map(row, calls))) if calls else ""


def picture() -> str:
    """The README's picture with its caption, and the issues below it."""
    suites = {*(bar.suite for bar in PICTURE), *(["models"] if networks_shown() else [])}
    used = [document for document in documents() if document["suite"] in suites and not is_cpu(document)]
    least, most = (choose(PICTURE, key=lambda bar: bar.ratio) for choose in (min, max))
    span = " to ".join(f"{bar.ratio:.2f} ({bar.group}: {bar.label})" for bar in (least, most))
    drawn = (
        f"![Bars: the time of sluice's calls where PyTorch takes 1, from {span}](docs/images/results.png)\n\n"
        f"Wins and losses against PyTorch ([all results](docs/results.md)): {measured(used)}."
    )
    below = [
        table for document in documents() if document["suite"] == "conv1d_depthwise" if (table := issues(document))
    ]
    said = "Two issues of PyTorch's, microseconds in the same run, before (`F.conv1d`) and after:"
    return "\n\n".join([drawn, *(f"{said}\n\n{table}" for table in below)])


MEASUREMENTS = ROOT / "docs" / "measurements"
RESULTS = ROOT / "docs" / "results.md"
SCALING = ROOT / "docs" / "scaling.md"
# The place and form of a suite's table; all others are plain tables in docs/results.md.
FORMS: dict[str, tuple[pathlib.Path, Callable[[dict], str]]] = {
    "codecs": (RESULTS, codecs),
    "decode": (RESULTS, decoding),
    "filter2d": (RESULTS, stencils),
    "models": (MEASUREMENTS / "models.md", networks),
    "overhead": (RESULTS, overhead),
    "random": (MEASUREMENTS / "random.md", drawn),
    "schedules": (MEASUREMENTS / "schedules.md", by_schedule),
    "depth": (MEASUREMENTS / "schedules.md", by_depth),
    "stream": (MEASUREMENTS / "streams.md", streams),
    "stream_devices": (RESULTS, over_devices),
}


def render() -> dict[pathlib.Path, str]:
    """The text between the markers of each file."""
    found = documents()
    if not found:
        none = "No measurements yet: `make bench` on a machine with a GPU writes them."
        paths = [ROOT / "README.md", RESULTS, *(path for path, _ in FORMS.values())]
        return {**dict.fromkeys(paths, none), SCALING: scaling()}
    parts: dict[pathlib.Path, list[str]] = {RESULTS: [glossary(newest())]}
    for suite, form in FORMS.items():  # in this order on a page
        parts.setdefault(form[0], [])
        if form[0] != RESULTS:
            own = [document for document in newest() if document["suite"] == suite]
            parts[form[0]] += [form[1](document) for document in sorted(own, key=is_cpu)]
    for document in sorted(newest(), key=lambda document: document["suite"]):
        path, form = FORMS.get(document["suite"], (RESULTS, table))
        if path == RESULTS:
            parts[RESULTS] += [f"## {TITLES.get(document['suite'], document['suite'])}", form(document)]
    if table_of_layers := layers():
        parts[RESULTS] += ["## Layers of transformers: `sluice.compat` before and after", table_of_layers]
    texts = {path: "\n\n".join(written) for path, written in parts.items()}
    texts[MEASUREMENTS / "streams.md"] += "\n\n" + timelines()
    return {ROOT / "README.md": picture(), SCALING: scaling(), **texts}


def main() -> int:
    stale = 0
    for document in filter(is_older, files_of(documents())):
        print(f"{document['path']}: measured on older sources than this tree's ({document['date']})")
    for path, tables in render().items():
        text = path.read_text()
        written = MARKERS.sub(lambda match, tables=tables: match[1] + tables + "\n" + match[2], text)
        if "--check" in sys.argv:
            stale += written != text
        else:
            path.write_text(written)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
