"""Reads benchmarks/results for tools: documents, whether they are of this tree, and the picture's cases."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterable

from source_tree import ROOT, source_hash

# Folders of benchmarks/results: the README's picture shows a suite's results of the first of these cards.
CARDS = ("nvidia-h100-80gb-hbm3", "nvidia-h200")


def _rank(path: pathlib.Path) -> tuple[int, str]:
    card = path.parent.name
    return CARDS.index(card) if card in CARDS else len(CARDS), card


@functools.cache
def _all_documents() -> list[dict]:
    """The documents, the first card's last. The parts of a suite on a card are one document."""
    suites: dict[tuple[str, str], list[dict]] = {}
    for path in sorted(sorted(ROOT.glob("benchmarks/results/*/*.json")), key=_rank, reverse=True):
        document = json.loads(path.read_text()) | {"path": path.relative_to(ROOT).as_posix()}
        suites.setdefault((path.parent.name, document["suite"]), []).append(document)
    return [files[0] if len(files) == 1 else _joined(files) for files in suites.values()]


def _joined(files: list[dict]) -> dict:
    """The cases of all files, below the newest's head."""
    cases = [case for document in files for case in document["cases"]]
    if len({case["name"] for case in cases}) != len(cases):
        raise ValueError(f"parts must have cases of names that differ: {', '.join(d['path'] for d in files)}")
    return max(files, key=lambda document: document["date"]) | {"cases": cases, "files": files}


def files_of(found: Iterable[dict]) -> list[dict]:
    """The documents as their files have them: of a suite that has parts, one for each."""
    return [file for document in found for file in document.get("files", [document])]


def is_cpu(document: dict) -> bool:
    return bool(document["gpu"] == "cpu")


def _one_of_each_suite(found: Iterable[dict]) -> list[dict]:
    """A suite that runs on both has a document of a card and one of the CPU."""
    last = {(document["suite"], is_cpu(document)): document for document in found}
    return sorted(last.values(), key=lambda document: document["path"])


def documents() -> list[dict]:
    """One document of each suite, preferably of the first card, with its `path` in the tree; another of the CPU's."""
    return _one_of_each_suite(_all_documents())


def newest() -> list[dict]:
    """The last measured document of each suite, of any card; another of the CPU's."""
    return _one_of_each_suite(sorted(_all_documents(), key=lambda document: document["date"]))


def recording(name: str) -> pathlib.Path | None:
    """The file `name` in benchmarks/recordings of the first recorded card, never of the CPU."""
    found = ROOT.glob(f"benchmarks/recordings/*/{name}")
    return min((path for path in found if path.parent.name != "cpu"), key=_rank, default=None)


def save_picture(draw: Callable[[], object], output: pathlib.Path) -> None:
    """Calls `draw`, which writes `output`; prints a note if the packages for it are not installed."""
    try:
        draw()
    except ModuleNotFoundError as error:
        print(f"{output} is not drawn: {error}")


def is_older(document: dict) -> bool:
    """Whether it was measured with sources other than this tree's."""
    return any(file["source_hash"] != tree_hash() for file in files_of([document]))


@functools.cache
def tree_hash() -> str:
    return source_hash()


def measured(found: list[dict]) -> str:
    """A caption: where and when the documents were measured; with several machines, the suites of each."""
    machines: dict[str, list[dict]] = {}
    for document in files_of(found):
        name = f"{document['gpu']}, torch {document['torch']}, CUDA {document['cuda']}"
        machines.setdefault(name, []).append(document)
    parts = []
    for name, documents in sorted(machines.items()):
        own = sorted({d["date"] for d in documents if not is_older(d)})
        older = sorted({d["date"] for d in documents if is_older(d)})
        days = [" and ".join(own)] * bool(own)
        days += [f"{' and '.join(older)} on older sources than this tree's"] * bool(older)
        suites = ", ".join(sorted({f"`{d['suite']}`" for d in documents}))
        parts.append((f"{suites} on " if len(machines) > 1 else "") + f"{name}, measured {', '.join(days)}")
    return "; ".join(parts)


@dataclasses.dataclass(frozen=True)
class Bar:
    """A case in the README's picture, and the peer that represents torch."""

    group: str
    label: str
    suite: str
    case: str
    peer: str = "torch"

    def document(self) -> dict:
        (found,) = [d for d in documents() if d["suite"] == self.suite and not is_cpu(d)]
        return found

    def row(self) -> dict:
        (found,) = [case for case in self.document()["cases"] if case["name"] == self.case]
        return found

    @property
    def ours(self) -> float:
        return float(self.row()["time_us"])

    @property
    def torch(self) -> float:
        return float(self.row()["peers"][self.peer])

    @property
    def compiled(self) -> float | None:
        return self.row()["peers"].get("torch_compile")

    @property
    def ratio(self) -> float:
        return self.ours / self.torch


