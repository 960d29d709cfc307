"""Analysis of models: attention weights, dependencies and costs."""
