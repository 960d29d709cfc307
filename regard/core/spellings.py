"""Names of arguments and settings in other packages."""

from typing import Final

#: Names of arguments by role, the preferred first.
ROLES: Final[dict[str, list[str]]] = {
    "queries": (
        "inputs_embeds query queries q x hidden_states src tgt target input inputs sequence "
        "input_ids idx ids tokens decoder_input"
    ).split(),
    "keys": "key keys k".split(),
    "values": "value values v".split(),
    "memory": (
        "memory context encoder_hidden_states encoder_outputs encoder_output "
        "key_value_states kv"
    ).split(),
    "positions": "position_ids positions pos cache_position".split(),
    "cache": "past_key_values past_key_value layer_past cache past".split(),
    "packing": ["cu_seqlens", "cu_seq_lens", "cu_seqlens_q"],
    "causal": "is_causal use_causal_mask causal".split(),
    "weights": (
        "need_weights output_attentions return_attention_scores return_attention "
        "return_weights return_attn return_attn_weights return_intermediates"
    ).split(),
}  # fmt: skip
#: What constructors call a size or another setting that networks share, the preferred first.
SETTINGS: Final[dict[str, list[str]]] = {
    "width": (
        "width embed_dim d_model dim hidden_size num_hiddens n_embd embedding_dim hidden_dim "
        "dim_model emb_dim embed_size model_dim"
    ).split(),
    "heads": "heads num_heads nhead n_heads n_head h num_attention_heads nheads".split(),
    "head_width": "dim_head head_dim key_dim attn_dim_head d_k head_size".split(),
    "dropout": (
        "dropout attn_dropout attn_drop dropout_p attention_dropout drop p dropout_rate "
        "attention_probs_dropout_prob attn_pdrop"
    ).split(),
    "key_value_heads": (
        "key_value_heads num_kv_heads num_key_value_heads n_kv_heads kv_heads num_heads_kv"
    ).split(),
    "feedforward": (
        "dim_feedforward intermediate_size ffn_dim d_ff mlp_dim ff_dim hidden_features"
    ).split(),
    "layers": "num_layers depth n_layers n_layer num_hidden_layers".split(),
    "length": (
        "length max_len max_seq_len block_size context_length seq_len "
        "max_position_embeddings max_length"
    ).split(),
    "vocabulary": (
        "vocab_size num_tokens vocab vocabulary n_vocab vocabulary_size num_embeddings"
    ).split(),
    "labels": (
        "labels num_labels n_labels classes num_classes n_classes num_outputs"
    ).split(),
}  # fmt: skip
