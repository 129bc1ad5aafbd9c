"""Table 2 and Figure 3 of the TAPE paper: extending the context of a trained model.

Zhu et al., "Rethinking Addressing in Language Models via Contextualized Equivariant Positional
Encoding" (arXiv 2501.00712), section 4.3: Llama-2 7B from 4096 to 8192 tokens on RedPajama, 1000
steps of 64 sequences, AdamW at 2e-5 (Table 5); perplexity on Proof-pile and PG19 (Table 2) and
passkeys from 1k to 8k (Figure 3). The rest of the recipe is that of the released code
(`train_llama.py`): warm-up of 50 steps, no weight decay, bf16, documents joined by the end-of-text
token, RoPE interpolated by 2 in every row, and LoRA of rank 8, α = 16 on the projections of
queries, keys, values and outputs, with embeddings and norms trained whole; theta scaling raises
RoPE's base to 10⁶ besides.

Where we differ, or the paper leaves room:
- TAPE has no LoRA in the released code: its encoding, embeddings and norms are trained. So a row
  `tape` differs from `lora` in two things, and `tape+lora` tells them apart.
- The released code's filter misses one of the names it means to train (the weights after the
  attention are frozen at zero). Here all of the encoding is trained, by the paper's equations.
- YaRN and CoPE are not in the paper's table: they are here for comparison.
- The released perplexity takes windows every 256 tokens and counts a token in each that it is in.
  Here windows do not overlap, and each token counts once.
- The mini scale has a base of its own: a Llama of three layers on bytes, trained on Python's own
  prose and on twice as many passkey prompts, since so small a model finds no passkeys that it was
  not taught to find. Its extension goes on with both, at 640 bytes. The paper's has text alone.
- The learning rate at mini scale, the same for every row as in the paper, was chosen on seed 100,
  validation text and other keys, none of which is reported: of 3e-3 and 1e-2 the better one for
  `lora` and for `tape`, as long as prompts had one length. Another row may do better with its own.
"""

from milepost.study.extension.study import Claim, Extension, Row, Settings
from milepost.study.figures import Figures

MINI = Settings(
    corpus="python-prose",
    length=320,
    dim=64,
    layers=3,
    heads=2,
    base_steps=4000,
    base_lr=3e-3,
    base_warmup=50,
    steps=300,
    lr=3e-3,
    warmup=10,
    texts=2,
    passkeys=4,
    beta2=0.95,
    test_tokens=20480,
    passkey_lengths=(320, 400, 480, 560, 640),
    depths=(0.0, 0.25, 0.5, 0.75, 1.0),
    trials=10,
    answer=6,
)

PAPER = Settings(
    corpus="",
    length=None,
    steps=1000,
    lr=2e-5,
    warmup=50,
    texts=1,
    passkeys=0,
    accumulate=64,
    precision="bf16",
    test_tokens=2**20,
    passkey_lengths=tuple(range(1024, 8193, 1024)),
    depths=(0.0, 0.25, 0.5, 0.75, 1.0),
    trials=20,
    answer=8,
)

_LENGTHS = ("1024", "2048", "4096", "8192")
_EVERYWHERE = (0.25, 0.5, 1.0, 2.0)

STUDY = Extension(
    name="tape-table2",
    title="Extending the context of a trained model",
    paper="Zhu et al., Contextualized Equivariant Positional Encoding (2025), Table 2 and Figure 3",
    link="https://arxiv.org/abs/2501.00712",
    minutes=26,
    rows=(
        Row("lora", "RoPE interpolated, LoRA"),
        Row(
            "longlora",
            "the same, trained with shifted sparse attention",
            encoding="shifted-sparse",
        ),
        Row(
            "theta",
            "RoPE interpolated and its base raised, LoRA",
            rope="interpolated, theta raised",
        ),
        Row("yarn", "RoPE scaled by YaRN, LoRA", encoding="yarn", rope="by the encoding"),
        Row("tape", "RoPE interpolated, TAPE from there on", encoding="tape", lora=False),
        Row("cope", "RoPE interpolated, CoPE beside it", encoding="cope+rope", lora=False),
        Row("tape+lora", "tape with LoRA", encoding="tape"),
        Row("cope+lora", "cope with LoRA", encoding="cope+rope"),
    ),
    scales={"mini": MINI, "paper": PAPER},
    figures=(
        Figures(
            "perplexity on Proof-pile, Llama-2 7B",
            "Table 2, left",
            _LENGTHS,
            {
                "lora": (3.828, 3.369, 3.064, 2.867),
                "longlora": (3.918, 3.455, 3.153, 2.956),
                "theta": (3.864, 3.415, 3.121, 2.934),
                "tape": (3.641, 3.196, 2.901, 2.708),
            },
        ),
        Figures(
            "perplexity on PG19, Llama-2 7B",
            "Table 2, right",
            _LENGTHS,
            {
                "lora": (9.791, 9.098, 8.572, 8.199),
                "longlora": (9.989, 9.376, 8.948, 8.645),
                "theta": (9.257, 8.640, 8.241, 7.999),
                "tape": (8.226, 7.642, 7.278, 7.063),
            },
        ),
    ),
    claims=(
        Claim(
            "TAPE has the lowest perplexity at every length",
            "Table 2, both data sets",
            "perplexity",
            better="tape",
            worse=("lora", "longlora", "theta"),
            lengths=_EVERYWHERE,
        ),
        Claim(
            "LoRA is below LongLoRA in perplexity at every length",
            "Table 2, both data sets",
            "perplexity",
            better="lora",
            worse=("longlora",),
            lengths=_EVERYWHERE,
        ),
        Claim(
            "theta scaling is below LongLoRA in perplexity at every length",
            "Table 2, both data sets",
            "perplexity",
            better="theta",
            worse=("longlora",),
            lengths=_EVERYWHERE,
        ),
        Claim(
            "TAPE finds nearly all passkeys at every length (here: 95 %)",
            "Figure 3",
            "nearly all",
            better="tape",
        ),
        Claim(
            "TAPE finds more passkeys than LoRA and LongLoRA at every length",
            "Figure 3 and its text",
            "passkey",
            better="tape",
            worse=("lora", "longlora"),
        ),
        Claim(
            "theta scaling finds more passkeys than LoRA and LongLoRA",
            "Figure 3 and its text: relatively stable beside fluctuating and lower",
            "passkey",
            better="theta",
            worse=("lora", "longlora"),
        ),
        Claim(
            "LoRA finds fewer passkeys also within the length the model was trained on",
            "Figure 3, from 1k on",
            why_not=(
                "the paper has no figure of the unextended model to hold LoRA against, and our "
                "base was taught passkeys, which Llama-2 was not"
            ),
        ),
        Claim(
            "the perplexities themselves, and the size of TAPE's lead (up to 18.3 % on PG19)",
            "Table 2",
            why_not="they are of a 7B model, its tokens and its text",
        ),
    ),
    remarks=(
        "The paper's figures are of Llama-2 7B (4096 to 8192 tokens) on Proof-pile and PG19: they "
        "can be compared with ours in the order of the rows, not in size.",
        "As in the released code, the rows without LoRA train the encoding, embeddings and norms; "
        "tape+lora and cope+lora tell what is added from what is trained. In the released code "
        "the filter that says what of TAPE is trained misses the weights after the attention, "
        "which stay at zero (by reading and running it), so the paper's row may be less than its "
        "equations. Here all of the encoding is trained.",
        "Rows are compared seed by seed: a difference counts from twice its standard error, and "
        "from 0.005 nats or 2 points.",
    ),
)
