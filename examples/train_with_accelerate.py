"""CoPE and LoRA on a frozen Llama, trained by a loop of one's own with Accelerate.

    python examples/train_with_accelerate.py                       a tiny Llama, drawn at random
    python examples/train_with_accelerate.py --checkpoint FOLDER   a checkpoint with its tokenizer
    accelerate launch examples/train_with_accelerate.py            on several devices

The text is the source of one module of Python's standard library. What is made goes to
runs/with-accelerate.
"""

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
import tyro
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

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


def forever(loader: DataLoader) -> Iterator[torch.Tensor]:
    """Batches of one pass over the text after another."""
    while True:
        yield from loader


def main(
    checkpoint: str | None = None, out: Path = Path("runs/with-accelerate"), steps: int = 60
) -> tuple[list[float], torch.Tensor]:
    """Train, save the adapter, load it again; the losses, and the logits of some text."""
    accelerator = Accelerator()
    data = windows(checkpoint)
    with accelerator.main_process_first():
        model = retrofit(checkpoint or tiny_llama(out / "base"), "cope")
    model = add_adapter(model, lora_rank=8, train=["embed_tokens", "norm"])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    losses = []
    for tokens in islice(forever(loader), steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model = accelerator.unwrap_model(model).eval()
    if accelerator.is_main_process:
        save_adapter(model, out / "adapter")
    accelerator.wait_for_everyone()

    again = load_adapter(None, out / "adapter").to(accelerator.device)
    text = data[0][None].to(accelerator.device)
    with torch.no_grad():
        expected, logits = model(input_ids=text).logits, again(input_ids=text).logits
    accelerator.print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    accelerator.print(f"loaded again, it is the same: {torch.equal(expected, logits)}")
    return losses, logits


if __name__ == "__main__":
    tyro.cli(main)
