"""The papers' tables and figures, made again: `contract` says what a reproduction is, `catalogue` lists them."""
