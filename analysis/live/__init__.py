"""The page of runs under way: `server` shows it on loopback, and how the runs stand; `page` makes it anew."""
