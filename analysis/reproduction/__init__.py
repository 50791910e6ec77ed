"""The papers' tables and figures, reproduced: `contract` says what a reproduction is, `catalogue` lists them."""
