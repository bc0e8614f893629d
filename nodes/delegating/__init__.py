"""How a subordinate is asked: the queue of requests, the attempt, the run of its level."""
