"""Layers of the models: embeddings, blocks, pools and recurrent layers."""
