"""Where a run's numbers go while it works, besides its own store: TensorBoard, Weights & Biases."""
