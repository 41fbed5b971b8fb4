"""ALFWorld on the standard library: real games letter for letter, and generated ones."""
