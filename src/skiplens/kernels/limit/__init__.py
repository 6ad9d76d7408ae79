"""The infinitely wide version of any module: rules on its exported graph."""
