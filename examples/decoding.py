"""A short convolution as a server runs it: three prompts at once, then token after token, with states in a cache.

    python examples/decoding.py

The results are compared with a convolution of each whole sequence.
"""

from __future__ import annotations

import torch

import sluice

CHANNELS, TAPS, SLOTS = 64, 4, 8
PROMPTS = (5, 1, 12)  # tokens of each; one is shorter than the taps
STEPS = 6


def main() -> int:
    torch.manual_seed(0)
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    options = {"device": device, "dtype": dtype}
    weight, bias = torch.randn(CHANNELS, TAPS, **options), torch.randn(CHANNELS, **options)
    sequences = [torch.randn(length + STEPS, CHANNELS, **options) for length in PROMPTS]

    # A slot holds the last K - 1 tokens of a sequence. What others have left in it does not count at first.
    cache = torch.full((SLOTS, CHANNELS, TAPS - 1), float("nan"), **options)
    slots = torch.tensor([6, 0, 3], dtype=torch.int32, device=device)
    is_continued = torch.zeros(len(PROMPTS), dtype=torch.bool, device=device)

    # Prefill: the prompts one after another, tokens as rows, and the start of each. Nothing is padded.
    packed = torch.cat([tokens[:length] for tokens, length in zip(sequences, PROMPTS, strict=True)])
    starts = torch.tensor([0, *PROMPTS], device=device).cumsum(0)
    prefill = sluice.causal_conv1d(
        packed.mT, weight, bias, activation="silu",
        cu_seqlens=starts, state_cache=cache, cache_indices=slots, has_initial_state=is_continued,
    )  # fmt: skip
    results = list(prefill.mT.split(PROMPTS))

    # Decoding: one token of each sequence a call. The slots take the tokens in place.
    for step in range(STEPS):
        tokens = torch.stack([tokens[length + step] for tokens, length in zip(sequences, PROMPTS, strict=True)])
        y = sluice.causal_conv1d_update(tokens, cache, weight, bias, activation="silu", conv_state_indices=slots)
        results = [torch.cat([before, new[None]]) for before, new in zip(results, y, strict=True)]

    is_same = True
    for tokens, result, length in zip(sequences, results, PROMPTS, strict=True):
        whole = sluice.causal_conv1d(tokens.mT[None], weight, bias, activation="silu")[0].mT
        difference = (result - whole).abs().max().item()
        print(f"{length} tokens and {STEPS} more: largest difference {difference:.1e}, {dtype} on {device}")
        is_same &= torch.allclose(result, whole, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)
    print("step by step:", "the same as at once" if is_same else "DIFFERENT")
    return 0 if is_same else 1


if __name__ == "__main__":
    raise SystemExit(main())