@dataclasses.dataclass(frozen=True)
class Network:
    """A network in the README's picture: suite `models`, several ways beside eager torch."""

    label: str
    name: str
    dtype: str
    batch: int

    def rows(self) -> dict[str, dict]:
        """The suite's rows by their way."""
        found = [d for d in documents() if d["suite"] == "models" and not is_cpu(d)]
        wanted = {"op": self.name, "dtype": self.dtype, "B": self.batch}
        cases = [case for d in found for case in d["cases"] if wanted.items() <= case["params"].items()]
        return {case["params"]["fn"]: case for case in cases}

    def times(self) -> dict[str, tuple[float, float]]:
        """Microseconds by bar, and the same over eager torch's time in the same row; empty without the suite's rows."""
        rows = self.rows()
        if not {"replace", "replace, CUDA graphs"} <= rows.keys():
            return {}
        found = {"eager": (rows["replace"]["peers"]["torch"], 1.0)}
        if (row := rows.get("backend")) is not None and (us := row["peers"].get("torch_compile")) is not None:
            found["torch.compile"] = (us, us / row["peers"]["torch"])
        for way in ("replace", "replace, CUDA graphs"):
            us = rows[way]["time_us"]
            found[way] = (us, us / rows[way]["peers"]["torch"])
        return found


# What users run: vocoders and codecs for one utterance, float32 by torch's defaults among them, and a batch.
NETWORKS = [
    Network("SpeechT5's vocoder, fp16, one utterance", "speecht5_hifigan", "fp16", 1),
    Network("DAC's decoder, fp32, one utterance", "dac_decoder", "fp32", 1),
    Network("Mimi's decoder, fp32, eight utterances", "mimi_decoder", "fp32", 8),
    Network("Whisper's stem, fp16, eight windows", "whisper_stem", "fp16", 8),
]


def networks_shown() -> list[Network]:
    """The picture's networks that are measured."""
    return [network for network in NETWORKS if network.times()]


_CHAINS, _CONV = "chain of stages, 2^26 bf16 values", "depthwise conv1d and SiLU"
_DENSE = "dense conv1d and GELU"
_STENCIL, _STREAM = "filter2d, 64 frames 1080 x 1920", "1 GiB fp32 from host to GPU and back"
_CALL = "cost of a call, tiny tensors"
# Each op at a usual and at a hard size, then cases that gain nothing, then cases that lose.
PICTURE = [
    Bar(_CHAINS, "4 stages", "transform", "bf16 2^26 silu(1.5*x + 0.25) * 0.7"),
    Bar(_CHAINS, "10 stages", "transform", "bf16 2^26 ten ops"),
    Bar(_CHAINS, "GELU alone", "transform", "bf16 2^26 gelu(x)"),
    Bar(_CONV, "4 taps, (8, 5120, 2048) bf16", "conv1d_depthwise", "8x5120x2048 K=4 bf16 cf"),
    Bar(_CONV, "31 taps, (16, 512, 1000) fp16", "conv1d_depthwise", "16x512x1000 K=31 fp16 cf"),
    Bar(_CONV, "511 taps, (16, 2, 480000) fp32", "conv1d_depthwise", "16x2x480000 K=511 fp32 cf"),
    Bar(_DENSE, "11 taps, 32 channels, fp16", "conv1d_dense", "4x32x220672 to 32 K=11 d=5 fp16 cf gelu"),
    Bar(_DENSE, "11 taps, 128 channels, fp16", "conv1d_dense", "4x128x55168 to 128 K=11 d=5 fp16 cf gelu"),
    Bar(_DENSE, "3 taps, (3072, 128, 202) bf16", "conv1d_dense", "3072x128x202 to 384 K=3 d=1 bf16 cf gelu"),
    Bar(_STENCIL, "5 x 5, fp16", "filter2d", "64x1x1080x1920 5x5 fp16"),
    Bar(_STENCIL, "11 x 11, fp32", "filter2d", "64x1x1080x1920 11x11 fp32"),
    Bar(_STENCIL, "3 x 3, fp32, odd sides", "filter2d", "64x1x1079x1919 3x3 fp32"),
    Bar(_STREAM, "pageable; torch: one stream", "stream", "identity, 1 GiB fp32 pageable", "sequential"),
    Bar(_STREAM, "pinned; torch: two streams", "stream", "identity, 1 GiB fp32 pinned", "hand_written"),
    Bar(_CALL, "conv1d, 4 taps", "overhead", "sluice.conv1d depthwise K=4"),
    Bar(_CALL, "transform, SiLU", "overhead", "sluice.transform silu(x)"),
]
