"""What `reason` makes of a reply: calls, requests, threads, answers."""
