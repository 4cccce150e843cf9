"""compat.causal_conv1d under transformers: small random models, whose functions are chosen when they are imported.

As a program, `test_transformers.py <state> <device>` prints the tokens and the calls of each family. One process
is one state: slow, without sluice and with install() after the models' modules; installed, with install() before them;
wrong_prefill and wrong_decode, the same with taps in another order, which must not go unnoticed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import pathlib
import sys
import warnings
from typing import Any, NamedTuple

import pytest
import torch

from forked import run_forked
from sluice.bench.check import OpCalls

pytest.importorskip("transformers")

VOCABULARY, PROMPT, NEW = 97, 7, 9


class Family(NamedTuple):
    module: str  # below transformers.models
    name: str  # of its classes
    sizes: dict[str, Any]

    @property
    def modeling(self) -> str:
        return f"transformers.models.{self.module}.modeling_{self.module}"


ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2}
FAMILIES = [
    Family("mamba", "Mamba", {"state_size": 8, "num_hidden_layers": 2, "conv_kernel": 4, "time_step_rank": 4}),
    Family(
        "mamba2", "Mamba2",
        {"state_size": 8, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
    ),
    Family(
        "falcon_h1", "FalconH1",
        {"intermediate_size": 48, "num_hidden_layers": 2, **ATTENTION, "mamba_d_ssm": 64, "mamba_n_heads": 8,
         "mamba_d_head": 8, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_chunk_size": 8},
    ),
    Family(
        "nemotron_h", "NemotronH",
        {"layers_block_type": ["mamba", "attention", "mamba"], "intermediate_size": 48, **ATTENTION, "head_dim": 8,
         "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 8, "chunk_size": 8},
    ),
    Family(
        "lfm2", "Lfm2",
        {"intermediate_size": 48, "num_hidden_layers": 3, **ATTENTION, "conv_L_cache": 3,
         "layer_types": ["conv", "full_attention", "conv"]},
    ),
    Family(
        "qwen3_next", "Qwen3Next",
        {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], **ATTENTION, "head_dim": 8,
         "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
         "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
         "shared_expert_intermediate_size": 16},
    ),
]  # fmt: skip
NAMES = [family.name for family in FAMILIES]


def small_model(family: Family, device: str) -> Any:
    modeling = importlib.import_module(family.modeling)
    config = getattr(modeling, f"{family.name}Config")(
        vocab_size=VOCABULARY, hidden_size=32, pad_token_id=0, bos_token_id=1, eos_token_id=None, **family.sizes
    )
    torch.manual_seed(5)
    model = getattr(modeling, f"{family.name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # else tokens hardly depend on what came before
            if "conv" in name:
                parameter.normal_(std=0.5)
            elif parameter.dim() >= 2 and "A_log" not in name:
                parameter.normal_(std=0.3)
    return model.to(device)


def generated(family: Family, device: str) -> dict[str, Any]:
    """Greedy tokens of two prompts, the logits of the first new tokens, and sluice's calls."""
    model = small_model(family, device)
    prompts = torch.randint(2, VOCABULARY, (2, PROMPT), generator=torch.Generator().manual_seed(3)).to(device)
    with torch.no_grad(), OpCalls() as of_prompt:
        logits = model(prompts, use_cache=True).logits[:, -1]
    with OpCalls() as of_all:
        tokens = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False
        )
    return {
        "tokens": tokens[:, PROMPT:].tolist(),
        "logits": logits.tolist(),
        "layers": sum(isinstance(module, torch.nn.Conv1d) for module in model.modules()),
        "prefill": [of_prompt.prefill, of_all.prefill],
        "decode": [of_prompt.decode, of_all.decode],
    }


def state_slow(device: str) -> dict[str, Any]:
    """Without sluice; install() comes too late, says so, and changes nothing."""
    from sluice.compat import causal_conv1d as stand_in

    results = {family.name: generated(family, device) for family in FAMILIES}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = stand_in.install()
    late = generated(FAMILIES[0], device)
    return {"results": results, "late": late, "warned": [str(w.message) for w in caught], "named": report.unchanged}


