"""The cryptographic primitives that the protocols are built from, one module per primitive."""
