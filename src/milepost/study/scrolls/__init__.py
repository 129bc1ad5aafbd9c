"""A study of SCROLLS: models are trained on a corpus, then on each task, and write answers."""
