"""The token of a guarded Ray cluster: search, use, and advice when it is refused.

In Ray 2.60 a cluster started by ``ray.init`` has token authentication; one started by ``ray start --head`` has it if a
token was found there, or with ``RAY_AUTH_MODE=token``. A client sends its token by itself only to a local cluster that
it finds itself (``ray._private.worker``), and never to a dashboard (``dashboard_sdk``); `use_token` makes it do so.
Tokens are never printed, logged or put into an exception; only the place of a token is.
"""

import os
from pathlib import Path

import grpc
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # a compiled module
from ray.exceptions import AuthenticationError

from testbed.errors import ClusterError

_MODE, _TOKEN, _PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_PROBE_TIMEOUT_S = 5.0
_CLUSTER_ID = "/ray.rpc.NodeInfoGcsService/GetClusterId"  # the first question of Ray's own clients
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
    """Make this process send its token, if it has one and `RAY_AUTH_MODE` is not set.

    A dashboard without authentication ignores the token. A cluster without authentication cannot call back a driver
    that has a token, so check `asks_for_token` before. The token is the one that Ray would find: RAY_AUTH_TOKEN, the
    file that RAY_AUTH_TOKEN_PATH names, or ``~/.ray/auth_token``.

    Raises:
        ClusterError: RAY_AUTH_TOKEN_PATH names an unreadable file, or RAY_AUTH_MODE asks for a token and there is none.
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
            raise ClusterError(f"{mode} requires a token, and none was found: {_PUT}") from None
        raise ClusterError(f"{_PATH}: no token can be read from {os.environ[_PATH]}") from None


def advice(text_of_error: str) -> str | None:
    """Return one line of advice if a Ray error is about a missing or wrong token; else None.

    Args:
        text_of_error: the error's message. Nothing of it is repeated.
    """
    text = text_of_error.lower()
    if not any(words in text for words in _ABOUT_TOKENS):
        return None
    source = _token_source()
    if source is not None and os.environ.get(_MODE, "token").lower() != "token":
        return (
            f"the Ray cluster requires a token, and {_MODE}={os.environ[_MODE]} withholds the one from {source}; "
            f"unset {_MODE}"
        )
    if source is None or any(words in text for words in _ABOUT_NONE):
        return f"the Ray cluster requires a token and none was found: {_PUT}"
    return f"the Ray cluster refuses the token from {source}: it is not this cluster's ({_WHERE_FROM})"


def asks_for_token(address: str) -> bool:
    """Return whether the cluster at HOST:PORT rejects clients without a token.

    Also False if nothing answers there, or if `address` is not HOST:PORT; other checks report that.
    """
    return _probe(address, (), _PROBE_TIMEOUT_S) is grpc.StatusCode.UNAUTHENTICATED


def answers(address: str, timeout_s: float) -> bool:
    """Return whether the head of a Ray cluster answers at HOST:PORT, with or without a token.

    With `RAY_USE_TLS` the answer is True without a check, because only Ray reads the certificates.

    Args:
        address: HOST:PORT.
        timeout_s: longest wait in seconds.
    """
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True
    return _probe(address, (), timeout_s) in (grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED)


def refused(address: str) -> str | None:
    """Return `advice` if the cluster at HOST:PORT rejects this process's token, else None.

    Ray itself would retry for a quarter of a minute and then only report that it could not connect. Also None if
    `asks_for_token` is False.
    """
    loader = AuthenticationTokenLoader.instance()
    headers = tuple(loader.get_token_for_http_header().items()) if loader.has_token() else ()
    turned_away = _probe(address, headers, _PROBE_TIMEOUT_S) is grpc.StatusCode.UNAUTHENTICATED
    return advice("InvalidAuthToken") if turned_away else None


def _probe(address: str, headers: tuple[tuple[str, str], ...], timeout_s: float) -> grpc.StatusCode:
    """Return the status of HOST:PORT for the first question of Ray's clients; UNAVAILABLE for other addresses."""
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
    """Return the place of the token that Ray would use, in Ray's order; None if there is none."""
    if os.environ.get(_TOKEN):
        return _TOKEN
    if os.environ.get(_PATH):
        return _PATH
    try:
        return "~/.ray/auth_token" if (Path.home() / ".ray" / "auth_token").is_file() else None
    except RuntimeError:  # no home directory
        return None
