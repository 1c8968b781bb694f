"""Who may see the page: those on this machine who know its address, which nobody can guess."""

import secrets
import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from fastapi import FastAPI
from nicegui import app as pages
from nicegui import ui
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from lockstep.scenarios import ScenarioError

HOST = "127.0.0.1"
_PATIENCE_S = 300.0  # for a browser that is away: its settings are kept
_FORBIDDEN = "403: this is not the address that 'lockstep serve' has printed\n"


def serve(page: Callable[[], None], title: str, port: int, opened: bool) -> None:
    """Serve a page, which the function fills for everyone who looks at it, until Ctrl-C.

    Everything lies below a random token: an address without it is refused, and no cookie is set, which other
    servers of this machine would be sent. `port`: 0 for any that is free. Raises ScenarioError for one that
    is not.
    """
    listening = _listen(port)
    token = secrets.token_urlsafe(24)
    address = f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
    app = FastAPI(openapi_url=None)
    ui.run_with(
        app, root=page, title=title, mount_path=f"/{token}", dark=None, show_welcome_message=False,
        reconnect_timeout=_PATIENCE_S
    )  # fmt: skip

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
    def refuse(request: Request) -> PlainTextResponse:
        return PlainTextResponse(_FORBIDDEN, 403)

    @pages.on_startup
    def tell() -> None:
        print(f"Serving {address} (this machine only; Ctrl-C ends it)", flush=True)
        if opened:
            webbrowser.open(address)

    config = uvicorn.Config(
        app, loop="asyncio", log_level="error", timeout_graceful_shutdown=1, server_header=False
    )
    with listening, suppress(KeyboardInterrupt):  # which uvicorn raises again when all is ended
        uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen()  # now: the address is printed before anybody accepts
    except OSError as error:
        found.close()
        raise ScenarioError(f"{port} cannot be had: {error.strerror}; give another, or 0", "--port") from None
    return found
