"""A study of context extension: a base, the ways to extend it, and what is measured."""
