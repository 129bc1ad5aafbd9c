"""Equations as MathML, which browsers draw by themselves: a page needs no script and no network.

latex2mathml reads the LaTeX when the site is built. What is mended here is how TeX would space and
stack what was read.
"""

from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

STACKED = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}


def mathml(latex: str, *, block: bool) -> Element:
    """An equation as a `<math>` element."""
    root = ElementTree.fromstring(convert(latex, xmlns="", display="block" if block else "inline"))
    for element in root.iter():
        if element.text in ("/", "…"):
            element.attrib |= {"lspace": "0em", "rspace": "0em"}
        elif element.tag == "mo" and is_word(element):  # min, max: as log, which is an identifier
            element.tag = "mi"
        elif element.tag == "mrow":
            join_letters(element)
        elif block and element.tag in STACKED and element[0].text in ("∑", "∏"):
            element.tag = STACKED[element.tag]
    for row in root.iter("mrow"):
        space_words(row)
    return root


def is_word(element: Element) -> bool:
    """Whether it is a name of several letters, such as that of a function."""
    return element.tag in ("mi", "mo") and len(element.text or "") > 1


def join_letters(row: Element) -> None:
    r"""Make one word of the upright letters that \mathrm leaves."""
    if len(row) > 1 and all(letter.get("mathvariant") == "normal" for letter in row):
        word = "".join(row.itertext())
        row.clear()
        row.tag, row.text = "mi", word


def space_words(row: Element) -> None:
    """Set words apart from letters, numbers and fractions beside them: log x, not logx."""
    spaced = list(row[:1])
    for before, after in pairwise(row):
        heads = head(before), head(after)
        if any(map(is_word, heads)) and not any(one.tag in ("mo", "mspace") for one in heads):
            spaced.append(Element("mspace", width="0.17em"))
        spaced.append(after)
    row[:] = spaced


def head(element: Element) -> Element:
    """What stands first in it: of a letter with scripts the letter, of brackets the bracket."""
    while len(element) and element.tag not in ("mfrac", "msqrt"):
        element = element[0]
    return element


def rendered(latex: str, node: nodes.Element, *, block: bool) -> str:
    """The equation as HTML; a command that is not known is a warning, at its node."""
    root = mathml(latex, block=block)
    for element in root.iter():
        if (element.text or "").startswith("\\"):
            logging.getLogger(__name__).warning(
                "unknown command %s in an equation", element.text, location=node
            )
    return ElementTree.tostring(root, encoding="unicode")


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write an equation within a line."""
    self.body.append(rendered(node.astext(), node, block=False))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    r"""Write an equation on a line of its own: on several where a page has no room for its parts.

    Parts are what \qquad sets apart. One that is wider than the page scrolls.
    """
    parts = [rendered(part, node, block=True) for part in node.astext().split(r"\qquad")]
    inner = "".join(f"<div>{part}</div>" for part in parts)
    self.body.append(f'<div class="equation">{inner}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
