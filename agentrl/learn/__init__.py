"""Rows, micro-batches and the optimiser. Importing this package loads no torch."""
