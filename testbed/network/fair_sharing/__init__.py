"""How concurrent transfers share the server's link."""
