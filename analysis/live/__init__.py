"""The report page of runs in progress: `server` serves it on loopback with the runs' status; `page` updates it."""
