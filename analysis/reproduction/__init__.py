"""Reproductions of the papers' tables and figures; `contract` defines a reproduction, `catalogue` lists them all."""
