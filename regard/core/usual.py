"""Synonyms: names in other libraries and papers, and regard's names for them."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

#: Synonyms of regard's names of settings, models, tasks, parts and values.
_ALSO: Mapping[str, str] = {
    # settings of a network
    "width": "dim, d-model, hidden-size, hidden-dim, n-embd, embed-dim, embedding-dim, "
    "embedding-size, emb-dim, emb-size, model-dim",
    "hidden": "hidden-size, hidden-dim, hidden-units, state-size",
    "layers": "num-layers, n-layers, n-layer, num-hidden-layers, depth, blocks",
    "decoder_layers": "num-decoder-layers, n-decoder-layers",
    "heads": "num-heads, n-heads, n-head, nhead, num-attention-heads",
    "head_width": "head-dim, d-head, d-kv, head-size",
    "key_value_heads": "num-key-value-heads, num-kv-heads, n-kv-heads, kv-heads",
    "feedforward": "dim-feedforward, d-ff, d-inner, ff-dim, ffn-dim, intermediate-size, mlp-dim",
    "dropout": "drop, dropout-rate, p-drop, hidden-dropout, resid-pdrop",
    "attention_dropout": "attn-dropout, attn-drop, attn-pdrop",
    "length": "max-len, max-length, max-seq-len, max-seq-length, seq-len, sequence-length, "
    "block-size, context-length, n-positions, max-position-embeddings",
    "attend_step": "asks",
    "init_std": "spread, initializer-range, init-range",
    "epsilon": "eps, layer-norm-eps",
    "vectors": "embeddings, glove, word-vectors, pretrained-embeddings",
    "score": "similarity, compatibility, score-function, attention-score, attention-type",
    "position": "positional, positional-encoding, position-embedding, pos-encoding",
    "normalize": "normalizer, normalization, normaliser",
    "pattern": "attn-mask, attention-mask, mask, sparsity",
    "pool": "pooling, aggregation",
    "tie": "tie-weights, tie-embeddings, tie-word-embeddings, weight-tying, share-embeddings",
    "ngrams": "n-grams, ngram-range",
    "inverse_penalty": "c, regularization",
    "filters": "num-filters, n-filters, out-channels",
    "widths": "kernel-size, kernel-sizes, filter-sizes",
    # settings of a task
    "data": "dataset, train-data, train-file, input",
    "test": "test-data, test-file, test-set",
    "validation": "val, dev, val-split, validation-split, valid",
    "text": "text-column, text-field",
    "label": "label-column, labels, target-column",
    "vocabulary": "vocab, vocab-size, max-features, num-words",
    "minimum": "min-freq, min-count, min-df",
    "class_weights": "class-weight",
    "smoothing": "label-smoothing",
    "beam": "beam-size, beam-width, num-beams",
    "penalty": "length-penalty",
    "examples": "max-examples, max-samples, limit, num-samples",
    # settings of a training
    "learning_rate": "lr, eta, step-size",
    "weight_decay": "wd, l2",
    "batch_size": "bs, batch, per-device-train-batch-size, train-batch-size",
    "batch_tokens": "max-tokens, tokens-per-batch",
    "epochs": "epoch, num-epochs, n-epochs, max-epochs, num-train-epochs",
    "steps": "max-steps, num-steps, n-steps, iterations, iters, max-iters, updates",
    "minutes": "time, time-limit, max-time, budget",
    "warmup": "warmup-steps, num-warmup-steps, warmup-ratio",
    "schedule": "scheduler, lr-scheduler, lr-schedule, lr-scheduler-type, decay",
    "optimizer": "optim, opt, optimiser",
    "clip": "grad-clip, gradient-clip, clip-grad, max-grad-norm, gradient-clipping",
    "average": "ema, ema-decay, swa",
    "patience": "early-stopping, early-stop",
    "evaluate_every": "eval-every, eval-steps, eval-interval, val-check-interval",
    "save_every": "save-steps, save-interval, checkpoint-every",
    "precision": "dtype, amp, mixed-precision",
    "threads": "num-threads, n-threads, num-workers, n-jobs",
    "seed": "random-seed, random-state",
    "init": "init-from, checkpoint, resume-from, pretrained",
    "weights": "pretrained, pretrained-model, model-name, checkpoint",
    # models
    "rnn": "lstm, gru, bilstm, bi-lstm, bigru, recurrent, blstm",
    "gru": "lstm, rnn, recurrent, seq2seq, encoder-decoder",
    "bahdanau": "seq2seq, attention, gru-attention, rnnsearch",
    "luong-general": "luong",
    "cnn": "conv, convnet, textcnn, text-cnn, kim-cnn, convolutional",
    "tfidf": "logistic-regression, logreg, logistic, bow, bag-of-words, tf-idf, lr, linear",
    "nb-svm": "svm, linear-svm, linearsvc, svc, naive-bayes, nb, bayes",
    "mean": "average, avg, fasttext, deep-averaging-network, dan, bag-of-embeddings",
    "self-attention": "attention, attn",
    "attention-pool": "attention",
    "transformer": "attention-is-all-you-need, vaswani, encoder",
    "bert": "roberta, distilbert, deberta, albert, electra, encoder",
    "gpt": "gpt2, gpt-2, gpt-neo, llama, decoder, causal-lm",
    "t5": "flan-t5, t5-small, encoder-decoder",
    "frozen": "linear-probe, probe, feature-extraction",
    # tasks
    "classification": "sentiment, text-classification, classify, imdb, sst, labels",
    "multilabel": "multi-label, multilabel-classification, multi-label-classification, tags",
    "translation": "translate, mt, nmt, machine-translation, seq2seq",
    "language-modeling": "lm, clm, causal-lm, language-model, language-modelling",
    "masked-modeling": "mlm, masked-lm, masked-language-modeling, cloze",
    "span-corruption": "denoising, t5-pretraining",
    # scores, normalisers, positions, tokenizers
    "additive": "bahdanau, concat, mlp, tanh",
    "general": "luong, bilinear, multiplicative",
    "scaled-dot": "scaled-dot-product, sdpa, vaswani, sdp",
    "dot": "dot-product, inner-product",
    "cosine": "cos, cosine-similarity",
    "gaussian": "rbf, nadaraya-watson",
    "entmax15": "entmax-15",
    "rotary": "rope, rotary-embedding",
    "sinusoidal": "sin, sine, sines, absolute, vaswani",
    "relative-keys": "relative, shaw",
    "disentangled": "deberta, relative",
    "forgetting": "fox, forget, forget-gate, forgetting-transformer",
    "t5-bias": "relative, t5, relative-bias",
    "words": "word, whitespace, word-level",
    "characters": "char, chars, character-level",
    "bpe": "wordpiece, subword, byte-pair, sentencepiece",
    "unigram": "sentencepiece, ulm",
    "silu": "swish",
    "window": "sliding, local, longformer",
    "dilated": "strided, atrous",
    "causal": "autoregressive, triangular, lower-triangular",
    # values and metrics
    "cuda": "gpu, cuda:0, nvidia",
    "bf16": "half, bfloat16, fp16, float16, 16",
    "fp32": "float, float32, full, 32",
    "adamw": "adam",
    "macro-f1": "f1, f1-macro, macro, f-score, f-measure",
    "accuracy": "acc, micro-f1",
    "balanced-accuracy": "uar, macro-recall",
    "log-loss": "nll, cross-entropy, perplexity, ce, loss",
    "bleu": "sacrebleu, bleu-4, corpus-bleu, sacre-bleu",
    "exact": "exact-match, em, accuracy",
    "constant": "none, flat, fixed",
}


def _bare(name: str) -> str:
    """Return a name in lower case, without hyphens and other signs.

    >>> _bare("TF-IDF"), _bare("n_layers")
    ('tfidf', 'nlayers')
    """
    return re.sub(r"[^a-z0-9+]", "", name.lower())


USUAL: dict[str, tuple[str, ...]] = {}
for _name, _others in _ALSO.items():
    for _other in map(_bare, _others.split(", ")):
        USUAL[_other] = (*USUAL.get(_other, ()), _name)


def meant(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names equal to this one except for case and hyphens, and synonyms.

    >>> meant("--lr", ["learning_rate"]), meant("learning-rates", ["learning_rate"])
    (['learning_rate'], [])
    """
    names, bare = list(dict.fromkeys(known)), _bare(name)
    matches = [other for other in names if _bare(other) == bare]
    return matches + [x for x in USUAL.get(bare, ()) if x in names and x not in matches]


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are probably meant: synonyms, or else similar spellings.

    >>> nearest("lstm", ["cnn", "rnn"]), nearest("trasformer", ["transformer", "t5"])
    (['rnn'], ['transformer'])
    >>> nearest("TF-IDF", ["tfidf"]), nearest("hidden_size", ["width", "hidden"])
    (['tfidf'], ['width', 'hidden'])
    """
    names = list(dict.fromkeys(known))
    return meant(name, names) or get_close_matches(name, names, n=3, cutoff=0.5)
