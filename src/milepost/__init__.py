"""Contextual position encodings for transformers, beside every token-based one.

Importing this package imports nothing else: `import milepost` needs no torch, and each module
(`milepost.model`, `milepost.tasks`, ...) is imported when it is asked for.
"""

__version__ = "0.1.0"