def state_installed(device: str) -> dict[str, Any]:
    from sluice.compat import causal_conv1d as stand_in

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = stand_in.install()
    hub = importlib.import_module("transformers.integrations.hub_kernels")
    mapped = getattr(hub, "_KERNEL_MODULE_MAPPING", None)
    loaded = None if mapped is None else hub.lazy_load_kernel("causal-conv1d")
    facts = {
        "warned": [str(w.message) for w in caught if "sluice" in str(w.message)],
        "mapping": report.mapping == (mapped is not None),
        "loaded": mapped is None or loaded is importlib.import_module("causal_conv1d"),
        "functions": mapped is None or loaded.causal_conv1d_fn is stand_in.causal_conv1d_fn,
    }
    results = {family.name: generated(family, device) for family in FAMILIES}
    again, undone = stand_in.install(), stand_in.uninstall()
    facts["again"] = str(again) == "causal_conv1d: sluice stood in already"
    facts["undone"] = "causal-conv1d" not in (mapped or {}) and importlib.util.find_spec("causal_conv1d") is None
    return {"results": results, "facts": facts, "still": undone.unchanged}


def state_wrong(device: str, name: str) -> dict[str, Any]:
    from sluice.compat.causal_conv1d import causal_conv1d_interface, install

    right = getattr(causal_conv1d_interface, name)
    place = 1 if name == "convolve" else 2  # the weight's place

    def wrong(*args: Any, **options: Any) -> Any:
        return right(*args[:place], args[place].roll(1, dims=1), *args[place + 1 :], **options)

    setattr(causal_conv1d_interface, name, wrong)
    install()
    return {"results": {family.name: generated(family, device) for family in FAMILIES}}


STATES = {
    "slow": state_slow,
    "installed": state_installed,
    "wrong_prefill": functools.partial(state_wrong, name="convolve"),
    "wrong_decode": functools.partial(state_wrong, name="update"),
}


@functools.cache
def run(state: str, device: str) -> Any:
    alone = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "USE_HUB_KERNELS": "0"}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    done = run_forked(pathlib.Path(__file__), state, device, **alone, **hidden)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_model_generates_the_tokens_of_torch_code(device: str, name: str) -> None:
    slow, fast = (run(state, device)["results"][name] for state in ("slow", "installed"))
    assert fast["tokens"] == slow["tokens"]
    assert len({token for row in slow["tokens"] for token in row}) > 4
    torch.testing.assert_close(torch.tensor(fast["logits"]), torch.tensor(slow["logits"]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("state", ["wrong_prefill", "wrong_decode"])
def test_a_wrong_convolution_changes_the_tokens(state: str) -> None:
    for name in NAMES:
        slow, wrong = (run(each, "cpu")["results"][name]["tokens"] for each in ("slow", state))
        assert wrong != slow, name


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_calls_the_op_for_the_prompt_and_for_each_token(device: str, name: str) -> None:
    slow, fast = (run(state, device)["results"][name] for state in ("slow", "installed"))
    layers = fast["layers"]
    assert layers == {"Qwen3Next": 1}.get(name, 2)
    assert fast["prefill"] == [layers, layers]
    assert fast["decode"] == [0, layers * (NEW - 1)]
    assert [slow["prefill"], slow["decode"]] == [[0, 0], [0, 0]]


def test_install_before_the_models(device: str) -> None:
    found = run("installed", device)
    assert found["facts"].pop("warned") == []
    assert all(found["facts"].values()), found["facts"]
    assert set(found["still"]) >= {family.modeling for family in FAMILIES}


def test_install_behind_the_models_names_them(device: str) -> None:
    found = run("slow", device)
    (warned,) = [text for text in found["warned"] if "sluice" in text]
    for family in FAMILIES:
        assert family.modeling in warned
        assert family.modeling in found["named"]
    assert found["late"]["prefill"] == [0, 0]
    assert found["late"]["decode"] == [0, 0]


if __name__ == "__main__":
    torch.backends.cudnn.allow_tf32 = False
    print(json.dumps(STATES[sys.argv[1]](sys.argv[2])))
