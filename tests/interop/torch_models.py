"""Families of models of transformers, small and of random weights: losses and gradients of the compiled model beside those of eager code.

    python tests/interop/torch_models.py [FAMILY ...] [--page]

`--page` writes them to vyre_py/interop/torch/COVERAGE.md. Exits with 1 where one is wrong; with VYRE_TORCH_DEVICE=cuda all is on a GPU. Without the package
transformers nothing is tried, unless VYRE_REQUIRE_DEVICES names it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from vyre_py.interop.torch import runtime
from vyre_py.interop.torch.backend import compile_graph

__all__ = ["FAMILIES", "TITLE", "compare", "given"]

PAGE: Final = Path(__file__).resolve().parents[2] / "vyre_py" / "interop" / "torch" / "COVERAGE.md"
TITLE: Final = "## Families of models"

DEVICE: Final = os.environ.get("VYRE_TORCH_DEVICE", "cpu")
WORDS: Final = 500
TEXT: Final = {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
LLAMA: Final = {**TEXT, "num_key_value_heads": 2}
GPT: Final = {"vocab_size": WORDS, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
VIT: Final = {**{key: value for key, value in TEXT.items() if key != "vocab_size"}, "image_size": 32, "patch_size": 8, "num_labels": 10}
RESNET: Final = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": 10}
T5: Final = {"vocab_size": WORDS, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0, "dropout_rate": 0.0}
MAMBA: Final = {"vocab_size": WORDS, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8}
# Family -> model, configuration, its values, and what the model is given.
FAMILIES: Final[Mapping[str, tuple[str, str, Mapping[str, Any], str]]] = {
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", GPT, "text"),
    "BERT": ("BertForMaskedLM", "BertConfig", TEXT, "text"),
    "Llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA, "text"),
    "Mixtral": ("MixtralForCausalLM", "MixtralConfig", {**LLAMA, "num_local_experts": 4}, "text"),
    "Mamba": ("MambaForCausalLM", "MambaConfig", MAMBA, "text"),
    "T5": ("T5ForConditionalGeneration", "T5Config", T5, "text"),
    "ViT": ("ViTForImageClassification", "ViTConfig", VIT, "pictures"),
    "ResNet": ("ResNetForImageClassification", "ResNetConfig", RESNET, "pictures"),
}


def given(kind: str) -> dict[str, Any]:
    if kind == "text":
        words = torch.randint(1, WORDS, (2, 32))
        return {"input_ids": words, "labels": words}
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([1, 2])}


def step(model: Any, called: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[float, list[Any]]:
    """The loss, and the gradients of the parameters that have one."""
    model.zero_grad()
    loss = called(**arguments).loss
    loss.backward()
    return loss.item(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]


class Compared(NamedTuple):
    """Whether a family is right; the losses of eager and of compiled code, how far gradients are apart, as a share of the largest, how many kernels were
    launched, and seconds from the first call on; or the error."""

    right: bool
    losses: tuple[float, float] = (0.0, 0.0)
    apart: float = 0.0
    launches: int = 0
    seconds: float = 0.0
    error: str = ""


def compare(name: str, transformers: Any) -> Compared:
    """A step of training of a family. A gradient is judged by the largest of all: some, as that of a bias of keys, are zero but for rounding."""
    model_name, config_name, values, kind = FAMILIES[name]
    torch.manual_seed(0)
    model = getattr(transformers, model_name)(getattr(transformers, config_name)(**values)).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config.use_cache = False
    model.to(DEVICE)
    arguments, launched = {key: value.to(DEVICE) for key, value in given(kind).items()}, []
    loss, gradients = step(model, model, arguments)
    torch._dynamo.reset()
    begin = time.monotonic()
    with runtime.watching(launched.append):
        found, ours = step(model, torch.compile(model, backend=compile_graph), arguments)
    largest = max(g.abs().max().item() for g in gradients if g is not None)
    worst = max((a - b).abs().max().item() / largest for a, b in zip(ours, gradients, strict=True) if a is not None and b is not None)
    same = all((a is None) == (b is None) for a, b in zip(ours, gradients, strict=True))
    right = bool(launched) and same and abs(found - loss) < 1e-4 and worst < 1e-4
    return Compared(right, (loss, found), worst, len(launched), time.monotonic() - begin)


def tried(names: Sequence[str], transformers: Any) -> Iterator[tuple[str, Compared]]:
    """Each family, and what was seen; an error does not end it."""
    for name in names:
        try:
            yield name, compare(name, transformers)
        except Exception as failed:  # noqa: BLE001 - whatever it is, the next family is tried
            yield name, Compared(False, error=" ".join(f"{type(failed).__name__}: {failed}".split())[:300])


def section(found: Mapping[str, Compared], version: str) -> str:
    """The part of the page that is about models."""
    lines = [
        TITLE, "",
        f"Made by `python tests/interop/torch_models.py --page`, with PyTorch {torch.__version__} and transformers {version}: a step of training, of small",
        "models of random weights, on the CPU in one thread, beside eager code. How far gradients are apart is a share of the largest.", "",
        "| family | | loss, eager | loss, compiled | gradients apart | kernels launched |", "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, seen in found.items():
        eager, compiled = seen.losses
        told = f"{eager:.6f} | {compiled:.6f} | {seen.apart:.1e} | {seen.launches}" if not seen.error else f"{seen.error.replace('|', ' ')} | | |"
        lines.append(f"| {name} | {'right' if seen.right else 'wrong'} | {told} |")
    return "\n".join(lines) + "\n"


def _family(name: str) -> str:
    if name not in FAMILIES:
        raise argparse.ArgumentTypeError(f"one of {', '.join(FAMILIES)}")
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FAMILY", type=_family)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError:
        print("transformers is not installed: no model was tried")
        return int("transformers" in os.environ.get("VYRE_REQUIRE_DEVICES", "").split(","))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, Compared] = {}
    for name, seen in tried(given.names or list(FAMILIES), transformers):
        found[name] = seen
        told = f"loss {seen.losses[0]:.6f} and {seen.losses[1]:.6f}, gradients apart by {seen.apart:.1e} of the largest, {seen.launches} launches"
        print(f"{name:8} {'right' if seen.right else 'WRONG'}  {seen.error or f'{told}, {seen.seconds:.0f} s'}", flush=True)
    if given.page:
        before = PAGE.read_text("utf-8").partition(TITLE)[0]
        PAGE.write_text(before.rstrip("\n") + "\n\n" + section(found, transformers.__version__), "utf-8")
    wrong = sum(not seen.right for seen in found.values())
    print(f"{len(found)} families of models, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
