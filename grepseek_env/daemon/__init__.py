"""One process that keeps a corpus warm and runs the commands of many clients; see `server` and `client`."""
