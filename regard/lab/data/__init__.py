"""Texts with labels: named data, the user's files, tokenizers, word vectors, batches."""
