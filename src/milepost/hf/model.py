"""The models that transformers builds, loads, generates from, trains and saves.

    input_ids -> host.embed -> encoding.begin -> layers -> norm -> lm_head

A layer is the host's modules around our encoding.
"""

from functools import wraps
from typing import Any, ClassVar, NoReturn, cast

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from milepost.encoding import Encoding, Positions, build
from milepost.errors import UsageError
from milepost.hf import kernels
from milepost.hf.cache import prepare
from milepost.hf.config import MilepostConfig
from milepost.hf.hosts import HOSTS, Host, HostLayer, OwnLayer
from milepost.hf.positions import check_continues, positions

INITIALISED = "_is_hf_initialized"
"""By which transformers knows of a module that it need not draw weights for."""


class EncodingStack(nn.Module):
    """The encoding of each layer, as one module: all that is added to a host.

    Layers that share an encoding share its module, and encodings may share a parameter or a buffer.
    """

    def __init__(self, config: MilepostConfig, host: type[Host]) -> None:
        super().__init__()
        stack = build(config.encoding, host.facts(config), config.encoding_options)
        distinct = list(dict.fromkeys(stack))
        self.layers = nn.ModuleList(distinct)
        self.index = [distinct.index(encoding) for encoding in stack]
        self.shared = self.find_shared()

    def of(self, layer: int) -> Encoding:
        """The encoding of a layer."""
        return cast(Encoding, self.layers[self.index[layer]])

    def begin(self, x: Tensor, at: Positions) -> tuple[Tensor, Any]:
        """The first layer's `begin`."""
        return self.of(0).begin(x, at)

    def find_shared(self) -> dict[str, str]:
        """Names of parameters and buffers that are another's, and that other's."""
        first: dict[int, str] = {}
        found = {}
        for named in (self.named_parameters, self.named_buffers):
            for name, tensor in named(remove_duplicate=False):
                owner = first.setdefault(id(tensor), name)
                if owner != name:
                    found[name] = owner
        return found

    def share(self) -> None:
        """Make shared tensors one again: loading puts a new one under each name."""
        for name, owner in self.shared.items():
            tensor = getattr(*self.place(owner))
            module, leaf = self.place(name)
            setattr(module, leaf, tensor)

    def place(self, name: str) -> tuple[nn.Module, str]:
        """The module that has the tensor `name`, and its name there."""
        path, _, leaf = name.rpartition(".")
        return self.get_submodule(path), leaf


