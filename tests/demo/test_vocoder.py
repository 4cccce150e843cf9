"""The vocoder of the demo and its example on the CPU: a small vocoder, its parts, and the program."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import pytest
import torch

from common import ROOT
from forked import run_forked
from sluice.demo import vocoder
from sluice.demo.recording import Recording, find_recording, read_wav

pytestmark = pytest.mark.no_gpu
pytest.importorskip("transformers")
CPU = torch.device("cpu")
SMALL = {"upsample_initial_channel": 32, "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]]}
LAYERS = 1 + 4 + 4 * 4 + 1  # the small vocoder's: the first, 4 between levels, a block of four for each level, the last


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_wav(find_recording())


def test_vocode(recording: Recording, tmp_path: pathlib.Path) -> None:
    found = vocoder.vocode(recording, CPU, quick=True, **SMALL)
    assert found.row.ok
    assert found.row.shape == (1, 32, vocoder.BANDS)
    assert 0 < found.row.error < 1e-5
    assert 0 < found.torch_error < 1e-5
    assert found.before.samples.shape == found.after.samples.shape == (32 * vocoder.HOP,)
    torch.testing.assert_close(found.after.samples, found.before.samples, rtol=1e-4, atol=1e-4)
    for name in ("conv_pre", "upsampler.3", "resblocks.2.convs1.1", "conv_post"):
        assert name in found.replaced
    said = vocoder.caption(found)
    assert said.startswith("SpeechT5HifiGan, float32, 1 x 32 frames: ")
    assert f"{found.row.ratio:.2f}x as fast on CPU" in said
    pytest.importorskip("matplotlib")
    vocoder.draw(tmp_path / "picture.png", found)
    content = (tmp_path / "picture.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_a_wrong_replacement_is_seen(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiling(model: torch.nn.Module) -> str:
        model.conv_post.weight.mul_(1.001)
        return "nothing is replaced"

    monkeypatch.setattr(vocoder, "replace", spoiling)
    found = vocoder.vocode(recording, CPU, quick=True, **SMALL)
    assert not found.row.ok
    assert found.replaced == "nothing is replaced"


def test_the_model_is_its_seed() -> None:
    state = torch.random.get_rng_state()
    first, again, other = (vocoder.vocoder(seed=seed, **SMALL) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first.conv_post.weight, again.conv_post.weight)
    assert not torch.equal(first.conv_post.weight, other.conv_post.weight)
    convolutions = [m for m in first.modules() if isinstance(m, (torch.nn.Conv1d, torch.nn.ConvTranspose1d))]
    assert len(convolutions) == LAYERS


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.models.speecht5.modeling_speecht5", None)
    with pytest.raises(ImportError):
        vocoder.vocoder()


def test_frames(recording: Recording) -> None:
    frames = vocoder.mel_frames(recording, 3, 60)
    assert frames.shape == (3, 60, vocoder.BANDS)
    assert float(frames.square().mean()) == pytest.approx(1.0, rel=1e-5)
    assert torch.equal(frames[1], frames[0].roll(20, dims=0))
    long = vocoder.mel_frames(recording, 1, 860)  # twice as long as the recording
    assert long.shape == (1, 860, vocoder.BANDS)
    assert long[0, -100:].any()
    loud = dataclasses.replace(recording, samples=torch.cat([torch.zeros(8192), recording.samples[:8192]]))
    silence, speech = vocoder.mel_frames(loud, 1, 64)[0].split(32)
    assert not silence[:28].any()  # windows that see none of the speech
    assert speech.square().mean() > 1


def test_filters() -> None:
    filters = vocoder.mel_filters(16000)
    assert float(filters.min()) == 0
    assert float(filters.max()) <= 1
    centres = (filters * torch.linspace(0, 8000, 513)).sum(1) / filters.sum(1)
    assert (centres.diff() > 0).all()
    inside = filters.sum(0)[10:450]  # 156 Hz to 7 kHz: a falling side and a rising one are 1 together
    torch.testing.assert_close(inside, torch.ones_like(inside), rtol=0, atol=1e-4)
    tone = Recording(torch.sin(2 * torch.pi * 1000 / 16000 * torch.arange(16000)), 16000)
    band = int(vocoder.mel_frames(tone, 1, 40)[0].mean(0).argmax())
    assert abs(float(centres[band]) - 1000) < 30


def test_spectrum_of_a_tone() -> None:
    sound = Recording(torch.sin(2 * torch.pi * 2000 / 16000 * torch.arange(4000)), 16000)
    assert set(vocoder.decibels(sound).argmax(0).tolist()) == {64}  # bins are 31.25 Hz wide
    assert vocoder.decibels(Recording(torch.ones(100), 16000)).shape == (257, 1)  # shorter than a window


def test_example(tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "picture.png"
    offline = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    ran = run_forked(ROOT / "examples/vocoder.py", "--frames", "20", "--output", str(picture), **offline)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    *table, times, same, drawn = ran.stdout.splitlines()
    assert any("conv_pre" in line for line in table)
    assert times.startswith("1 x 20 frames, torch.float32 on cpu: ")
    assert same.endswith(": the same")
    if drawn == f"picture: {picture}":
        assert picture.read_bytes().startswith(b"\x89PNG")
    else:
        assert drawn.startswith("no picture: it needs matplotlib")
