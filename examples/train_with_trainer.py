"""CoPE and LoRA on a frozen Llama, trained by transformers' Trainer.

    python examples/train_with_trainer.py                       a tiny Llama, drawn at random
    python examples/train_with_trainer.py --checkpoint FOLDER   a checkpoint with its tokenizer
    python examples/train_with_trainer.py --resume              go on from the last checkpoint

The text is the source of one module of Python's standard library. What is made goes to
runs/with-trainer: checkpoints of the training, and the adapter.
"""

import argparse
from pathlib import Path

import torch
import tyro
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from milepost.hf import add_adapter, load_adapter, retrofit, save_adapter


def tiny_llama(folder: Path) -> str:
    """A Llama for bytes."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=256, **sizes, **heads)).save_pretrained(folder)
    return str(folder)


def windows(checkpoint: str | None, length: int = 64) -> list[torch.Tensor]:
    """The text in pieces of one length; bytes are the tokens where there is no tokenizer."""
    text = Path(argparse.__file__).read_text()
    tokenizer = checkpoint and AutoTokenizer.from_pretrained(checkpoint)
    tokens = torch.tensor(tokenizer(text).input_ids if tokenizer else list(text.encode()))
    return list(tokens.split(length)[:-1])


def main(
    checkpoint: str | None = None,
    out: Path = Path("runs/with-trainer"),
    steps: int = 60,
    resume: bool = False,
) -> tuple[list[float], torch.Tensor]:
    """Train, save the adapter, load it again; the losses, and the logits of some text."""
    data = windows(checkpoint)
    model = retrofit(checkpoint or tiny_llama(out / "base"), "cope")
    model = add_adapter(model, lora_rank=8, train=["embed_tokens", "norm"])
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=steps,
        save_steps=max(1, steps // 2),
        logging_steps=max(1, steps // 6),
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        report_to="none",
    )
    examples = [{"input_ids": tokens, "labels": tokens} for tokens in data]
    trainer = Trainer(model=model, args=arguments, train_dataset=examples)
    begun = resume and Path(arguments.output_dir).is_dir()
    trainer.train(
        resume_from_checkpoint=get_last_checkpoint(arguments.output_dir) if begun else None
    )
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero():
        save_adapter(model, out / "adapter")
    trainer.accelerator.wait_for_everyone()

    again = load_adapter(None, out / "adapter").to(model.device)
    text = data[0][None].to(model.device)
    with torch.no_grad():
        expected, logits = model.eval()(input_ids=text).logits, again(input_ids=text).logits
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"loaded again, it is the same: {torch.equal(expected, logits)}")
    return losses, logits


if __name__ == "__main__":
    tyro.cli(main)
