"""The token that guards a Ray cluster: found and sent where it is needed, and what to do when it is refused.

In Ray 2.60 a cluster that ``ray.init`` starts has token authentication; one that ``ray start --head`` starts has it
when a token was found there, or with ``RAY_AUTH_MODE=token``. A client sends its token of its own accord only to the
local cluster that it finds itself (``ray._private.worker``), and never to a dashboard (``dashboard_sdk``): so
`use_token` says so. Tokens are never printed, logged or put into an exception; only where one was found is.
"""

import os
from pathlib import Path

import grpc
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # a compiled module
from ray.exceptions import AuthenticationError

from testbed.errors import ClusterError

_MODE, _TOKEN, _PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_PROBE_TIMEOUT_S = 5.0
_CLUSTER_ID = "/ray.rpc.NodeInfoGcsService/GetClusterId"  # the first thing that Ray's own clients ask
# Ray's words (authentication_constants.py, http_token_authentication.py, C++ status texts), in lower case.
_ABOUT_TOKENS = (
    "authentication required",
    "authentication failed",
    "missing authentication token",
    "invalid authentication token",
    "invalidauthtoken",
    "authentication token is",
    "no authentication token was found",
    "invalid or missing authentication token",
)
_ABOUT_NONE = ("authentication required", "missing authentication token", "no authentication token was found")
_WHERE_FROM = "`ray get-auth-token` prints it on the head"
_PUT = f"put it into ~/.ray/auth_token, or set {_PATH} or {_TOKEN} ({_WHERE_FROM})"


def use_token() -> None:
    """Let this process send its token, when it has one and `RAY_AUTH_MODE` is not set.

    Harmless for a dashboard without authentication, which does not look at it; a cluster without it cannot call back a
    driver that has it, so ask `asks_for_token` before. The token is the one that Ray would find: RAY_AUTH_TOKEN, the
    file that RAY_AUTH_TOKEN_PATH names, or ``~/.ray/auth_token``.

    Raises:
        ClusterError: RAY_AUTH_TOKEN_PATH names a file that cannot be read, or RAY_AUTH_MODE asks for a token and there
            is none.
    """
    if os.environ.get(_MODE) is None and _token_source() is not None:
        os.environ[_MODE] = "token"
        Config.initialize("")  # Ray has read its environment when it was imported
    loader = AuthenticationTokenLoader.instance()
    loader.reset_cache()
    try:
        loader.has_token()
    except (AuthenticationError, RuntimeError, OSError):
        if not os.environ.get(_PATH):
            mode = f"{_MODE}={os.environ.get(_MODE)}"
            raise ClusterError(f"{mode} asks for a token, and none was found: {_PUT}") from None
        raise ClusterError(f"{_PATH}: no token can be read from {os.environ[_PATH]}") from None


def advice(text_of_error: str) -> str | None:
    """One line about what to do when an error of Ray's is about a missing or wrong token; None when it is not.

    Args:
        text_of_error: what the error says. Nothing of it is repeated.
    """
    text = text_of_error.lower()
    if not any(words in text for words in _ABOUT_TOKENS):
        return None
    source = _token_source()
    if source is not None and os.environ.get(_MODE, "token").lower() != "token":
        return (
            f"the Ray cluster asks for a token, and {_MODE}={os.environ[_MODE]} keeps the one from {source} back; "
            f"unset {_MODE}"
        )
    if source is None or any(words in text for words in _ABOUT_NONE):
        return f"the Ray cluster asks for a token and none was found: {_PUT}"
    return f"the Ray cluster refuses the token from {source}: it is not this cluster's ({_WHERE_FROM})"


def asks_for_token(address: str) -> bool:
    """Whether the cluster at HOST:PORT turns away who sends no token.

    False too when nothing answers there, or when `address` is not HOST:PORT: that is for others to find out.
    """
    return _probe(address, (), _PROBE_TIMEOUT_S) is grpc.StatusCode.UNAUTHENTICATED


def answers(address: str, timeout_s: float) -> bool:
    """Whether the head of a Ray cluster answers at HOST:PORT, with or without a token, within `timeout_s` seconds.

    Taken for granted with `RAY_USE_TLS`, whose certificates only Ray reads.
    """
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True
    return _probe(address, (), timeout_s) in (grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED)


def refused(address: str) -> str | None:
    """Whether the cluster at HOST:PORT turns this process away for its token: `advice`, or None.

    Ray itself would try for a quarter of a minute and then say no more than that it could not connect. None too where
    `asks_for_token` is False.
    """
    loader = AuthenticationTokenLoader.instance()
    headers = tuple(loader.get_token_for_http_header().items()) if loader.has_token() else ()
    turned_away = _probe(address, headers, _PROBE_TIMEOUT_S) is grpc.StatusCode.UNAUTHENTICATED
    return advice("InvalidAuthToken") if turned_away else None


def _probe(address: str, headers: tuple[tuple[str, str], ...], timeout_s: float) -> grpc.StatusCode:
    """What HOST:PORT says to the first question of Ray's clients; UNAVAILABLE for an address of another kind."""
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdigit() or "://" in address:
        return grpc.StatusCode.UNAVAILABLE
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # as Ray's own
        ask = channel.unary_unary(_CLUSTER_ID, request_serializer=None, response_deserializer=None)
        try:
            ask(b"", timeout=timeout_s, metadata=headers)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


def _token_source() -> str | None:
    """Where Ray would take a token from, in its own order; None when there is none."""
    if os.environ.get(_TOKEN):
        return _TOKEN
    if os.environ.get(_PATH):
        return _PATH
    try:
        return "~/.ray/auth_token" if (Path.home() / ".ray" / "auth_token").is_file() else None
    except RuntimeError:  # no home directory
        return None
