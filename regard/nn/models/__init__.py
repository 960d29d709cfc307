"""Networks, each built from its settings: classifiers, writers, GPT, BERT, T5, kernels."""
