"""A study of models that exist already, by tasks of lm-eval (EleutherAI's evaluation harness)."""
