"""Milepost in Hugging Face transformers: importing this makes its models known there.

    import milepost.hf
    model = AutoModelForCausalLM.from_pretrained("a folder that was saved by one")

docs/hugging-face.md shows how they are made, retrofitted, trained and converted.
"""

from importlib.util import find_spec

if find_spec("transformers") is None:
    raise ImportError(
        "milepost.hf needs transformers 5: pip install 'milepost[hf]'", name="transformers"
    )

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from milepost.hf import kernels
from milepost.hf.adapters import add_adapter, disabled, load_adapter, merge, save_adapter
from milepost.hf.config import MilepostConfig, MilepostDecoderConfig
from milepost.hf.model import MilepostForCausalLM, MilepostModel
from milepost.hf.retrofit import DifferentStartWarning, compare, retrofit

__all__ = [
    "DifferentStartWarning",
    "MilepostConfig",
    "MilepostDecoderConfig",
    "MilepostForCausalLM",
    "MilepostModel",
    "add_adapter",
    "compare",
    "disabled",
    "load_adapter",
    "merge",
    "retrofit",
    "save_adapter",
]

AutoConfig.register("milepost", MilepostConfig, exist_ok=True)
AutoConfig.register("milepost_decoder", MilepostDecoderConfig, exist_ok=True)
AutoModel.register(MilepostConfig, MilepostModel, exist_ok=True)
AutoModelForCausalLM.register(MilepostConfig, MilepostForCausalLM, exist_ok=True)
kernels.register()