class MilepostPreTrainedModel(PreTrainedModel):
    """What is common to the models with and without a head."""

    config_class = MilepostConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules: ClassVar[list[str]] = ["HostLayer", "OwnLayer"]
    _skip_keys_device_placement: ClassVar[list[str]] = ["past_key_values"]
    _supports_attention_backend = False  # of others, which would leave the encoding out
    _can_compile_fullgraph = False
    _can_record_outputs: ClassVar[dict[str, Any]] = {"hidden_states": (HostLayer, OwnLayer)}

    def _check_and_adjust_attn_implementation(
        self, attn_implementation: str | None, *_: Any, **__: Any
    ) -> str:
        return kernels.implementation(attn_implementation, self.config.encoding)

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        return True

    def _init_weights(self, module: nn.Module) -> None:
        """An encoding draws its own weights when it is built; a host's are drawn as usual."""
        stack = self._modules.get("encoding")
        names = {} if stack is None else {part: name for name, part in stack.named_modules()}
        if module not in names:
            super()._init_weights(module)
            return
        # Loading builds on the meta device: what a checkpoint lacks is taken from a fresh stack.
        fresh = self.fresh_encoding().get_submodule(names[module])
        for group in ("named_parameters", "named_buffers"):
            values = dict(getattr(fresh, group)(recurse=False))
            for name, tensor in getattr(module, group)(recurse=False):
                init.copy_(tensor, values[name])

    def tie_weights(self, *args: Any, **kwargs: Any) -> None:
        """The head's weights to the embedding's where the host does, encodings' to each other."""
        super().tie_weights(*args, **kwargs)
        for module in self.modules():
            if isinstance(module, EncodingStack):
                module.share()

    def generate_batch(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Continuous batching is refused: its paged attention would leave the encoding out."""
        raise UsageError(
            f"continuous batching runs transformers' own paged attention, which would leave the "
            f"encoding {self.config.encoding!r} out: call generate() with a left-padded batch"
        )

    init_continuous_batching = generate_batch


class MilepostModel(MilepostPreTrainedModel):
    """The host's layers around an encoding, without a head."""

    def __init__(self, config: MilepostConfig, stock: nn.Module | None = None) -> None:
        """Build the model, around the modules of a stock model without its head if one is given."""
        super().__init__(config)
        self.host = HOSTS[config.host]
        # what from_pretrained sets comes after the configuration's own checks
        self.host.check(config.host_config)
        refuse({"output_attentions": config.output_attentions}, REFUSED)
        for name, module in self.host.build(config, stock).items():
            self.add_module(name, module)
        if stock is not None or config.host == "milepost_decoder":
            # their weights are drawn already
            for module in self.modules():
                setattr(module, INITIALISED, True)
        setattr(self, INITIALISED, False)
        self.encoding = EncodingStack(config, self.host)
        self.built_on_meta = any(parameter.is_meta for parameter in self.encoding.parameters())
        names = {f"encoding.{name}" for name in self.encoding.shared}
        self._keys_to_ignore_on_save = names
        self._keys_to_ignore_on_load_missing = {f"{name}$" for name in names}
        self.gradient_checkpointing = False
        self.post_init()

    def fresh_encoding(self) -> nn.Module:
        """The encoding as it is at the start, until loading is done."""
        if not self.built_on_meta:
            return self.encoding
        if "_fresh" not in self.__dict__:
            with torch.device("cpu"):
                self.__dict__["_fresh"] = EncodingStack(self.config, self.host)
        return self.__dict__["_fresh"]

    def get_input_embeddings(self) -> nn.Module:
        """The host's."""
        return getattr(self, self.host.embedding)

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the host's."""
        setattr(self, self.host.embedding, value)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Hidden states (B, S, dim).

        Args:
            input_ids: (B, S), or `inputs_embeds` (B, S, dim).
            attention_mask: (B, cached + S), 0 at padding.
            position_ids: (B or 1, S); packed documents begin anew from 0.
            past_key_values: a `DynamicCache` or `StaticCache`.
            inputs_embeds: instead of `input_ids`.
            use_cache: whether to make a cache where none is given.
            **kwargs: ignored, but for what would change the result, which is refused.

        Raises:
            UsageError: a mask, position ids or a cache that would be read as something else.
        """
        refuse(kwargs, {**REFUSED, **self.host.refused})
        if (input_ids is None) == (inputs_embeds is None):
            raise UsageError("give input_ids or inputs_embeds, one of the two")
        if inputs_embeds is None:
            inputs_embeds = self.get_input_embeddings()(input_ids)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        first = 0
        if past_key_values is not None:
            prepare(past_key_values, self.config.num_hidden_layers)
            first = int(past_key_values.get_seq_length())
        B, S, _ = inputs_embeds.shape
        at, packed = positions(B, S, first, inputs_embeds.device, attention_mask, position_ids)
        if past_key_values is not None:
            remember(past_key_values.layers[0], at, B, packed, attention_mask)
        backend = kernels.BACKENDS[self.config._attn_implementation]
        x, state = self.encoding.begin(self.host.embed(self, inputs_embeds, at), at)
        x = self.host.dropout(self, x)
        for i, layer in enumerate(getattr(self, self.host.layers)):
            x, state = layer(
                x, state, self.encoding.of(i), at, backend, past_key_values=past_key_values
            )
        return BaseModelOutputWithPast(
            last_hidden_state=getattr(self, self.host.norm)(x), past_key_values=past_key_values
        )


def remember(layer: Any, at: Positions, batch: int, packed: bool, mask: Tensor | None) -> None:
    """Check that a call goes on from what a cache holds, and note how it ends.

    Args:
        layer: the cache's first.
        at: where the call's tokens stand.
        batch: B.
        packed: whether they are packed documents.
        mask: the attention mask as given.
    """
    if layer.packed:
        raise UsageError(
            "past_key_values holds packed documents, none of which can be continued: give each "
            "document its own row, padded at the left"
        )
    check_continues(at.index, batch, at.first, layer.last, mask)
    layer.packed = packed
    layer.last = at.index[..., -1].expand(batch)


REFUSED = {
    "output_attentions": "the ops make no matrix of attention weights",
    "cu_seq_lens_q": "packed documents are told by position_ids",
    "seq_idx": "packed documents are told by position_ids",
    "block_table": "paged attention would leave the encoding out",
    "position_bias": "the encoding makes its own bias",
    "head_mask": "the ops weigh all heads alike",
    "encoder_hidden_states": "there is no attention to an encoder",
}


def refuse(kwargs: dict[str, Any], refused: dict[str, str]) -> None:
    """A `UsageError` for an argument that another model would heed and this one cannot."""
    for name, reason in refused.items():
        if kwargs.get(name) is not None and kwargs[name] is not False:
            raise UsageError(f"{name} is not supported, for {reason}: leave it out")


class MilepostForCausalLM(MilepostPreTrainedModel, GenerationMixin):
    """A causal language model: `MilepostModel` and the host's head.

    logits = lm_head(MilepostModel(input_ids))
    """

    def __init__(
        self,
        config: MilepostConfig,
        stock: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        """Build the model, or put an encoding between the modules of a stock model and its head."""
        super().__init__(config)
        self.model = MilepostModel(config, stock)
        self.vocab_size = config.vocab_size
        self.lm_head = head or nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if head is not None:
            setattr(self.lm_head, INITIALISED, True)
        self._tied_weights_keys = {"lm_head.weight": f"model.{self.model.host.embedding}.weight"}
        self.post_init()

    @wraps(GenerationMixin.prepare_inputs_for_generation)
    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As transformers does it; a prompt that is padded at its right is refused at once."""
        cache, mask = kwargs.get("past_key_values"), kwargs.get("attention_mask")
        begins = cache is None or not int(cache.get_seq_length())
        if begins and isinstance(mask, Tensor) and mask.ndim == 2:
            padded = (mask[:, -1] == 0) & (mask != 0).any(-1)
            if bool(padded.any()):
                raise UsageError(
                    f"prompts must end with a token, got one that is padded at the right, in row "
                    f"{int(padded.nonzero()[0])}: pad at the left (tokenizer.padding_side = 'left')"
                )
        prepared: dict[str, Any] = super().prepare_inputs_for_generation(*args, **kwargs)
        return prepared

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits (B, S, vocab_size), and with `labels` the mean loss of the tokens after each.

        Args:
            labels: (B, S), −100 where a token is not scored; they are shifted here.
            logits_to_keep: how many of the last tokens get logits, or which; 0 for all.
            input_ids, attention_mask, position_ids: as in `MilepostModel.forward`.
            past_key_values, inputs_embeds, use_cache: as there too.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs
            )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
        )
