"""Lotto: Jiang, Ye, Chen, et al., Lotto: Secure Participant Selection against Adversarial Servers in Federated
Learning, USENIX Security 2024, arXiv 2401.02880.

A client is a candidate when its number beta, which nobody can choose, falls below a s m / n. The server draws s of the
candidates; every participant then verifies every other, and all sign the list that they have verified, so that a
server can neither stuff the round with its own clients nor show different lists to different participants.

To read it in the paper's order:

- `parameters`: s, a (the paper's alpha), n_min, and `refinement`, which clients the population is without (3.5);
- stage 1, selection: `variants`, the client-centric one, where clients select themselves by a verifiable random
  function, and the server-centric one, where the server evaluates a PRF for all (3.4);
- stages 2 and 3, mutual verification and consistency (3.4): `client` and `server`, which both variants share;
- `messages`: all that is sent, in that order, and all that is signed; the threshold is in `testbed.crypto.sortition`.

`testbed.selection.verifiable_batch_partition` selects whole batches with the same `variants`, `client`, `server`.
"""
