"""Tables 1 and 6 of the CoPE paper: how often a word stands in the last sentence.

Golovneva et al. 2024 (arXiv 2405.18719), section 3.2 and appendix A: GPT-4 and Llama-2 70B Chat,
asked how often "Alice" and "book" are mentioned in the last of two sentences, say once or twice,
though only the sentence before has them. The paper says that positions counted in sentences would
make this easy, and does not train a model to show it. Here small models are: sentences of words, of
varying number and length, and a question about the last. `milepost ask DIR last-sentence` asks a
language model in words.
"""

from milepost.study.study import Arm, Claim, Column, Study, Table

STUDY = Study(
    name="cope-table1",
    title="Counting words in the last sentence",
    paper="Golovneva et al., Contextual Position Encoding (2024), Tables 1 and 6",
    link="https://arxiv.org/abs/2405.18719",
    minutes=8,
    rows=("absolute", "relative", "rope", "cope", "fox", "stick-breaking", "tape"),
    arms=(Arm("last-sentence", "Last sentence", "last-sentence"),),
    tables=(
        Table(
            "last-sentence",
            "Last sentence",
            "wrong answers",
            (
                Column("in-dist", "last-sentence", "in", "token"),
                Column("longer sentences", "last-sentence", "longer sentences", "token"),
                Column("more sentences", "last-sentence", "more sentences", "token"),
            ),
        ),
    ),
    claims=(
        Claim(
            "Positions counted in sentences make the task easy: CoPE is ahead of token positions",
            "section 3.2",
            ("last-sentence",),
            better=("cope",),
            worse=("absolute", "relative", "rope"),
        ),
        Claim(
            "GPT-4 and Llama-2 70B Chat fail on it",
            "Tables 1 and 6",
            why_not="neither is here; `milepost ask` puts the paper's prompts to any model",
        ),
    ),
)
