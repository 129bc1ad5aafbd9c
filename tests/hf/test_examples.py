"""The scripts in `examples`: they train, save, and resume where they stopped."""

import os
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [
    # PEFT asks transformers for it by its old name
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    # of PyTorch's loader, which the Trainer tells so wherever it runs
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]


def example(name: str) -> Any:
    """Its `main`."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


@pytest.mark.parametrize("name", ["train_with_trainer", "train_with_accelerate"])
def test_the_loss_goes_down_and_the_adapter_comes_back(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses, logits = example(name)(out=tmp_path, steps=12)
    assert losses[-1] < losses[0] - 0.2
    assert logits.shape == (1, 64, 256)
    assert "loaded again, it is the same: True" in capsys.readouterr().out
    assert (tmp_path / "adapter/adapter_model.safetensors").is_file()


def test_with_the_trainer_what_is_resumed_is_what_was_not_interrupted(tmp_path: Path) -> None:
    main = example("train_with_trainer")
    losses, logits = main(out=tmp_path, steps=6)
    shutil.rmtree(tmp_path / "checkpoints/checkpoint-6")
    shutil.rmtree(tmp_path / "adapter")
    assert os.listdir(tmp_path / "checkpoints") == ["checkpoint-3"]
    resumed, again = main(out=tmp_path, steps=6, resume=True)
    assert resumed == losses
    assert torch.equal(again, logits)


def test_a_checkpoint_with_its_tokenizer(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    from milepost.hf.tokenizer import bytewise

    from .tiny import stock

    model = stock("llama", vocab_size=256, max_position_embeddings=64)
    assert isinstance(model, LlamaForCausalLM)
    model.save_pretrained(tmp_path / "mine")
    PreTrainedTokenizerFast(tokenizer_object=bytewise()).save_pretrained(tmp_path / "mine")
    main = example("train_with_accelerate")
    losses, _ = main(checkpoint=str(tmp_path / "mine"), out=tmp_path / "out", steps=2)
    assert len(losses) == 2
    assert not (tmp_path / "out/base").exists()
