"""No position encoding (NoPE): the causal mask alone breaks the symmetry.

Haviv et al. 2022, "Transformer Language Models without Positional Encodings Still Learn
Positional Information", arXiv 2203.16634; Kazemnejad et al. 2023, arXiv 2305.19466.
"""

from milepost.encoding import Encoding


class NoEncoding(Encoding):
    """s_ij = q_i·k_j / √D."""

    paper = "Haviv et al. 2022, arXiv 2203.16634"
    changes = "nothing"
