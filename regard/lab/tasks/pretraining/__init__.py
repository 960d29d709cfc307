"""Pretraining on unlabelled texts: next token, masked tokens, missing spans."""
