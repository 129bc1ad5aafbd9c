"""Train what was added to a model, alone or with LoRA, and keep it in one small folder.

    model = retrofit("meta-llama/Llama-3.2-1B", "cope")
    model = add_adapter(model, lora_rank=8)             # the host is frozen
    ...
    save_adapter(model, "out")
    model = load_adapter(None, "out")                   # the very same logits

The folder has what PEFT reads and writes (with LoRA), and beside it what PEFT does not know of:

    adapter_config.json, adapter_model.safetensors      LoRA, and the encoding's weights
    milepost/config.json                                the model's configuration
    milepost/adapter.json                               the base, and what is trained
    milepost/start.safetensors                          the encoding before it was trained
    milepost/base.safetensors                           a few of the base's weights
    milepost/weights.safetensors                        what was trained, if there is no LoRA

PEFT and transformers would put LoRA on the stock model, and drop the encoding with no more than a
line in a log. So where the base is a stock model, adapter_config.json does not name it, and they
end with an error that says what to call.
"""

from milepost.hf.adapters.add import add_adapter
from milepost.hf.adapters.load import load_adapter
from milepost.hf.adapters.save import save_adapter
from milepost.hf.adapters.switch import disabled, merge

__all__ = ["add_adapter", "disabled", "load_adapter", "merge", "save_adapter"]
