"""The demo: its three jobs end to end on the CPU, its exit codes, its parts, and the example beside it."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import sys
import wave

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import ROOT
from forked import run_forked
from sluice.demo import extractor, jobs, main, vocoder
from sluice.demo.filters import band_pass
from sluice.demo.measure import Row, measure, relative_error
from sluice.demo.recording import Recording, find_recording, read_wav
from sluice.demo.table import HEADINGS, format_table

QUICK = ["--quick", "--device", "cpu"]
VOCODER = "vocoder, 1 x 32 frames"
JOBS = ["band-pass FIR, 255 taps", "features, eager", "features, compiled", "chain of 5 stages"]


def write_wav(
    path: pathlib.Path, content: bytes, *, rate: int = 16000, width: int = 2, channels: int = 1
) -> pathlib.Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(content)
    return path


def row(**changes) -> Row:
    right = Row("a job", torch.float32, (1, 2), error=1e-7, tolerance=1e-6, ours=2.0, torch=5.0, device="CPU")
    return dataclasses.replace(right, **changes)


@pytest.fixture
def no_vocoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.models.speecht5.modeling_speecht5", None)


@pytest.fixture
def one_short_job(no_vocoder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_band_pass", lambda *_: iter(()))
    monkeypatch.setattr(jobs, "_features", lambda *_: iter(()))


@pytest.mark.usefixtures("no_vocoder")
def test_demo(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    assert main([*QUICK, "--output", str(picture)]) == 0
    out = capsys.readouterr().out.splitlines()
    threads, vectors = torch.get_num_threads(), sluice.info()["cpu"]["instruction_set"]
    assert out[0].endswith(f"speech.wav: 1.0 s at 16000 Hz; CPU with {threads} threads, {vectors}")
    assert out[1].startswith("no vocoder: it needs transformers")
    assert out[2].split() == list(HEADINGS)
    lines = out[4 : 4 + len(JOBS)]
    for job, line in zip(JOBS, lines, strict=True):
        assert line.startswith(f"{job} ")
        assert line.split()[-2:] == ["CPU", "ok"]
    assert out[-1] == f"picture: {picture}"
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_demo_of_a_model(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("transformers")
    for job in ("_band_pass", "_features"):
        monkeypatch.setattr(jobs, job, lambda *_: iter(()))
    small = {"upsample_initial_channel": 32, "upsample_rates": [4, 4, 4, 4], "upsample_kernel_sizes": [8, 8, 8, 8]}
    vocode = vocoder.vocode
    monkeypatch.setattr(vocoder, "vocode", lambda *arguments, **options: vocode(*arguments, **options, **small))
    picture = tmp_path / "picture.png"
    assert main([*QUICK, "--output", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "torch's own kernel computes it" in out  # on the CPU
    assert [line.split()[-2:] for line in out.splitlines() if line.startswith(VOCODER)] == [["CPU", "ok"]]
    assert out.splitlines()[-2:] == [f"picture: {picture}", f"picture: {tmp_path / 'picture_jobs.png'}"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.glob("*.png"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda y: y * 1.001,
        lambda y: y.index_fill(-1, torch.tensor([7]), math.nan),
        lambda y: y[..., :-1],
        lambda y: y.double(),
    ],
    ids=["slightly off", "nan", "shape", "dtype"],
)
@pytest.mark.usefixtures("one_short_job")
def test_a_wrong_result_fails(
    spoil, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*QUICK, "--output", str(tmp_path / "picture.png")]
    assert main(arguments) == 0
    monkeypatch.setattr(jobs, "transform", lambda x, chain: spoil(sluice.transform(x, chain)))
    capsys.readouterr()
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[4].endswith(" WRONG")
    assert "1 of 1 results are wrong" in captured.err


@pytest.mark.usefixtures("one_short_job")
def test_without_matplotlib_only_the_picture_is_missing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    picture = tmp_path / "picture.png"
    assert main([*QUICK, "--output", str(picture)]) == 0
    assert not picture.exists()
    assert capsys.readouterr().out.splitlines()[-1].startswith("no picture: it needs matplotlib")


@pytest.mark.usefixtures("one_short_job")
def test_a_picture_that_cannot_be_written(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main([*QUICK, "--output", str(tmp_path / "nowhere" / "picture.png")]) == 2
    assert "the picture cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path, "No such file"),
        (lambda path: path.write_bytes(b"no sound") and path, "must be a PCM WAV file"),
        (lambda path: write_wav(path, b""), "must hold at least one sample"),
        (lambda path: write_wav(path, bytes(9), width=1), "must have 16-bit samples, got 8"),
        (lambda path: write_wav(path, bytes(798)), "must have at least 400 samples, got 399"),
        (lambda path: write_wav(path, bytes(2000)), "must not be silent"),
        (lambda path: write_wav(path, bytes(2000), rate=6800), "must have more than 6800 samples per second"),
    ],
)
def test_a_recording_that_cannot_be_used(
    make, message: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUICK, "--audio", str(make(tmp_path / "sound.wav"))]) == 2
    assert message in capsys.readouterr().err


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for device in ("mps", "no device", f"cuda:{torch.cuda.device_count()}"):
        assert main(["--device", device]) == 2
        assert "--device" in capsys.readouterr().err


def test_the_recording_is_found_and_missed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert find_recording() == ROOT / "examples" / "data" / "speech.wav"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sluice.demo.recording.__file__", str(tmp_path / "site-packages" / "recording.py"))
    with pytest.raises(FileNotFoundError, match="--audio"):
        find_recording()


def test_the_recording_is_what_it_says() -> None:
    path = ROOT / "examples" / "data" / "speech.wav"
    assert path.stat().st_size < 500_000
    recording = read_wav(path)
    assert recording.rate == 16000
    assert 3 < recording.seconds < 10
    assert 0.3 < recording.samples.abs().max() < 1


def test_read_wav(tmp_path: pathlib.Path) -> None:
    values = torch.tensor([[0, 100], [-32768, -32768], [32767, 32766]], dtype=torch.int16)
    content = bytes(values.view(torch.uint8).flatten().tolist())
    stereo = read_wav(write_wav(tmp_path / "stereo.wav", content, channels=2, rate=8000))
    assert stereo.rate == 8000
    torch.testing.assert_close(stereo.samples, values.double().mean(1).div(32768).float())
    mono = read_wav(write_wav(tmp_path / "mono.wav", content))
    torch.testing.assert_close(mono.samples, values.flatten().float() / 32768)
    assert mono.first(2 / 16000).samples.numel() == 2


def test_band_pass() -> None:
    taps = band_pass(255, 300.0, 3400.0, 16000.0)
    assert taps.dtype == torch.float64
    torch.testing.assert_close(taps, taps.flip(0), rtol=0, atol=1e-15)
    points = 8192
    gain = torch.fft.rfft(taps, points).abs()
    frequency = torch.arange(points // 2 + 1) * (16000 / points)
    inside = gain[(frequency > 420) & (frequency < 3280)]
    outside = gain[(frequency < 180) | (frequency > 3520)]
    assert (inside - 1).abs().max() < 0.005
    assert 20 * torch.log10(outside.max()) < -40
    edges = torch.stack([gain[(frequency - edge).abs().argmin()] for edge in (300, 3400)])
    torch.testing.assert_close(edges, torch.full_like(edges, 0.5), rtol=0, atol=0.01)


@pytest.mark.parametrize(
    "arguments", [(254, 300.0, 3400.0), (255, 0.0, 3400.0), (255, 500.0, 400.0), (255, 300.0, 8000.0)]
)
def test_band_pass_that_cannot_be(arguments: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match=r"band_pass: .* must be .* got "):
        band_pass(*arguments, 16000.0)


def test_extractor_keeps_the_level_and_its_receptive_field() -> None:
    model, native = extractor.SluiceExtractor(channels=64), extractor.TorchExtractor(channels=64)
    assert model.state_dict().keys() == native.state_dict().keys()
    with torch.inference_mode():
        for length, features in ((extractor.RECEPTIVE_FIELD, 1), (extractor.RECEPTIVE_FIELD + 320, 2), (16000, 49)):
            x = torch.randn(2, 1, length)
            y = model(x)
            assert y.shape == (2, 64, features)
            torch.testing.assert_close(y, native(x), rtol=1e-4, atol=1e-4)
        assert 0.3 < y.square().mean().sqrt() < 3  # features of the longest input, whose mean is over 49 features


def test_tf32_is_as_it_was_after_the_jobs() -> None:
    for allowed in (True, False):
        torch.backends.cudnn.allow_tf32 = allowed
        with jobs.full_float32():
            assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.allow_tf32 == allowed


def test_measure_times_both() -> None:
    x = torch.randn(3, 200_000)
    result = measure("relu", x, lambda: F.relu(x), lambda: F.relu(x), lambda: F.relu(x.double()), repeats=3)
    assert result.error == 0.0
    assert result.ok
    assert result.ours > 0
    assert result.torch > 0
    assert result.shape == (3, 200_000)


def test_relative_error() -> None:
    expected = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert relative_error(torch.tensor([3.0, 4.5]), expected) == pytest.approx(0.1)
    assert math.isnan(relative_error(torch.tensor([3.0, math.nan]), expected))
    assert relative_error(torch.tensor([3.0]), expected) == math.inf


def test_table() -> None:
    rows = [
        row(),
        row(job="another", dtype=torch.bfloat16, error=math.nan, ours=2500.0, torch=1000.0, device="Some GPU"),
    ]
    lines = format_table(rows).splitlines()
    assert lines[0].split() == list(HEADINGS)
    assert " ".join(lines[2].split()) == "a job float32 1 x 2 1.0e-07 2 ms 5 ms 2.50 CPU ok"
    assert " ".join(lines[3].split()) == "another bfloat16 1 x 2 nan 2.5 s 1 s 0.40 Some GPU WRONG"
    assert lines[2].index("ok") == lines[3].index("WRONG") == lines[0].index("result")


def test_picture_of_many_rows(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    from sluice.demo.picture import draw

    sound = Recording(torch.randn(500), 8000)  # shorter than the spectrum's window
    rows = [row(ours=1.0, torch=10.0 ** (i / 2 - 1)) for i in range(6)] + [row(error=1.0)]
    draw(tmp_path / "many.png", sound, sound, rows)
    assert (tmp_path / "many.png").exists()


def test_example() -> None:
    run = run_forked(ROOT / "examples" / "speech_features.py", TORCHINDUCTOR_COMPILE_THREADS="1")
    assert run.returncode == 0, run.stderr
    assert "samples (1, 1, 102397) -> features (1, 512, 319)" in run.stdout
    assert "compiled: the same" in run.stdout
