"""The recipe of k3-mini: corpus, tokenizer, questions, training, quantising, evaluation."""
