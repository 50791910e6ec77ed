"""Lotto: participant selection that a malicious server cannot influence.

Jiang, Ye, Chen, et al., Lotto: Secure Participant Selection against Adversarial Servers in Federated Learning, USENIX
Security 2024, arXiv 2401.02880.

A client is a candidate if its number beta, which no party can choose, is below a s m / n. The server draws s of the
candidates. Every participant verifies all others, and all sign the list that they have verified. So a server can
neither fill the round with its own clients nor show different lists to different participants.

In the paper's order:

- `parameters`: s, a (the paper's alpha), n_min; `refinement`: the clients left out of the population (3.5);
- stage 1, selection: `variants`. Client-centric: clients select themselves by a verifiable random function.
  Server-centric: the server evaluates a PRF for all clients (3.4);
- stages 2 and 3, mutual verification and consistency (3.4): `client` and `server`, shared by both variants;
- `messages`: all messages in this order, and the signed content; the threshold is in `testbed.crypto.sortition`.

`testbed.selection.verifiable_batch_partition` selects whole batches with the same `variants`, `client`, `server`.
"""
